"""Each part of the peak as formulas with the numbers put in, and where each formula comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from finefit.memory.context import cublas_workspace
from finefit.memory.estimate import at_peak
from finefit.memory.explain import Term, merged, terms_at_peak
from finefit.memory.timeline import CATEGORIES
from finefit.planner.message import Message, message
from finefit.step.size import symbol
from finefit.workload import Model, Recipe


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the peak: its bytes are the sum of its terms'."""

    name: str
    nbytes: int
    source: Message
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Parts whose bytes add up to the allocated peak, and the values of the symbols in their formulas."""

    parts: tuple[Part, ...]
    symbols: Mapping[str, int]

    def to_list(self) -> list[dict[str, Any]]:
        """``explain`` of the JSON contract."""
        return [
            {
                "part": part.name,
                "bytes": part.nbytes,
                "source": str(part.source),
                "terms": [
                    {
                        "op": term.op,
                        "module": term.module,
                        "count": term.count,
                        "elements": term.size.numel,
                        "symbols": list(term.size.symbols),
                        "sharded": term.size.sharded,
                        "bytes_per_element": term.size.itemsize,
                        "bytes": term.nbytes,
                        "assumed": term.assumed,
                    }
                    for term in part.terms
                ],
            }
            for part in self.parts
        ]


def explain(model: Model, recipe: Recipe, arch: str | None) -> Explanation:
    """The allocated peak of ``memory.estimate``, term by term.

    Raises:
        NotModelled: as ``memory.estimate``.
    """
    events, dims = at_peak(model, recipe, workspace=cublas_workspace(arch))
    terms = merged(terms_at_peak(events, dims), dims)
    sources = _sources(model, recipe)
    parts = []
    for name in CATEGORIES:
        own = tuple(term for term in terms if term.part == name)
        if own:
            parts.append(Part(name, sum(term.nbytes for term in own), sources[name], own))
    names = sorted({name for term in terms for name in term.size.symbols})
    values = {name: symbol(name, dims) for name in names}
    if any(term.size.sharded for term in terms):
        values["n"] = dims.n
    return Explanation(tuple(parts), values)


def _sources(model: Model, recipe: Recipe) -> Mapping[str, Message]:
    version = recipe.stack.get("transformers", "5.24.0")
    code = message("transformers {version}, modeling_{family}.py", version=version, family=model.family)
    return {
        "weights": _weights(recipe),
        "adapters": message("PEFT: r·(inputs + outputs) for each adapted matrix, and whole modules that are trained"),
        "gradients": message("one number for each trained parameter, in its type, from its backward to zero_grad"),
        "optimizer": message(
            "states that {optimizer} keeps for each trained parameter", optimizer=recipe.optimizer.name
        ),
        "activations": message("tensors that autograd keeps or that the peak is in the middle of: {code}", code=code),
        "logits": message(
            "rows of the vocabulary in the head and the loss: transformers {version}, loss_utils.py", version=version
        ),
        "buffers": message("inputs, masks and tables of positions: {code}", code=code),
        "workspace": message("temporaries inside kernels: source of PyTorch 2.13 and bitsandbytes 0.50"),
    }


def _weights(recipe: Recipe) -> Message:
    quant = recipe.quant
    if quant is None:
        return message("parameters counted from the model's dimensions, in the type they lie in on the GPU")
    if quant.kind == "int8":
        return message("bitsandbytes 0.50.2: 1 byte a weight, one fp32 constant a row; others as they lie")
    if quant.double:
        return message(
            "bitsandbytes 0.50.2: 0.5 B a weight, 1 B for each 64, 4 B for each 16,384 weights; others as they lie"
        )
    return message("bitsandbytes 0.50.2: half a byte a weight, 4 bytes for each 64 weights; others as they lie")
