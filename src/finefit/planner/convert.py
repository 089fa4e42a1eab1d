"""A configuration of one tool as that of another, and every line whose meaning does not carry over."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from finefit.errors import FinefitError, InputError
from finefit.formats import config
from finefit.formats.edit_tree import yaml_value
from finefit.formats.said import Entry, Said
from finefit.formats.tools import TOOLS
from finefit.planner.levers import changed_fields
from finefit.resolve.any_config import resolve_any
from finefit.resolve.readings import reading_of
from finefit.resolve.spelled import LOOP, OPTIMIZERS, SPELLERS, Run, loop_key
from finefit.workload import Recipe
from finefit.workload.lora import lora_targets
from finefit.workload.sourced import Origin

_DATA = ("dataset", "datasets", "dataset_dir", "dataset_name", "template", "chat_template", "train_dataset")

_SILENT = {"do_train", "quantization_method"}  # of the first nothing else is planned, of the second only bitsandbytes


@dataclass(frozen=True, slots=True)
class Converted:
    """The new configuration as YAML, and what it does not say, a sentence a line."""

    text: str
    notes: tuple[str, ...]


class _Seen(Mapping[str, Entry]):
    """Entries that remember which of them a reader looked at."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.entries = entries
        self.names: set[str] = set()

    def __getitem__(self, key: str) -> Entry:
        self.names.add(key)
        return self.entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def convert(path: str | Path, to: str, *, tool: str | None = None) -> Converted:
    """A configuration in the words of another tool.

    Args:
        path: the configuration.
        to: the other tool, a key of ``SPELLERS``; tool: whose it is, where its content does not tell.

    Raises:
        InputError: not a tool to write for, or a configuration that cannot be read.
        NotModelled: a run whose recipe is not understood in full.
    """
    if to not in SPELLERS:
        raise InputError(f"{to[:40]!r} is no format to write", where="--to", fix=f"write one of {', '.join(SPELLERS)}")
    said = config.read(path, tool)
    seen = _Seen(said.entries)
    reading = reading_of(replace(said, entries=seen))
    found = resolve_any(path, tool=tool)
    recipe = found.recipe
    if recipe is None:
        raise InputError("the config states no whole recipe", where=str(path), fix="complete it")
    optimizer, alike = _optimizer(reading.text("optimizer") or "")
    everything = set(lora_targets(found.model, "all-linear"))
    targets = recipe.lora.targets if recipe.lora else ()
    run = Run(
        name=found.model_text,
        model=found.model,
        recipe=recipe,
        micro=reading.whole("micro_batch") or recipe.micro_batch,
        accum=reading.whole("grad_accum") or recipe.grad_accum,
        seq=reading.whole("seq_len") or recipe.seq_len,
        optimizer=optimizer,
        targets=() if set(targets) == everything else targets,
    )
    keys = SPELLERS[to](run)
    notes = [] if alike else [f"{reading.where('optimizer')}: this optimizer becomes {optimizer}"]
    stated: set[str] = set()
    for name in LOOP:
        old = loop_key(name, said.tool) if name != "warmup_ratio" else name
        entry = said.entries.get(old) if old else None
        if entry is None or entry.value is None or isinstance(entry.value, dict | list):
            continue
        share = name == "warmup_steps" and isinstance(entry.value, float) and entry.value < 1
        new = loop_key("warmup_ratio" if share else name, to)
        seen.names.add(old)
        stated.add(name)
        if new:
            _put(keys, new, _number(entry.value))
        else:
            notes.append(f"{entry.place}: {old} has no key in {TOOLS[to].title}")
    if recipe.epochs and "num_train_epochs" not in stated:  # the tools' defaults differ
        _put(keys, loop_key("num_train_epochs", to), recipe.epochs)
    text = "".join(f"{key}: {yaml_value(value)}\n" for key, value in keys.items())
    told = {source.detail for source in found.sources.values() if source.origin is Origin.STATED}
    seen.names |= {key for key, entry in said.entries.items() if Path(entry.place).name in told} | _SILENT
    notes += _left(said, seen.names)
    notes += _differences(text, to, recipe)
    return Converted(text, tuple(dict.fromkeys(notes)))


def _optimizer(name: str) -> tuple[str, bool]:
    """The optimizer as transformers' ``optim`` calls it, and whether it is the same one."""
    by_class = {key.rpartition(".")[2]: value for key, value in OPTIMIZERS.items()}
    if name in by_class:
        return by_class[name], True
    return (name, True) if name.islower() else ("adamw_torch_fused", not name)


def _put(keys: dict[str, object], dotted: str, value: object) -> None:
    section, _, key = dotted.rpartition(".")
    if not section:
        keys[key] = value
    elif isinstance(held := keys.setdefault(section, {}), dict):
        held[key] = value


def _number(value: object) -> object:
    """A number that YAML 1.1 made text ("2e-5"), as one; all else as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _line(item: tuple[str, Entry]) -> int:
    number = item[1].place.rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def _left(said: Said, seen: set[str]) -> list[str]:
    """Keys that nothing of the new configuration stands for, each with its line."""
    out = []
    for key, entry in sorted(said.entries.items(), key=_line):
        top = key.partition(".")[0]
        if top in _DATA:
            if key == top:
                out.append(
                    f"{entry.place}: {key} does not carry over: each tool names and formats its data in its own way"
                )
            continue
        inner = any(other.startswith(f"{key}.") for other in said.entries)
        if key not in seen and not inner and top not in seen and entry.value is not None:
            out.append(f"{entry.place}: {key} does not carry over")
    return out


def _differences(text: str, tool: str, before: Recipe) -> list[str]:
    """Where the new configuration, read as its tool reads it, asks for another recipe."""
    title = TOOLS[tool].title
    if tool == "torchtune":
        return [
            f"{title} names model, tokenizer and checkpoint as components: lay these keys over its config of the model"
        ]
    start = {"trl": f"start it with trl {before.task} --config FILE"}.get(tool)
    out = [] if start is None else [start]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "converted.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            after = resolve_any(file, tool=tool).recipe
        except FinefitError as error:
            return [*out, f"{title} would not run it so: {error.what}"]
    if after is None:
        return out
    same = replace(after, task=before.task, stack=before.stack, sources=MappingProxyType({}))
    changed = changed_fields(before, same)
    return [*out, *(f"{name} is {old} here and {new} with {title}" for name, (old, new) in changed.items())]
