"""A model that nobody knows by name, planned as the one known architecture that its name points to.

Fine-tuned checkpoints are called after the model they come from: "zephyr-7b-sft-full", "llama-3-70b-fp16". Where every
known model whose name begins with the same family and has the same size has layers of the same sizes, the first of
them is taken and said; where two differ, none is. A name that says a checkpoint is stored quantised is not taken.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace

from finefit.catalog.models import all_names, find
from finefit.errors import FinefitError
from finefit.resolve.notes import Notes
from finefit.workload.model import Model

_SIZE = re.compile(r"(?:a)?\d+(?:\.\d+)?[bm]")
_PACKED = frozenset({"gptq", "awq", "gguf", "aqlm", "exl2", "int4", "int8", "fp8", "mlx", "4bit", "8bit", "bnb"})
_PUBLISHERS = frozenset({"meta"})  # written before the family's name, or left out


def alike(text: str, where: str, notes: Notes, *, quantised: bool = False) -> Model | None:
    """The architecture of the models that share family and sizes with ``text``; None where there is no single one.

    ``quantised``: the run holds its base in 4 or 8 bits, however the checkpoint stores it.
    """
    wanted = _key(text)
    if wanted is None or (not quantised and _PACKED & set(_words(text))):
        return None
    names = [name for name in all_names() if _key(name) == wanted]
    found: dict[tuple[object, ...], Model] = {}
    for name in names:
        with suppress(FinefitError):  # known, and not modelled
            model = find(name)
            found.setdefault(_layers(model), model)
    if len(found) != 1:
        return None
    model = next(iter(found.values()))
    notes.assume(
        f"{where}: {text[:80]} is not known by name; it is planned as {model.name}, which has the same family and size "
        "in its name (give the path of its config.json to be exact)"
    )
    return replace(model, name=text)


def _layers(model: Model) -> tuple[object, ...]:
    """What the layers of a model are made of; vocabularies and context lengths differ within a family."""
    sizes = (model.hidden, model.layers, model.heads, model.kv_heads, model.head_dim, model.ffn)
    return (model.family, *sizes, model.experts, model.tower)


def _words(text: str) -> list[str]:
    base = text.replace("\\", "/").rstrip("/").rpartition("/")[2].lower()
    return [word for word in re.split(r"[-_\s]+", base) if word]


def _key(text: str) -> tuple[str, tuple[str, ...]] | None:
    """Family and sizes of a name: ("llama3", ("70b",)); None without a size."""
    words = _words(text)
    first = next((index for index, word in enumerate(words) if _SIZE.fullmatch(word)), None)
    if not first:
        return None
    family = "".join(word for word in words[:first] if word not in _PUBLISHERS)
    return family, tuple(word for word in words[first:] if _SIZE.fullmatch(word))
