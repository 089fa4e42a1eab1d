"""Files a config names: looked for where the tool would find them, and never required."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from finefit.errors import InputError
from finefit.formats import deepspeed
from finefit.formats.deepspeed import DeepSpeed
from finefit.formats.said import Said
from finefit.resolve.models import resolve_model
from finefit.resolve.notes import Notes
from finefit.resolve.settings import Settings
from finefit.resolve.shown import shown
from finefit.workload.model import Model

# ds_z3_config.json, zero2.json, zero_stage3_offload: the stage as people name their files
STAGE = re.compile(r"(?:z|zero|stage)[-_]?(?:stage[-_]?)?([0-3])(?![0-9])", re.I)
_AUTO: dict[str, object] = {"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}


def find(said: Said, name: str) -> Path | None:
    """A file named in a config: as written from the config's folder or any folder above it, or beside the config.

    Tools read such a path from the folder they are started in, which is the root of the project.
    """
    try:
        stated = Path(name).expanduser()
    except RuntimeError:  # "~user" of a user that is not here
        return None
    folder = said.path.absolute().parent
    candidates = [stated] if stated.is_absolute() else [base / stated for base in (folder, *folder.parents)]
    for candidate in (*candidates, folder / stated.name):
        try:
            if candidate.exists():
                return candidate
        except (OSError, ValueError):
            continue
    return None


def model_named(said: Said, text: str, where: str) -> Model:
    """The model a config names; a path is looked for like the other files the config names.

    Raises:
        InputError: an empty name, or a file that is no configuration of a model.
        UnknownModel: neither a path nor a known name.
        NotModelled: known, but not a decoder modelled yet.
    """
    is_path = text.startswith((".", "~", "/")) or "\\" in text or text.count("/") > 1
    local = find(said, text) if is_path else None
    return resolve_model(str(local or text), where=where)


def deepspeed_of(settings: Settings, notes: Notes) -> DeepSpeed | None:
    """The DeepSpeed configuration of a run; None where there is none.

    An absent file is no error: a stage that its name states is assumed, else the stage is unknown and the
    states are planned unsharded, which is the upper bound for one GPU.

    Raises:
        InputError: the key holds neither a path nor a mapping, or the file is malformed.
        NotModelled: the file asks for something unmodelled.
    """
    value = settings.raw("deepspeed")
    if value is None:
        return None
    return deepspeed_named(settings.said, value, settings.where("deepspeed"), notes)


def deepspeed_named(said: Said, value: object, where: str, notes: Notes) -> DeepSpeed:
    """The same for the value of whichever key a tool has for it: a path or a mapping.

    Raises:
        InputError: neither a path nor a mapping, or the file is malformed.
        NotModelled: the file asks for something unmodelled.
    """
    if isinstance(value, Mapping):
        return deepspeed.from_mapping(value, where)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{shown(value)} is not a path", where=where, fix="name a DeepSpeed JSON file")
    found = find(said, value.strip())
    if found is not None:
        return deepspeed.read(found)
    return _from_name(value.strip(), where, notes)


def _from_name(name: str, where: str, notes: Notes) -> DeepSpeed:
    base = name.replace("\\", "/").rpartition("/")[2]
    match = STAGE.search(base)
    if match is None:
        notes.warn(f"{where}: the file {name} is not here, so the ZeRO stage is unknown")
        notes.assume(
            f"{base} is not here: its sharding is unknown, and the states are planned unsharded (an upper bound)"
        )
        return replace(deepspeed.from_mapping(_AUTO, name), stage=None, assumed=True)
    stage, offload = int(match[1]), "offload" in base.lower()
    what = f"ZeRO stage {stage} with offload to the CPU" if offload else f"ZeRO stage {stage}"
    notes.warn(f"{where}: the file {name} is not here")
    notes.assume(
        f"{base} is not here: {what} is taken from its name, the buckets from LLaMA-Factory's example of that stage"
    )
    return replace(deepspeed.from_mapping(_example(stage, offload), name), assumed=True)


def _example(stage: int, offload: bool) -> dict[str, object]:
    """What LLaMA-Factory's examples/deepspeed/ds_z*_config.json say of one stage (hiyouga/LlamaFactory ff6d4d1)."""
    zero: dict[str, object] = {"stage": stage, "overlap_comm": False}
    if stage == 3:
        keys = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
        zero.update(dict.fromkeys(keys, "auto"))
    if offload:
        zero["offload_optimizer"] = {"device": "cpu"}
        if stage == 3:
            zero["offload_param"] = {"device": "cpu"}
    return {**_AUTO, "zero_optimization": zero}
