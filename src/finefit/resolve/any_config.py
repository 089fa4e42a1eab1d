"""From the configuration of any tool finefit reads to a whole workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from finefit.errors import InputError, NotModelled, UnknownModel
from finefit.formats import config
from finefit.formats.said import Said
from finefit.formats.tools import TOOLS
from finefit.resolve.alike import alike
from finefit.resolve.companions import model_named
from finefit.resolve.config import overridden, resolve_config
from finefit.resolve.data import file_lengths
from finefit.resolve.images import of_said, pictured
from finefit.resolve.notes import Notes
from finefit.resolve.reading_recipe import deepspeed_mapping, recipe_of, refuse
from finefit.resolve.readings import Reading, cloud, reading_of
from finefit.resolve.readings.shared import packed_bits
from finefit.resolve.readings.torchtitan import FLAVORS
from finefit.resolve.resolved import Resolved
from finefit.resolve.saving_keys import saving_said
from finefit.workload.lengths import Lengths
from finefit.workload.model import Model


def resolve_any(
    path: str | Path,
    *,
    tool: str | None = None,
    overrides: Mapping[str, object] | None = None,
    data: str | Path | None = None,
    lengths: Lengths | None = None,
) -> Resolved:
    """A configuration or launch script as a workload, each field with its source.

    Args:
        path: the file.
        tool: whose it is ("axolotl"); told by its content if left out.
        overrides: the tool's own keys with other values; a text is read as YAML.
        data: a data file that stands for the data the config names.
        lengths: lengths stated by flags; they win over ``data``.

    Raises:
        InputError: the file or a value in it is wrong, or the model is unknown.
        NotModelled: the file is understood and finefit does not model the run.
    """
    said = config.read(path, tool)
    if said.tool == "llamafactory":
        changes = {**_launched(said), **(overrides or {})}
        return resolve_config(path, tool=tool, overrides=changes, data=data, lengths=lengths)
    if overrides:
        said = overridden(said, overrides, TOOLS[said.tool].dialect)
    reading = reading_of(said)
    inner = cloud.command_of(said) if reading.kind == "task" else None
    if inner is not None:  # a rented machine's task: the run is that of the command inside
        said, reading = inner, replace(reading, tool=inner.tool, version=inner.version)
    refuse(reading)
    notes = Notes(assumptions=list(reading.assumptions), warnings=list(reading.warnings))
    model = _model(reading, said, notes)
    notes.source("model", reading.values["model"].source)
    if lengths is None:
        lengths = Lengths() if data is None else _file(data, reading, notes)
    recipe = recipe_of(reading, said, model, lengths, notes)
    if reading.text("loss") == "fused_linear" and not reading.get("fused_kernels") and reading.tool == "axolotl":
        notes.assume("Cut Cross Entropy is planned as Liger's fused loss, which needs a little more memory")
    count = reading.whole("gpus")
    if count is not None and count > 1:
        where = reading.values["gpus"].source.detail
        notes.assume(f'the run is launched on {count} GPUs ({where}); state them: --gpu "{count}x CARD"')
    resolved = Resolved(
        model=model,
        model_text=reading.text("model") or "",
        recipe=recipe,
        lengths=lengths,
        origin=str(path),
        sources=MappingProxyType(dict(notes.sources)),
        assumptions=tuple(notes.assumptions),
        warnings=tuple(notes.warnings),
        saving=saving_said(said, reading),
    )
    return pictured(resolved, lambda: of_said(said))


def _file(data: str | Path, reading: Reading, notes: Notes) -> Lengths:
    return file_lengths(data, notes, model=reading.text("model") or "", cutoff=reading.whole("seq_len"))


def _launched(said: Said) -> dict[str, object]:
    """LLaMA-Factory's own keys for the sharding that the file of ``accelerate launch`` sets up."""
    if "config_file" not in said.launch:
        return {}
    reading = reading_of(said)
    if reading.refusals:
        refuse(reading)
    if reading.get("parallel"):
        raise NotModelled(
            "LLaMA-Factory with the parallel sizes of an accelerate file is not modelled yet",
            where=reading.where("parallel"),
            fix="remove parallelism_config, or plan the run as that of TRL",
        )
    strategy, offload = reading.text("strategy") or "", reading.get("offload") or ()
    held = offload if isinstance(offload, tuple) else ()
    if strategy.startswith("fsdp"):
        words = ["full_shard", "auto_wrap", *(["offload"] if held else [])]
        return {"fsdp": words, "fsdp_config": {"version": int(strategy[4])}}
    return {"deepspeed": deepspeed_mapping(reading)} if strategy.startswith("zero") else {}


def _model(reading: Reading, said: Said, notes: Notes) -> Model:
    text, where = reading.text("model") or "", reading.where("model")
    quantised = reading.get("quant_bits") is not None
    if packed_bits(text) and not quantised:
        raise InputError(
            "a checkpoint stored quantised is not modelled yet", where=where, fix="name the 16-bit model and plan QLoRA"
        )
    known = FLAVORS.get(text.lower(), text) if reading.tool == "torchtitan" else text
    try:
        return model_named(said, known, where)
    except (UnknownModel, InputError) as unknown:
        found = alike(text, where, notes, quantised=quantised)
        if found is None:
            raise unknown
        return found
