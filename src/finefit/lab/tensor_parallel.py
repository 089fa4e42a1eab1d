"""One rank of a tensor-parallel run, traced: linear layers split by columns and rows as the model's own plan says.

The plan is that of transformers' configuration (5.24.0, ``base_model_tp_plan`` and ``_tp_plan``), carried out by
torch's DTensor; what the plan leaves out is whole on each rank.
"""

from __future__ import annotations

import re
import warnings
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from finefit.errors import NotModelled
from finefit.lab.build import load_model, prepare_model, refuse_untraced
from finefit.lab.configured import Configured, foreign
from finefit.lab.sdpa import attention
from finefit.lab.sharding import ShardedTracker, process_group, record
from finefit.lab.shim import fake_cuda
from finefit.lab.trace import ready
from finefit.lab.versions import quiet
from finefit.lab.vision import known_grids
from finefit.memory.timeline import Timeline
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe


def _style(word: str) -> ParallelStyle | None:
    """The style a word of the plan means; None: whole on each rank."""
    if word == "colwise":
        return ColwiseParallel()
    if word == "rowwise":
        return RowwiseParallel()
    if word in ("colwise_gather_output", "colwise_rep"):
        return ColwiseParallel(output_layouts=Replicate())
    return None


def plan(module: Any) -> dict[str, ParallelStyle]:
    """Modules that are split, by path."""
    prefix = module.base_model_prefix
    words = {f"{prefix}.{path}": word for path, word in (module.config.base_model_tp_plan or {}).items()}
    words.update(module._tp_plan or {})
    patterns = {re.compile(re.escape(path).replace(r"\*", r"\d+")): word for path, word in words.items()}
    found: dict[str, ParallelStyle] = {}
    for name, _ in module.named_modules():
        for pattern, word in patterns.items():
            style = _style(word) if pattern.fullmatch(name) else None
            if style is not None:
                found[name] = style
    return found


def _norm_of_locals(parameters: list[torch.nn.Parameter], max_norm: float) -> None:
    """Clipping of distributed and whole gradients together, which torch refuses to stack: a norm for each."""
    local = [p.grad._local_tensor if isinstance(p.grad, DTensor) else p.grad for p in parameters if p.grad is not None]
    torch.stack(torch._foreach_norm(local))


def trace_tensor_parallel(
    model: Model, recipe: Recipe, ranks: int, *, arch: str = "sm80", config: Configured | None = None
) -> Timeline:
    """Load, first step and steady step of one of ``ranks`` tensor-parallel ranks.

    Args:
        arch, config: as for ``trace``.

    Raises:
        NotModelled: adapters, quantised weights or tied embeddings, heads that the ranks do not divide, a model
            without a plan, or what one GPU cannot be traced with.
    """
    for wrong, what in (
        (recipe.lora is not None or recipe.quant is not None, "tensor parallelism with adapters or quantised weights"),
        (model.tied, "tensor parallelism of tied embeddings"),
        (bool(model.heads % ranks or model.kv_heads % ranks), f"{model.kv_heads} key/value heads on {ranks} ranks"),
    ):
        if wrong:
            raise NotModelled(f"{what} cannot be traced yet", fix="trace the recipe without it")
    refuse_untraced(recipe)
    ready(arch)
    with (
        warnings.catch_warnings(),
        foreign(config),
        quiet(),
        fake_cuda(attention(arch), arch) as recompute,
        process_group(ranks) as mesh,
        FakeTensorMode(allow_non_fake_inputs=False),
        known_grids(model, recipe),
        patch.object(torch.nn.utils, "clip_grad_norm_", _norm_of_locals),
    ):
        warnings.simplefilter("ignore")
        module = load_model(model, recipe, config=config)
        styles = plan(module)
        if not styles:
            raise NotModelled(
                f"transformers has no tensor-parallel plan for {model.family}", fix="use another sharding"
            )
        parallelize_module(module, mesh, styles)
        module = prepare_model(module, recipe)
        return record(ShardedTracker(recompute, arch, recipe.padded), module, model, recipe, ranks)
