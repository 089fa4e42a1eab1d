"""Low-rank adapters: which modules they sit on and how many parameters they train.

PEFT puts ``lora_A`` (r, in) and ``lora_B`` (out, r) beside a module (peft 0.21.2
``tuners/lora/layer.py`` ``LoraLayer.update_layer``), so a target costs r·(in + out).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from finefit.errors import InputError, NotModelled
from finefit.workload.families import EXPERT_TARGETS, PEFT_DEFAULT_TARGETS, layout
from finefit.workload.model import Model
from finefit.workload.parameters import (
    Parameter,
    embedding_parameters,
    final_parameters,
    head_parameters,
    layer_kinds,
    layer_parameters,
)
from finefit.workload.recipe import Lora
from finefit.workload.vision import tower_parameters

_ALL = {"all", "all-linear"}  # LLaMA-Factory's and PEFT's words for every linear module but the head

# peft 0.21.2 tuners/tuners_utils.py _check_lora_target_modules_mamba refuses out_proj for these
_MAMBA = frozenset({"nemotron_h", "mamba", "mamba2", "falcon_mamba", "falcon_h1"})


def linear_modules(model: Model) -> tuple[str, ...]:
    """Leaf names of the linear modules of the layers, in order, each once ("q_proj", …)."""
    kinds = (layer_parameters(model, first) for first, _ in layer_kinds(model))
    leaves = (p.module.rpartition(".")[2] for kind in kinds for p in kind if p.kind == "linear")
    return tuple(dict.fromkeys(leaves))


def lora_targets(model: Model, spec: str | Sequence[str] | None, *, where: str | None = None) -> tuple[str, ...]:
    """Leaf names that a target specification means for this model.

    Args:
        spec: "all" or "all-linear"; names, as a list or separated by commas; None for PEFT's default.
        where: place the specification was read from, for the error.

    Names that the model lacks are ignored as PEFT ignores them, as long as one fits.

    Raises:
        InputError: PEFT has no default for the family, or no name fits any module.
        NotModelled: a name that PEFT turns into the stacked experts of a layer.
    """
    present = linear_modules(model)
    if spec is None:
        if model.family not in PEFT_DEFAULT_TARGETS:
            raise InputError(
                f"PEFT has no default LoRA targets for model type {model.family!r}",
                where=where,
                fix=f"name them: {', '.join(present)}, or all-linear",
            )
        return PEFT_DEFAULT_TARGETS[model.family]
    wanted = [part.strip() for part in spec.split(",")] if isinstance(spec, str) else list(spec)
    wanted = [name for name in wanted if name]
    if len(wanted) == 1 and wanted[0] in _ALL:
        return tuple(name for name in present if not (model.family in _MAMBA and name == "out_proj"))
    if model.family in _MAMBA and "out_proj" in (name.rpartition(".")[2] for name in wanted):
        raise InputError(
            f"PEFT puts no adapter on out_proj of {model.name}, whose Mamba layers bypass the module",
            where=where,
            fix="leave out_proj out",
        )
    stacked = [name for name in wanted if name.rpartition(".")[2] in EXPERT_TARGETS.get(model.family, ())]
    if stacked:
        raise NotModelled(
            f"adapters on the stacked experts of {model.name} ({', '.join(stacked)}) are not modelled yet",
            where=where,
            fix=f"name modules that are no part of the experts: {', '.join(_outside_experts(model))}",
        )
    found = tuple(dict.fromkeys(name for name in wanted if any(_adaptable(p, (name,)) for p, _ in _modules(model))))
    if not found:
        raise InputError(
            f"no module of {model.name} is called {', '.join(wanted) or '(nothing)'}",
            where=where,
            fix=f"its linear modules are {', '.join(present)}",
        )
    return found


def _outside_experts(model: Model) -> tuple[str, ...]:
    """Linear modules whose name PEFT takes for themselves."""
    return tuple(name for name in linear_modules(model) if name not in EXPERT_TARGETS.get(model.family, ()))


def adapter_shapes(model: Model, targets: Sequence[str], layer: int = 0) -> tuple[tuple[str, int, int], ...]:
    """(module path, in, out) of each adapted module inside one layer."""
    return tuple((p.module, *_in_out(model, p)) for p in layer_parameters(model, layer) if _adaptable(p, targets))


@dataclass(frozen=True, slots=True)
class AdapterTensor:
    """One tensor that PEFT puts beside a linear module; "r" in its shape is the rank."""

    name: str
    shape: tuple[int | str, ...]
    trained: bool = True


def adapter_tensors(lora: Lora, leaf: str, n_in: int, n_out: int) -> Iterator[AdapterTensor]:
    """What an adapted module of (n_in, n_out) gets (peft 0.21.2 tuners/<kind>/layer.py ``update_layer``).

    Args:
        leaf: last part of the module's name.
    """
    if lora.kind == "ia3":
        yield AdapterTensor("ia3_l", (1, n_in if leaf in lora.feedforward else n_out))
    elif lora.kind == "vera":  # the matrices are shared by all layers
        yield AdapterTensor("vera_lambda_b", (n_out,))
        yield AdapterTensor("vera_lambda_d", ("r",))
    elif lora.kind == "oft":
        yield AdapterTensor("oft_R.weight", (n_in // lora.block, lora.block * (lora.block - 1) // 2))
    elif lora.kind == "adalora":
        yield AdapterTensor("lora_A", ("r", n_in))
        yield AdapterTensor("lora_E", ("r", 1))
        yield AdapterTensor("lora_B", (n_out, "r"))
        yield AdapterTensor("ranknum", (1,))
    else:
        yield AdapterTensor("lora_A.weight", ("r", n_in), trained=lora.kind != "lora_fa")
        yield AdapterTensor("lora_B.weight", (n_out, "r"))
        if lora.kind == "dora":
            yield AdapterTensor("lora_magnitude_vector.weight", (n_out,))


def lora_parameters(model: Model, lora: Lora) -> int:
    """Trainable parameters of a run with adapters: theirs, and those of full copies of ``modules_to_save``."""
    count = 0
    for parameter, copies in _modules(model):
        if _adaptable(parameter, lora.targets) and not _within(parameter.module, lora.modules_to_save):
            leaf = parameter.module.rpartition(".")[2]
            for tensor in adapter_tensors(lora, leaf, *_in_out(model, parameter)):
                if tensor.trained:
                    count += prod(lora.rank if side == "r" else int(side) for side in tensor.shape) * copies
    return count + saved_numel(model, lora.modules_to_save)


def saved_numel(model: Model, names: Sequence[str]) -> int:
    """Elements of the modules trained in full beside the adapters.

    PEFT wraps each module whose path ends with one of the names, without regard to dots (peft 0.21.2
    ``utils/other.py`` ``_set_trainable``). The wrapper copies the module, so a tied head named
    together with its embedding counts once more.
    """
    count = 0
    for parameter, copies in _modules(model):
        parts = parameter.module.split(".")
        containers = [".".join(parts[: i + 1]) for i in range(len(parts))]
        if any(path.endswith(name) for path in containers for name in names):
            count += parameter.numel * copies
    return count


def _modules(model: Model) -> Iterator[tuple[Parameter, int]]:
    """Every parameter of the module tree with its copies; a tied head is a module of its own here."""
    for parameter in (*embedding_parameters(model), *final_parameters(model), *head_parameters(model)):
        yield parameter, 1
    if model.tied:
        yield Parameter(f"{layout(model.family).head}.weight", (model.vocab, model.hidden), "head"), 1
    for first, copies in layer_kinds(model):
        for parameter in layer_parameters(model, first):
            yield parameter, copies
    if model.tower is not None:
        yield from tower_parameters(model.tower)


def _adaptable(parameter: Parameter, targets: Sequence[str]) -> bool:
    """PEFT's rule for names (peft 0.21.2 tuners/tuners_utils.py check_target_module_exists): whole last parts."""
    if parameter.kind not in ("linear", "head", "embedding"):
        return False
    return any(parameter.module == name or parameter.module.endswith(f".{name}") for name in targets)


def _within(module: str, saved: Sequence[str]) -> bool:
    """The same function's guard: nothing at or below a saved module gets an adapter."""
    return any(f".{name}." in f".{module}." for name in saved)


def _in_out(model: Model, parameter: Parameter) -> tuple[int, int]:
    first, second = parameter.shape
    stored_in_out = parameter.kind == "embedding" or (parameter.kind == "linear" and layout(model.family).conv1d)
    return (first, second) if stored_in_out else (second, first)
