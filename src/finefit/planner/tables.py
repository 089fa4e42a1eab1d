"""Small tables for short questions: a model without a method or length, a GPU without a model.

Both print what they assume; every assumption can be stated by a flag.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import replace

from finefit.catalog.gpus import all_gpus
from finefit.catalog.models import all_models
from finefit.catalog.revision import catalog_revision
from finefit.errors import NotModelled
from finefit.memory.estimate import estimate
from finefit.planner.answer import Fits, Margin
from finefit.planner.fit import fit, gpus_per_node, outside_bytes, reserved_bytes
from finefit.planner.plan import LargestModel, LargestModels, MethodTable, TableCell
from finefit.resolve.resolved import Resolved
from finefit.workload import Cluster, DType, Lora, Model, Optimizer, Quant, Recipe
from finefit.workload.lora import lora_targets
from finefit.workload.parameters import parameter_count, quantised_numel

LENGTHS = (1024, 2048, 4096)
METHODS = ("full", "lora", "qlora")  # those that the tables compare
_SAID = {"full": "full fine-tuning", "lora": "LoRA", "qlora": "QLoRA"}
RANK = 16  # between PEFT's default of 8 and the 64 of the QLoRA paper; adapters are a percent of the weights
_LENGTH = 2048  # of the models a card trains
_EACH = 2  # models shown for a method: each takes a replay of its whole step

# The workload of one method at one length, with the user's other flags.
Resolver = Callable[[str, int], Resolved]


def method_table(
    resolve: Resolver,
    first: Resolved,
    *,
    method: str | None,
    seq: int | None,
    cluster: Cluster | None,
    as_of: dt.date,
) -> MethodTable:
    """What each method needs at each length; the method or the length alone where one was stated.

    Args:
        resolve: the workload of a method and a length; first: the incomplete one, for the model.

    Raises:
        NotModelled: no method of the table is modelled for this model.
    """
    cells: list[TableCell] = []
    assumptions: dict[str, None] = {}
    warnings: dict[str, None] = {}
    refused: NotModelled | None = None
    for name in METHODS if method is None else (method,):
        for length in _lengths(first.model) if seq is None else (seq,):
            try:
                one = resolve(name, length)
                cells.append(_cell(one.model, one.workload(cluster).recipe, name, cluster))
            except NotModelled as problem:
                refused = problem
                warnings[f"{_SAID.get(name, name)} is left out: {problem.what}"] = None
                continue
            assumptions.update(dict.fromkeys(one.assumptions))
            warnings.update(dict.fromkeys(one.warnings))
    if not cells and refused is not None:
        raise refused
    return MethodTable(
        model=first.model,
        model_text=first.model_text,
        parameters=parameter_count(first.model),
        missing=tuple(sorted(first.missing)),
        cluster=cluster,
        cells=tuple(cells),
        as_of=as_of,
        catalog_revision=catalog_revision(),
        assumptions=tuple(assumptions),
        warnings=tuple(warnings),
    )


def _lengths(model: Model) -> tuple[int, ...]:
    """Those of the table that the model has positions for; a table of learned positions may end before the first."""
    if model.position != "learned" or model.max_position <= 0:
        return LENGTHS
    return tuple(length for length in LENGTHS if length <= model.max_position) or (model.max_position,)


def _cell(model: Model, recipe: Recipe, method: str, cluster: Cluster | None) -> TableCell:
    if cluster is not None:
        found = fit(model, recipe, cluster)
        return TableCell(method, recipe.seq_len, found.low, found.high, found.fits, None)
    outside = outside_bytes(None, gpus_per_node(None))
    low = estimate(model, recipe).allocated + outside
    high = reserved_bytes(model, recipe, None) + outside
    holding = (gpu.memory_nominal_gb for gpu in all_gpus() if gpu.memory >= high)
    return TableCell(method, recipe.seq_len, low, high, Fits.UNKNOWN, min(holding, default=None))


def largest_models(cluster: Cluster, as_of: dt.date, warnings: tuple[str, ...] = ()) -> LargestModels:
    """The largest catalogue models that each of the GPUs trains by each method, one row a size.

    Every GPU holds the whole model: several of them do not train a larger one without sharding.
    """
    models = _by_size()
    rows = [row for method in METHODS for row in _largest(models, method, cluster)]
    return LargestModels(
        cluster=cluster,
        seq_len=_LENGTH,
        models=tuple(rows),
        as_of=as_of,
        catalog_revision=catalog_revision(),
        assumptions=(
            f"one sample of {_LENGTH} tokens at a time, gradient checkpointing on, SDPA attention",
            "weights and training in bf16 (fp16 on cards without bf16), AdamW (fused)",
            f"LoRA and QLoRA of rank {RANK} on every linear layer, QLoRA in NF4 with double quantisation",
            "nothing else uses the card",
        ),
        warnings=warnings,
    )


def _by_size() -> list[tuple[int, Model]]:
    """Models of the catalogue, largest first, the first of each shape."""
    sizes: dict[tuple[str, int], Model] = {}
    for model in all_models():
        if not model.checkpoint_quant:
            sizes.setdefault((model.family, parameter_count(model)), model)
    return sorted(((count, model) for (_, count), model in sizes.items()), key=lambda pair: (-pair[0], pair[1].name))


def _largest(models: list[tuple[int, Model]], method: str, cluster: Cluster) -> Iterator[LargestModel]:
    shown = 0
    for parameters, model in models:
        if _states_at_least(model, parameters, method) > cluster.gpu.memory:
            continue
        try:
            recipe = table_recipe(model, method, cluster)
            found = fit(model, recipe, cluster)
        except NotModelled:
            continue
        if found.high is None or found.fits is Fits.NO:
            continue
        margin = Margin(cluster.gpu.memory, found.low, found.high)
        yield LargestModel(method, model.name, parameters, found.fits, margin)
        shown += 1
        if shown >= _EACH and found.fits is Fits.YES:
            return


def _states_at_least(model: Model, parameters: int, method: str) -> int:
    """Bytes no run of the method can do without: bf16 weights, gradients and two moments; half a byte in NF4."""
    if method == "full":
        return 8 * parameters
    if method == "lora":
        return 2 * parameters
    packed = quantised_numel(model)
    return packed // 2 + 2 * (parameters - packed)


def table_recipe(model: Model, method: str, cluster: Cluster) -> Recipe:
    """The recipe that the table of largest models assumes."""
    half = DType.BF16 if cluster.gpu.bf16_flops else DType.FP16
    full = Recipe(
        method="full",
        weight_dtype=half,
        optimizer=Optimizer("adamw", "fused"),
        seq_len=_LENGTH,
        checkpointing="full",
    )
    if method == "full":
        return full
    adapters = Lora(RANK, 2 * RANK, targets=lora_targets(model, "all-linear"))
    quant = Quant("nf4", True, compute_dtype=half) if method == "qlora" else None
    return replace(full, method="lora", lora=adapters, quant=quant)
