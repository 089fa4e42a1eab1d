"""From a recipe to the compiled form of its trace: a few small traces, checked on one that was not used.

Two traces of four layers at different dimensions give the formulas of all sizes, a third of three layers at yet
other dimensions must come out byte for byte. Where the layers do not repeat (a model whose layers are of several
types, or fewer than five), all three are of the whole depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from finefit.errors import NotModelled
from finefit.lab.fit import NoFormulaError, at, same_order, symbolic
from finefit.lab.fold import NotAlikeError, fold
from finefit.lab.shim import CAPABILITY
from finefit.lab.trace import trace
from finefit.lab.versions import versions
from finefit.memory.compiled import Compiled
from finefit.memory.program import TEMPLATE, Program
from finefit.memory.store import Batch, batch_class, save, versions_of
from finefit.memory.timeline import Timeline
from finefit.memory.tracefile import write
from finefit.step.size import Dims
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe

_SORTED = 3072  # tokens from which on the embedding's backward sorts; every trace is beyond, see step.size
_RANKS = (6, 10, 14)  # no multiples of one another
_SHORTEST = 1543


@dataclass(frozen=True, slots=True)
class CompiledTrace:
    """A program, its compiled form at the model's depth, and the points it was made from and checked at."""

    program: Program
    compiled: Compiled
    layers: int
    points: tuple[Dims, ...]
    data: bytes

    @property
    def folded(self) -> bool:
        """Layers were traced as four and repeated."""
        return bool(self.program.loops)


def points(model: Model, recipe: Recipe) -> list[Dims]:
    """Three dimensions of a recipe's class of batches; at the second there are more tokens than the vocabulary has.

    The length is odd, or an odd multiple of 16 where the class asks for multiples of 16; 1543 is a
    prime, and nothing else is a multiple of another, so that no two products agree at all of them.
    """
    kind = batch_class(model, recipe)
    step = 16 if kind.aligned else 1
    shortest, longest = _lengths(model, kind)
    if longest is None:
        start = max(shortest, _SHORTEST if not kind.single else 2 * _SHORTEST)
        lengths = [_odd(start + offset, step, 1) for offset in (0, 456, 768)]
        if kind.single:
            lengths[1] = max(lengths[1], _odd(model.vocab, step, 1))
    else:
        lengths = [_odd(longest - offset, step, -1) for offset in (0, 62, 170)]
    batches = [1, 1, 1]
    if not kind.single:
        batches = [max(2, _SORTED // s + 1) + more for s, more in zip(lengths, (0, 0, 3), strict=True)]
        batches[1] = max(batches[0] + 1, model.vocab // lengths[1] + 2)
    ranks = [0, 0, 0] if recipe.lora is None else [kind.rank or r for r in _RANKS]
    return [Dims(b, s, r) for b, s, r in zip(batches, lengths, ranks, strict=True)]


def _lengths(model: Model, kind: Batch) -> tuple[int, int | None]:
    """Shortest and longest length of the class; None: any."""
    longest = model.max_position if model.position == "learned" and model.max_position else None
    if model.sliding_window is None:
        return 1, longest
    if kind.windowed:
        return model.sliding_window, longest
    shorter = model.sliding_window - 1
    return 1, min(shorter, longest or shorter)


def _odd(value: int, step: int, direction: int) -> int:
    """The next odd multiple of ``step`` at or after ``value``, or at or before it."""
    multiple = -(-value // step) if direction > 0 else value // step
    return step * (multiple if multiple % 2 else multiple + direction)


def compile_trace(
    model: Model, recipe: Recipe, *, arch: str = "sm80", progress: Callable[[int], None] | None = None
) -> CompiledTrace:
    """Trace a recipe at a few points and compile it; evaluation, whose batch is another one, is left out.

    Args:
        arch: as for ``trace``.
        progress: told how many of the three traces are done.

    Raises:
        NotModelled: the recipe cannot be traced, or its sizes have no formula.
    """
    recipe = replace(recipe, eval_batch=None)
    where = points(model, recipe)
    done = 0

    def take(layers: int, dims: Dims) -> Timeline:
        nonlocal done
        lora = replace(recipe.lora, rank=dims.r) if recipe.lora else None
        found = trace(
            replace(model, layers=layers), replace(recipe, micro_batch=dims.b, seq_len=dims.s, lora=lora), arch=arch
        )
        done += 1
        if progress is not None:
            progress(done)
        return found

    try:
        program = _folded(take, model, where) if model.layers > TEMPLATE and not model.layer_types else None
        program = program or _whole(take, model, where)
    except NoFormulaError as error:
        raise NotModelled(f"the trace has no compiled form: {error}", fix="leave out --exact") from error
    compiled = program.compiled(model.layers)
    data = write(compiled, program, model.layers, versions_of(replace(recipe, stack=versions())))
    return CompiledTrace(program, compiled, model.layers, tuple(where), data)


def keep(
    model: Model,
    recipe: Recipe,
    traced: Timeline,
    arch: str = "sm80",
    progress: Callable[[str, int], None] | None = None,
) -> Path:
    """Compile a recipe's trace into the user's cache, where ``finefit memory --exact`` finds it; the file's path.

    Args:
        traced: the trace of the recipe itself, which the compiled form must equal byte for byte.
        progress: told what is done now, and how many of the three small traces are.

    Raises:
        NotModelled: the recipe has no compiled form, or it does not give the trace's bytes.
    """
    if CAPABILITY[arch] < (8, 0):
        raise NotModelled("traces are stored for GPUs with flash attention", fix="name an Ampere GPU or a later one")
    show = None if progress is None else partial(progress, "tracing three smaller points")
    found = compile_trace(model, recipe, arch=arch, progress=show)
    dims = Dims(recipe.micro_batch, recipe.seq_len, recipe.lora.rank if recipe.lora else 0)
    mine = found.program.unfold(model.layers)
    if not _same_bytes(mine, traced, dims):
        raise NotModelled("the compiled trace differs from the whole one", fix="please report the command line")
    return save(model, replace(recipe, stack=versions()), found.data)


def _same_bytes(mine: Timeline, traced: Timeline, dims: Dims) -> bool:
    """Whether two Timelines ask the allocator for the same bytes in the same order; empty tensors take none.

    Training alone is compared: evaluation comes after it and is left out of the compiled form.
    """
    sides = []
    for timeline in (mine, traced):
        sizes = [tensor.size.block(dims) for tensor in timeline.tensors]
        end = next((mark.start for mark in timeline.marks if mark.phase == "evaluation"), None)
        asked = ((event >= 0, sizes[event if event >= 0 else ~event]) for event in timeline.events[:end])
        sides.append([pair for pair in asked if pair[1]])
    return sides[0] == sides[1]


def _folded(take: Callable[[int, Dims], Timeline], model: Model, where: Sequence[Dims]) -> Program | None:
    """Four layers for all, None where they do not repeat."""
    four = symbolic([take(TEMPLATE, dims) for dims in where[:-1]], model.vocab)
    three = take(TEMPLATE - 1, where[-1])
    try:
        checked = fold(at(four, where[-1]), three)
    except NotAlikeError:
        return None
    if any(four.tensors[number].size.symbols for number in checked.growth or ()):
        return None  # a list over all parameters depends on the batch too
    return replace(checked, timeline=four)


def _whole(take: Callable[[int, Dims], Timeline], model: Model, where: Sequence[Dims]) -> Program:
    """Every layer traced.

    Raises:
        NoFormulaError: the third trace is not what the first two say.
    """
    timeline = symbolic([take(model.layers, dims) for dims in where[:-1]], model.vocab)
    check = take(model.layers, where[-1])
    if not same_order(timeline, check) or at(timeline, where[-1]).tensors != check.tensors:
        raise NoFormulaError("a third trace has other sizes or events than two say")
    return Program(timeline)
