"""From a model and a recipe to memory: the compiled answer, the Timeline, and the four numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from finefit.memory.allocator import replay, required
from finefit.memory.compiled import Compiled, Evaluated, compile_timeline
from finefit.memory.context import CUBLAS_WORKSPACE, cublas_workspace, cuda_context, nccl_buffers
from finefit.memory.evaluation import PHASE, evaluation_recipe, followed_by
from finefit.memory.peak import Peak
from finefit.memory.played import evaluated, played
from finefit.memory.timeline import Timeline
from finefit.step.refusals import check_length
from finefit.step.size import Dims
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe

if TYPE_CHECKING:
    from finefit.memory.tracefile import Trace


def dims_of(recipe: Recipe) -> Dims:
    """The free dimensions of a recipe."""
    rank = recipe.lora.rank if recipe.lora else 0
    tokens = -(-recipe.seq_len // recipe.parallel.context)
    return Dims(recipe.rows, tokens, rank, recipe.sharding.ranks)


def structure(recipe: Recipe) -> Recipe:
    """The recipe without its free dimensions and without what memory does not depend on."""
    lora = replace(recipe.lora, rank=0, alpha=0) if recipe.lora else None
    return replace(
        recipe,
        micro_batch=0,
        seq_len=0,
        lora=lora,
        grad_accum=min(recipe.grad_accum, max(2, recipe.parallel.pipeline)),
        sharding=replace(recipe.sharding, ranks=min(recipe.sharding.ranks, 2)),
        epochs=None,
        max_steps=None,
        max_samples=None,
        eval_batch=None,
        sources={},
    )


def _guarded(model: Model, recipe: Recipe) -> Recipe:
    """``structure`` with what of the batch events do depend on: a single row, the length of the sliding window."""
    length = model.sliding_window or 0
    return replace(
        structure(recipe),
        micro_batch=min(recipe.micro_batch, 2),
        seq_len=length if model.windowed(recipe.seq_len) else 0,
    )


@lru_cache(maxsize=256)
def _compiled(model: Model, structural: Recipe, versions: tuple[tuple[str, str], ...]) -> Compiled:
    recipe = replace(structural, stack=dict(versions))  # the stack is no part of a recipe's identity
    return compile_timeline(played(model, recipe, folded=True))


def compiled(model: Model, recipe: Recipe) -> Compiled:
    """The compiled form of this structure, cached in the process."""
    check_length(model, recipe)
    return _compiled(model, _guarded(model, recipe), tuple(sorted(recipe.stack.items())))


@lru_cache(maxsize=64)
def _compiled_evaluation(model: Model, structural: Recipe, versions: tuple[tuple[str, str], ...]) -> Compiled:
    recipe = replace(structural, stack=dict(versions))
    return compile_timeline(evaluated(model, recipe, folded=True))


def _evaluation(model: Model, recipe: Recipe) -> Evaluated | None:
    """The peak of the evaluation loop, None where there is none."""
    batch = evaluation_recipe(recipe)
    if batch is None:
        return None
    form = _compiled_evaluation(model, _guarded(model, batch), tuple(sorted(batch.stack.items())))
    return form.evaluate(dims_of(batch))


@lru_cache(maxsize=16)
def _timeline(model: Model, structural: Recipe, versions: tuple[tuple[str, str], ...], workspace: int) -> Timeline:
    recipe = replace(structural, stack=dict(versions))
    return played(model, recipe, first_step=True, workspace=workspace)


def timeline(model: Model, recipe: Recipe, *, workspace: int = CUBLAS_WORKSPACE) -> Timeline:
    """Every event of load, first step, one steady step and evaluation, for the allocator replay and the plots.

    Beyond one row and below the sliding window events do not depend on the batch, the length, the rank or the number
    of ranks: one list a structure.

    Args:
        workspace: bytes of each of the two cuBLAS workspaces (forward and autograd thread).
    """
    check_length(model, recipe)
    training = _timeline(model, _guarded(model, recipe), tuple(sorted(recipe.stack.items())), workspace)
    return with_evaluation(training, model, recipe, workspace)


def with_evaluation(training: Timeline, model: Model, recipe: Recipe, workspace: int) -> Timeline:
    """A training run's Timeline with its batch of evaluation, where the recipe evaluates."""
    batch = evaluation_recipe(recipe)
    return training if batch is None else followed_by(training, _evaluated(model, batch, workspace), dims_of(batch))


def at_peak(model: Model, recipe: Recipe, *, workspace: int = CUBLAS_WORKSPACE) -> tuple[Timeline, Dims]:
    """The Timeline whose peak is the run's, and its dimensions: of training, or of evaluation."""
    batch, after = evaluation_recipe(recipe), _evaluation(model, recipe)
    if batch is None or after is None or after.allocated <= compiled(model, recipe).evaluate(dims_of(recipe)).allocated:
        return timeline(model, replace(recipe, eval_batch=None), workspace=workspace), dims_of(recipe)
    return _evaluated(model, batch, workspace), dims_of(batch)


def _evaluated(model: Model, batch: Recipe, workspace: int) -> Timeline:
    return _evaluation_timeline(model, _guarded(model, batch), tuple(sorted(batch.stack.items())), workspace)


@lru_cache(maxsize=16)
def _evaluation_timeline(
    model: Model, structural: Recipe, versions: tuple[tuple[str, str], ...], workspace: int
) -> Timeline:
    return evaluated(model, replace(structural, stack=dict(versions)), workspace=workspace)


def estimate(model: Model, recipe: Recipe, *, arch: str | None = None, trace: Trace | None = None) -> Peak:
    """Allocated bytes on one GPU: the peak of a steady step or of evaluation, its parts and the phases.

    Evaluation is always the model's, whose batch no stored trace has.

    Args:
        arch: GPU architecture ("Hopper"), which decides the cuBLAS workspaces; None takes the usual ones.
        trace: stored trace of this recipe (``memory.store``) to answer from in place of the model.
    """
    out = (compiled(model, recipe) if trace is None else trace.compiled).evaluate(dims_of(recipe))
    after = _evaluation(model, recipe)
    if after is not None:
        phases = {**out.phases, PHASE: after.phases[PHASE]}
        out = replace(after if after.allocated > out.allocated else out, phases=phases, host=out.host)
    held = 2 * cublas_workspace(arch)  # allocated once, never freed: the same at every point of a step
    parts = {**out.parts, "workspace": out.parts["workspace"] + held}
    phases = {name: nbytes + (held if name != "load" else 0) for name, nbytes in out.phases.items()}
    point = out.point
    return Peak(out.allocated + held, point.phase, point.op, point.module, parts, phases, host=out.host)


def measure(model: Model, recipe: Recipe, *, arch: str | None = None, gpus_per_node: int = 1) -> Peak:
    """``estimate`` with the replayed allocator: required, reserved and device bytes as well.

    Args:
        arch: GPU architecture, for the CUDA context and the cuBLAS workspaces.
        gpus_per_node: GPUs that talk to each other in one machine, for the collective buffers.
    """
    peak = estimate(model, recipe, arch=arch)
    events = timeline(model, recipe, workspace=cublas_workspace(arch))
    dims = dims_of(recipe)
    outside = cuda_context(arch).nbytes + nccl_buffers(gpus_per_node)
    reserved = replay(events, dims).reserved
    return replace(peak, required=required(events, dims) + outside, reserved=reserved, device=reserved + outside)
