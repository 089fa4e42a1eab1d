"""The part of a model that one GPU holds where a copy of it is cut over several.

Tensor parallelism divides heads, feed-forward widths and, where the stack does so, the vocabulary (Shoeybi 2019,
arXiv 1909.08053, section 3); key and value heads are repeated where there are fewer than ranks. Pipeline parallelism
divides the layers (Narayanan 2021, arXiv 2104.04473), expert parallelism the experts. Context parallelism divides
the tokens of a row, which is no part of the model: ``memory.estimate.dims_of``.
"""

from __future__ import annotations

from dataclasses import replace

from finefit.errors import InputError
from finefit.workload.model import Experts, Model
from finefit.workload.recipe import Parallel


def model_on_rank(model: Model, parallel: Parallel) -> Model:
    """The model whose tensors are those of the fullest rank: embedding and head stand on one stage.

    Raises:
        InputError: a degree that does not divide what it has to divide.
    """
    tensor, stages = parallel.tensor, parallel.pipeline
    if tensor == stages == parallel.expert == 1:
        return model
    _divides(model.heads, tensor, f"tensor parallelism over {tensor} GPUs", f"the {model.heads} heads of {model.name}")
    layers = -(-model.layers // stages)
    return replace(
        model,
        layers=layers,
        layer_types=model.layer_types[:layers],
        unrotated=tuple(index for index in model.unrotated if index < layers),
        shapes=model.shapes[:layers],
        heads=model.heads // tensor,
        kv_heads=max(1, model.kv_heads // tensor),
        ffn=-(-model.ffn // tensor),
        vocab=-(-model.vocab // tensor) if parallel.vocabulary else model.vocab,
        experts=None if model.experts is None else _experts(model, model.experts, parallel, layers),
    )


def _experts(model: Model, experts: Experts, parallel: Parallel, layers: int) -> Experts:
    ranks = parallel.expert
    _divides(experts.count, ranks, f"expert parallelism over {ranks} GPUs", f"the {experts.count} experts")
    count = experts.count // ranks
    return replace(
        experts,
        count=count,
        width=-(-experts.width // parallel.tensor),
        shared=-(-experts.shared // parallel.tensor),
        dense_layers=tuple(index for index in experts.dense_layers if index < layers),
    )


def _divides(total: int, ranks: int, what: str, whole: str) -> None:
    if total % ranks:
        raise InputError(f"{what} does not divide {whole}", fix="take a divisor")
