"""A folder of real configs with a MANIFEST.csv: its rows, its words in canonical terms, its own known errors.

The manifest is written by people, in words of its own; ``meaning`` is the only place that knows them. Columns that
name files are inputs (file, repo, path, kind, companion); the others are what a reading is compared with.
"""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from finefit.errors import InputError
from finefit.resolve.readings.reading import MODEL_MAXIMUM

NAME = "MANIFEST.csv"
KNOWN_ERRORS = Path(__file__).parent / "data" / "manifest_errors.csv"
# Canonical field → column
COLUMNS: Mapping[str, str] = {
    "model": "model",
    "task": "task",
    "method": "method",
    "rank": "rank",
    "quant_bits": "quant_bits",
    "micro_batch": "micro_batch",
    "grad_accum": "grad_accum",
    "seq_len": "seq_len",
    "packing": "packing",
    "optimizer": "optimizer",
    "checkpointing": "grad_ckpt",
    "strategy": "strategy",
    "offload": "offload",
    "gpus": "gpus",
}
_INPUTS = ("file", "repo", "path", "kind", "companion")
_STRATEGIES = {"single": "none", "ddp": "none", "single/ddp": "none", "from accelerate config": None, "fsdp": "fsdp1"}
_CHECKPOINTING = {"on": "full", "off": "none"}
_OFFLOADED = {"param": "params", "grad": "gradients", "optimizer": "optimizer", "activations": "activations"}


@dataclass(frozen=True, slots=True)
class KnownError:
    """A cell of the manifest that the file itself contradicts, by the line quoted."""

    file: str
    field: str
    line: str
    why: str


def rows(folder: Path) -> list[dict[str, str]]:
    """The rows of a folder's manifest.

    Raises:
        InputError: there is none, or it lacks a column that is needed.
    """
    file = folder / NAME
    try:
        with file.open(encoding="utf-8", newline="") as handle:
            found = list(csv.DictReader(handle))
    except OSError as error:
        raise InputError(f"cannot be read: {error}", where=str(file), fix=f"name a folder that holds {NAME}") from error
    lacking = [c for c in (*_INPUTS, *COLUMNS.values()) if not found or c not in found[0]]
    if lacking:
        raise InputError(f"no column {lacking[0]}", where=str(file), fix="add it")
    return found


def known_errors() -> list[KnownError]:
    """The cells that are known to be wrong."""
    with KNOWN_ERRORS.open(encoding="utf-8", newline="") as handle:
        return [KnownError(**row) for row in csv.DictReader(handle)]


@contextmanager
def staged(folder: Path, found: list[dict[str, str]]) -> Iterator[dict[str, Path]]:
    """The files under their original paths, one tree a repository, so that companions are where tools look.

    Gives the staged path by the row's ``file``.
    """
    with TemporaryDirectory() as temporary:
        out = {}
        for row in found:
            target = Path(temporary) / row["repo"].replace("/", "--") / row["path"]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / row["file"], target)
            out[row["file"]] = target
        yield out


def launcher(row: Mapping[str, str]) -> str | None:
    """The accelerate file a row says its run is launched with: an input, which nobody could read from the config."""
    word = row["companion"].split(" ")[0]
    return word if "accelerate" in word and word.endswith((".yaml", ".yml", ".json")) else None


def meaning(field: str, cell: str, row: Mapping[str, str]) -> object:
    """A cell in canonical terms; None where it says nothing.

    Raises:
        InputError: a word that is not known.
    """
    text = cell.strip()
    if not text:
        return None
    if field == "gpus":
        named = re.fullmatch(r"[A-Za-z][\w-]*:(\d+)", text)  # "H100:1" a node
        return int(named[1]) * int(row.get("nodes") or 1) if named else int(text)
    if field in ("rank", "quant_bits", "micro_batch", "grad_accum", "seq_len"):
        return int(text) if text.isdigit() else MODEL_MAXIMUM if text.startswith("model ") else text
    if field == "packing":
        return text.split(" ")[0]
    if field == "optimizer":
        word = re.sub(r"\(.*?\)|\bin_bwd\b|\blayerwise\b|^bnb\.", "", text).strip().lower()
        return word or None
    if field == "checkpointing":
        word = re.sub(r"\(.*?\)", "", text).strip()
        return _CHECKPOINTING.get(word, word)
    if field == "strategy":
        if text == "fsdp(1)":
            return "fsdp1"
        word = re.sub(r"\s*\(.*?\)", "", text)
        return _STRATEGIES.get(word, word)
    if field == "offload":
        return _offload(text)
    return text


def _offload(text: str) -> tuple[str, ...]:
    if text == "none":
        return ()
    out = set()
    for part in re.sub(r"\(.*?\)|:cpu", "", text).split(";"):
        if "rollout" in part:  # moved away while text is generated, not during the step
            continue
        if "experts" in part:
            out.add("experts")
            continue
        reference = "ref " in part
        for word in re.findall(r"param|grad|optimizer|activations", part):
            out.add("ref_params" if reference else _OFFLOADED[word])
    return tuple(sorted(out))


def agrees(field: str, ours: object, theirs: object) -> bool:
    """Whether a reading says what a cell means."""
    if field == "optimizer" and isinstance(ours, str):
        ours = ours.lower()
    if field == "strategy" and theirs == "deepspeed":  # the cell leaves the stage to the companion
        return isinstance(ours, str) and ours.startswith("zero")
    return ours == theirs
