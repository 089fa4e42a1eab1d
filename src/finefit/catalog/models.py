"""Models known by name: ``data/models.csv``, one row a model.

The columns are keys of the model's config.json as transformers names them, so a row is read by the
same code as a file and gives the same answer. Other columns: ``aliases`` (names of the same shape,
``name=method`` where those weights are quantised), ``other_keys`` (``key=value`` pairs without a
column of their own), ``parameters`` (exact, a tied head once), ``verified`` (against a published
figure; see docs) and ``source``. No field holds a comma or a quote, so a row is one ``split``.
Only the names are read to find a model; the row that matches is parsed alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from finefit.errors import DataError, InputError, NotModelled, UnknownModel
from finefit.formats.hf_config import model_from_config
from finefit.workload.model import Model

_FILE = Path(__file__).parent / "data" / "models.csv"

# Organisations that republish others' weights under the same last name, unchanged in shape.
_MIRRORS = frozenset(["unsloth", "nousresearch", "llm-research", "ai-modelscope", "modelscope", "zhipuai"])
# Endings by which quantised copies are named, and the method they stand for.
_QUANTISED = {
    "-gptq-int4": "gptq",
    "-gptq-int8": "gptq",
    "-gptq": "gptq",
    "-int4": "gptq",  # Qwen 1 chat models
    "-int8": "gptq",
    "-awq": "awq",
    "-fp8": "fp8",
    "-unsloth-bnb-4bit": "bitsandbytes",
    "-bnb-4bit": "bitsandbytes",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the catalogue, as listed.

    Attributes:
        name: Hub id; aliases: other ids of the same shape.
        parameters: exact count, None where nobody counted it.
        verified: "yes" when the count agrees with a published one within 0.5 %, "explained" when the
            difference is accounted for, else how far it was checked.
    """

    name: str
    aliases: tuple[str, ...]
    model_type: str
    parameters: int | None
    verified: str
    source: str


@dataclass(frozen=True, slots=True)
class _Match:
    row: int
    name: str
    quant: str = ""


def find(name: str, *, where: str | None = None) -> Model:
    """The model of that name.

    Accepted, in this order and without regard to case: a Hub id or alias; its last part
    ("Llama-3.1-8B-Instruct"), alone or under a known mirror; either with the ending of a quantised
    copy ("…-AWQ", "…-GPTQ-Int4"); the last part without punctuation ("llama3-8b").

    Raises:
        UnknownModel: no such model; ``fix`` lists the nearest names.
        NotModelled: known, but not a decoder finefit models yet.
    """
    match = _match(name.strip())
    if match is None:
        raise UnknownModel(f"{name!r} is not a model finefit knows", where=where, fix=_advice(name))
    cells = _cells(match.row)
    config = _config(cells)
    try:
        model = model_from_config(config, match.name, "catalogue")
    except NotModelled as error:
        count = f" ({int(cells['parameters']):,} parameters)" if cells["parameters"] else ""
        raise NotModelled(error.what + count, where=where, fix=error.fix) from None
    except InputError as error:
        raise DataError(f"catalogue row {match.name} is damaged: {error.what}", where=_FILE.name) from error
    return replace(model, checkpoint_quant=match.quant) if match.quant else model


def nearest(name: str, count: int = 3) -> tuple[str, ...]:
    """Catalogue names that look most like ``name``."""
    import difflib  # only when something went wrong

    names = _names()
    last = {key.rpartition("/")[2]: key for key in names}
    key = name.strip().lower()
    close = difflib.get_close_matches(key, names, n=count, cutoff=0.6)
    close += [last[n] for n in difflib.get_close_matches(key.rpartition("/")[2], last, n=count, cutoff=0.5)]
    return tuple(dict.fromkeys(names[n].name for n in close))[:count]


def all_names() -> tuple[str, ...]:
    """Every name and alias, sorted."""
    return tuple(sorted((match.name for match in _names().values()), key=str.lower))


def entries() -> Iterator[Entry]:
    """Every row, modelled or not."""
    for row in range(1, len(_lines())):
        cells = _cells(row)
        aliases = tuple(alias.partition("=")[0] for alias in cells["aliases"].split(";") if alias)
        count = int(cells["parameters"]) if cells["parameters"] else None
        yield Entry(cells["name"], aliases, cells["model_type"], count, cells["verified"], cells["source"])


def all_models() -> Iterator[Model]:
    """Every model that is modelled, one a row, in the order of the file (families together)."""
    for entry in entries():
        try:
            yield find(entry.name)
        except NotModelled:
            continue


def _match(name: str) -> _Match | None:
    key = name.lower()
    found = _by_name(key)
    if found:
        return found
    for ending, method in _QUANTISED.items():
        if not key.endswith(ending):
            continue
        bare = key.removesuffix(ending)
        base = _by_name(bare) or _last_names().get(
            bare.rpartition("/")[2]
        )  # a packed copy has the shape it was made from
        if base:
            return _Match(base.row, name, method)
    return None


def _by_name(key: str) -> _Match | None:
    names = _names()
    if key in names:
        return names[key]
    organisation, _, last = key.rpartition("/")
    if organisation and organisation not in _MIRRORS:
        return None  # someone else's model of that name may have another shape
    return _last_names().get(last) or _loose_names().get(_loose(last))


def _advice(name: str) -> str:
    close = nearest(name)
    like = f"the nearest are {', '.join(close)}; or " if close else ""
    return f"{like}give the path of its config.json"


@lru_cache(maxsize=1)
def _lines() -> list[str]:
    try:
        return _FILE.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"the model catalogue cannot be read: {error}", where=str(_FILE)) from error


@lru_cache(maxsize=1)
def _names() -> dict[str, _Match]:
    """Lower-case id or alias → row."""
    out: dict[str, _Match] = {}
    for row, line in enumerate(_lines()):
        if row == 0:
            continue
        name, aliases, _ = line.split(",", 2)
        out[name.lower()] = _Match(row, name)
        for alias in aliases.split(";") if aliases else ():
            spelled, _, quant = alias.partition("=")
            out[spelled.lower()] = _Match(row, spelled, quant)
    return out


@lru_cache(maxsize=1)
def _last_names() -> dict[str, _Match]:
    return _unambiguous((key.rpartition("/")[2], match) for key, match in _names().items())


@lru_cache(maxsize=1)
def _loose_names() -> dict[str, _Match]:
    return _unambiguous((_loose(key.rpartition("/")[2]), match) for key, match in _names().items())


def _loose(key: str) -> str:
    """Letters and digits, without the words people leave out ("Meta-Llama-3-8B", "Llama-2-7b-hf")."""
    bare = "".join(c for c in key if c.isalnum())
    return bare.removeprefix("meta").removesuffix("hf")


def _unambiguous(pairs: Iterator[tuple[str, _Match]]) -> dict[str, _Match]:
    """First match of each key; keys that mean rows of different shape are left out."""
    out: dict[str, _Match] = {}
    twice: set[str] = set()
    for key, match in pairs:
        known = out.setdefault(key, match)
        if (known.row, known.quant) != (match.row, match.quant):
            twice.add(key)
    return {key: match for key, match in out.items() if key not in twice}


def _cells(row: int) -> dict[str, str]:
    header, cells = _lines()[0].split(","), _lines()[row].split(",")
    if len(header) != len(cells):
        raise DataError(f"row {row + 1} has {len(cells)} fields, the header {len(header)}", where=_FILE.name)
    return dict(zip(header, cells, strict=True))


_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)


def _config(cells: dict[str, str]) -> dict[str, Any]:
    """The row as the config.json it stands for."""
    config: dict[str, Any] = {"model_type": cells["model_type"]}
    config.update({key: int(cells[key]) for key in _SIZES if cells[key]})
    # An empty window is one that the model's file sets to null: the class default must not come back.
    config["sliding_window"] = int(cells["sliding_window"]) if cells["sliding_window"] else None
    if cells["tie_word_embeddings"]:
        config["tie_word_embeddings"] = cells["tie_word_embeddings"] == "true"
    if cells["dtype"]:
        config["dtype"] = cells["dtype"]
    for pair in cells["other_keys"].split(";") if cells["other_keys"] else ():
        key, _, text = pair.partition("=")
        if key == "architecture":
            config["architectures"] = [text]
        elif key == "quant_method":
            config["quantization_config"] = {"quant_method": text}
        else:
            _put(config, key, text)
    return config


def _put(config: dict[str, Any], key: str, text: str) -> None:
    """A key of its own; one inside a block is written ``block.key``, the items of a list are joined by bars."""
    *blocks, last = key.split(".")
    for block in blocks:
        config = config.setdefault(block, {})
    items = [] if text.startswith("[") else text.split("|")
    config[last] = [_value(item) for item in items if item] if len(items) > 1 else _value(text)


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if text == "null":
        return None
    if text.startswith("["):  # [a*3|b]: three times a, then b
        parts = (part.partition("*") for part in text.strip("[]").split("|"))
        return [_value(word) for word, _, times in parts for _ in range(int(times or 1))]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
