"""What is known of one model: its shape, its parameters, and how its checkpoint stores them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finefit.catalog.models import nearest
from finefit.errors import InputError, UnknownModel
from finefit.formats import gguf, packing, safetensors
from finefit.formats.packing import Contents
from finefit.resolve.models import model_file, resolve_model
from finefit.workload.model import Model
from finefit.workload.parameters import parameter_count

_SHOWN = 8  # names suggested


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model.

    Attributes:
        parameters: exact, by the shapes of the architecture, a tied head once.
        contents: what its checkpoint holds; None where no weights are at hand.
        twice: the checkpoint stores a tied head beside the embedding, which is counted in its parameters.
    """

    model: Model
    parameters: int
    contents: Contents | None
    twice: bool = False

    def to_dict(self) -> dict[str, Any]:
        """``finefit models MODEL --json``, schema finefit/model/1."""
        model, held = self.model, self.contents
        return {
            "schema": "finefit/model/1",
            "name": model.name,
            "origin": model.origin,
            "family": model.family,
            "parameters": self.parameters,
            "layers": model.layers,
            "hidden": model.hidden,
            "vocab": model.vocab,
            "checkpoint_dtype": model.checkpoint_dtype.value,
            "checkpoint_quant": model.checkpoint_quant or None,
            "checkpoint": None
            if held is None
            else {
                "parameters": held.parameters,
                "bytes": held.bytes,
                "bytes_by_dtype": dict(held.stored),
                "quant": held.quant or None,
                "bits": held.bits,
                "group": held.group,
                "head_stored_twice": self.twice,
            },
        }


def model_facts(text: str, *, online: bool = False) -> ModelFacts:
    """The facts of a model.

    Args:
        text: as ``resolve_model`` takes it.
        online: read the headers of its files on the Hub where no weights are here.

    Raises:
        InputError, UnknownModel, HubUnreachable, NotModelled: as ``resolve_model``.
    """
    model = resolve_model(text, where="MODEL")
    held = _held(text, online)
    count = parameter_count(model)
    head = model.vocab * model.hidden
    twice = held is not None and model.tied and held.parameters == count + head
    return ModelFacts(model, count, held, twice)


def _held(text: str, online: bool) -> Contents | None:
    """What the checkpoint at hand holds."""
    file = model_file(text)
    if file is not None and file.suffix == ".gguf":
        return _of_gguf(file)
    if file is not None and file.suffix == ".safetensors":
        return packing.contents(safetensors.read(file))
    tensors = {} if file is None else safetensors.folder(file.parent)
    if not tensors and online:
        from finefit.resolve.hub import may_ask, remote_tensors

        if not may_ask(text.strip()):
            raise InputError(
                "this is no Hub id, or the environment keeps finefit offline", where="--online", fix="write org/name"
            )
        tensors = dict(remote_tensors(text.strip(), where="MODEL"))
    return packing.contents(tensors) if tensors else None


def _of_gguf(file: Path) -> Contents:
    header = gguf.read(file)
    stored: dict[str, int] = {}
    for kind, shape in header.tensors.values():
        stored[kind] = stored.get(kind, 0) + gguf.nbytes(kind, shape)
    return Contents(header.parameters, stored, "gguf")


def search(text: str) -> tuple[str, ...]:
    """Catalogue names that hold every word of a text, else those that look most like it.

    Raises:
        UnknownModel: none does.
    """
    from finefit.catalog.models import all_names

    words = text.lower().split()
    found = tuple(name for name in all_names() if all(word in name.lower() for word in words))
    found = found or nearest(text, _SHOWN)
    if not found:
        raise UnknownModel(f"no model's name looks like {text[:60]!r}", where="MODEL", fix="see finefit models")
    return found[: 5 * _SHOWN]
