"""What several tools have in common: DeepSpeed and FSDP settings, GPU counts of launchers, words of comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path

from finefit.errors import InputError
from finefit.formats import config, json_file, shell, yaml11
from finefit.formats.launch import launches
from finefit.formats.said import Entry, Said
from finefit.resolve.companions import STAGE, find
from finefit.resolve.readings.draft import Draft
from finefit.workload.sourced import Origin, Source

_NODES_OF = re.compile(r"(\d+)\s+nodes?\s+of\s+(\d+)", re.I)
_TIMES = (
    re.compile(r"(?<![\w.])(\d+)\s*[*x×]\s*\d+(?:\.\d+)?\s*G(?:i?B)?\b", re.I),  # "8 * 80GiB"
    re.compile(r"(?<![\w.])\d+(?:\.\d+)?\s*G(?:i?B)?\s*[*x×]\s*(\d+)\b", re.I),  # "14GiB * 4"
    re.compile(r"\bpreset for (\d+) [\w-]* ?GPUs?\b", re.I),  # torchtitan: "a preset for 128 H100 GPUs"
)
_NAMED = re.compile(r"fsdp[12]|zero[-_]?[1-3]", re.I)  # fsdp2_config.yaml, zero3.yaml
_WITH = re.compile(r"\b(?:with|using)\s+(?:DeepSpeed\s+)?(FSDP\s?[12]?|ZeRO[- ]?[0-3])\b", re.I)
FSDP_OFFLOAD = ("gradients", "optimizer", "params")  # FSDP's CPU offload takes all three along


def deepspeed(draft: Draft, *keys: str) -> bool:
    """Strategy and offload of a DeepSpeed setting (path, mapping or preset name); False where there is none."""
    found = draft.entry(*keys)
    if found is None or found[1].value is False:
        return False
    key, entry = found
    place = f"{entry.place}: {key}"
    mapping, name = _deepspeed_mapping(draft, entry)
    draft.put("deepspeed", mapping if name == entry.value else entry.value, key)
    if mapping is None:
        draft.put("deepspeed", entry.value, key)
        match = STAGE.search(name.replace("\\", "/").rpartition("/")[2])
        if match is None:
            draft.assume("strategy", None, f"{name} is not here, so the ZeRO stage is unknown", place)
            return True
        offload: tuple[str, ...] = ()
        if "offload" in name.lower():
            offload = ("optimizer", "params") if match[1] == "3" else ("optimizer",)
        why = f"{name} is not here: the ZeRO stage is taken from its name"
        draft.assume("strategy", f"zero{match[1]}", why, place)
        draft.assume("offload", tuple(offload), why, place)
        return True
    stage, offload = zero(mapping, name)
    draft.put("strategy", f"zero{stage}", key)
    draft.put("offload", offload, key)
    return True


# ms-swift 4.6.0 swift/config/*.json: what a preset's name stands for
_SMALL: dict[str, object] = {"overlap_comm": False, "allgather_bucket_size": 2e8, "reduce_bucket_size": 2e8}
_LARGE: dict[str, object] = {
    "stage": 3,
    "overlap_comm": False,
    "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto",
}
_CPU = {"device": "cpu"}
_HALVES: dict[str, object] = {"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}
SWIFT_PRESETS: Mapping[str, Mapping[str, object]] = {
    "zero0": {**_HALVES, "zero_optimization": {**_SMALL, "stage": 0}},
    "zero1": {**_HALVES, "zero_optimization": {**_SMALL, "stage": 1}},
    "zero2": {**_HALVES, "zero_optimization": {**_SMALL, "stage": 2}},
    "zero3": {**_HALVES, "zero_optimization": _LARGE},
    "zero2_offload": {**_HALVES, "zero_optimization": {**_SMALL, "stage": 2, "offload_optimizer": _CPU}},
    "zero3_offload": {
        **_HALVES,
        "zero_optimization": {**_LARGE, "offload_optimizer": _CPU, "offload_param": _CPU},
    },
}


def _deepspeed_mapping(draft: Draft, entry: Entry) -> tuple[Mapping[str, object] | None, str]:
    value = entry.value
    if isinstance(value, Mapping):
        return value, entry.place
    if not isinstance(value, str) or not value.strip():
        raise InputError("this is neither a path nor a mapping", where=entry.place, fix="name a DeepSpeed JSON file")
    name = value.strip()
    if draft.said.tool == "ms-swift" and name in SWIFT_PRESETS:
        return SWIFT_PRESETS[name], name
    found = find(draft.said, name)
    if found is None or not found.is_file():
        return None, name
    document = json_file.load_mapping(yaml11.read_text(found), str(found))
    return {key: item for key, item, _ in document.items}, str(found)


def zero(mapping: Mapping[str, object], name: str) -> tuple[int, tuple[str, ...]]:
    """Stage and offloaded states of a DeepSpeed mapping.

    Raises:
        InputError: no stage from 0 to 3.
    """
    section = mapping.get("zero_optimization", {})
    if section is True:  # deepspeed 0.19.8 runtime/zero/config.py: deprecated spelling of stage 1
        return 1, ()
    if not isinstance(section, Mapping):
        raise InputError("zero_optimization is not an object", where=name, fix='write {"stage": 2}')
    stage = section.get("stage", 0)
    if isinstance(stage, bool) or stage not in (0, 1, 2, 3):
        raise InputError("zero_optimization.stage is 0, 1, 2 or 3", where=name, fix="correct it")
    offload = []
    for key, word, old in (
        ("offload_optimizer", "optimizer", "cpu_offload"),
        ("offload_param", "params", "cpu_offload_params"),
    ):
        part = section.get(key)
        device = part.get("device", "none") if isinstance(part, Mapping) else None
        if device in ("cpu", "nvme") or section.get(old) is True:
            offload.append(word)
    return int(stage), tuple(offload)


def fsdp(draft: Draft, section: str, version: int | None, *place: str) -> None:
    """Strategy, offload and checkpointing of an ``fsdp_config`` section, with or without the ``fsdp_`` prefix."""
    keys = [f"{section}.fsdp_version", f"{section}.version"]
    stated = draft.integer(*keys, minimum=1) if draft.stated(*keys) else None
    chosen = stated or version or 1
    where = tuple(key for key in keys if draft.stated(key)) or place
    draft.put("strategy", f"fsdp{chosen}", *where)
    offload = (f"{section}.offload_params", f"{section}.fsdp_offload_params")
    draft.put("offload", FSDP_OFFLOAD if draft.flag(*offload) else (), *offload)
    checkpointing = (f"{section}.activation_checkpointing", f"{section}.fsdp_activation_checkpointing")
    if draft.flag(*checkpointing):
        draft.put("checkpointing", "full", *checkpointing)


def low_products(draft: Draft, kind: str, key: str) -> None:
    """The layers multiply in 8 bits; memory is planned without that."""
    draft.put("products", kind, key)
    draft.assumptions.append("fp8 products are planned in bf16, whose inputs take more memory")


def accelerate(draft: Draft, name: str, place: str) -> bool:
    """Follow the file that ``accelerate launch --config_file`` names; False where it is not here."""
    found = find(draft.said, name)
    if found is None or not found.is_file():
        match = _NAMED.search(name.replace("\\", "/").rpartition("/")[2])
        if match is None:
            draft.warnings.append(f"{place}: {name} is not here, so the sharding it sets up is unknown")
            return False
        word = match[0].lower().replace("_", "").replace("-", "")
        draft.assume("strategy", word, f"{name} is not here: {word} is taken from its name", place)
        return True
    from finefit.resolve.readings import accelerate as reader

    launcher = reader.reading(config.read(found, "accelerate"))
    for field in ("strategy", "offload", "gpus", "nodes", "parallel", "products"):
        if field in launcher.values:
            draft.values[field] = launcher.values[field]
    if launcher.get("checkpointing") == "full":
        draft.values["checkpointing"] = launcher.values["checkpointing"]
    draft.refusals += launcher.refusals
    draft.assumptions += launcher.assumptions
    return True


def gpus(draft: Draft) -> None:
    """GPUs in total from launchers, the environment, Slurm headers, and last from comments."""
    said = draft.said
    if "gpus" in draft.values and draft.values["gpus"].value is not None:
        return
    nodes = _fact(said, "nnodes", "num_machines", "NNODES", "slurm.nodes")
    per_node = _fact(said, "nproc_per_node", "NPROC_PER_NODE", "num_gpus", "slurm.gpus-per-node", "slurm.gres")
    total = _fact(said, "num_processes", "slurm.gpus")
    visible = said.launch.get("CUDA_VISIBLE_DEVICES")
    listed = (
        len([part for part in str(visible.value).split(",") if part.strip()])
        if visible and visible.value is not None
        else 0
    )
    if nodes:
        _fact_value(draft, "nodes", nodes[0], nodes[1])
    several = nodes[0] if nodes else 1
    unknown_nodes = any(key in said.launch and said.launch[key].value is None for key in ("nnodes", "NNODES"))
    if total:
        _fact_value(draft, "gpus", total[0], total[1])
    elif per_node and not unknown_nodes:
        _fact_value(draft, "gpus", max(per_node[0], listed) * several, per_node[1])
    elif listed and not unknown_nodes and visible:
        _fact_value(draft, "gpus", listed * several, visible)
    else:
        _from_comments(draft)


def _fact(said: Said, *keys: str) -> tuple[int, Entry] | None:
    for key in keys:
        entry = said.launch.get(key)
        match = re.search(r"(\d{1,6})$", str(entry.value)) if entry is not None else None
        if entry is not None and match and int(match[1]) >= 1:
            return int(match[1]), entry
    return None


def _fact_value(draft: Draft, name: str, value: int, entry: Entry) -> None:
    from finefit.resolve.readings.reading import Value

    draft.values[name] = Value(value, Source(Origin.STATED, Path(entry.place).name), entry.place)


def _from_comments(draft: Draft) -> None:
    for line, row in draft.said.comments:
        place = f"{draft.said.path}:{line}"
        if match := _NODES_OF.search(row):
            count = int(match[1]) * int(match[2])
        elif found := next((m for pattern in _TIMES if (m := pattern.search(row))), None):
            count = int(found[1])
        else:
            continue
        if 1 <= count <= 100_000:
            draft.assume("gpus", count, f"{count} GPUs, from the comment on line {line}", place)
            return


def commented_launch(draft: Draft, stem: str) -> str | None:
    """The command that a comment shows for this very config: GPUs become a value, the program is returned.

    ``tune run --nproc_per_node 2 lora_finetune_distributed --config llama3/8B_lora`` in a torchtune header.
    """
    shown = []
    for line, row in draft.said.comments:
        words = row.lstrip("# ").strip()
        if not words.startswith(("tune run", "automodel ", "torchrun ", "litgpt ")):
            continue
        try:
            script = shell.read(words, str(draft.said.path), first_line=line)
        except InputError:
            continue
        shown += launches(script, str(draft.said.path))
    chosen = next((run for run in shown if any(_names(word.text, stem) for word in run.arguments)), None)
    chosen = chosen or next(iter(shown), None)
    if chosen is None:
        return None
    for key, name in (("nproc_per_node", "gpus"), ("nnodes", "nodes")):
        entry = chosen.facts.get(key)
        if entry is not None and isinstance(entry.value, int) and not isinstance(entry.value, bool):
            draft.assume(
                name,
                entry.value,
                f"{entry.value} {name}, from the command in the comment on line {chosen.line}",
                entry.place,
            )
    return chosen.program


def _names(word: str, stem: str) -> bool:
    last = word.rpartition("/")[2].removesuffix(".yaml")
    return bool(last) and (stem == last or stem.endswith(f"__{last}"))


def commented_strategy(draft: Draft) -> None:
    """Strategy that only a comment states: "16 nodes of 8 H100s with FSDP1"."""
    for line, row in draft.said.comments:
        if match := _WITH.search(row):
            word = re.sub(r"[-\s]", "", match[1].lower())
            word = "fsdp1" if word == "fsdp" else word
            draft.assume("strategy", word, f"{match[1]}, from the comment on line {line}", f"{draft.said.path}:{line}")
            return


def parallel(draft: Draft, degrees: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Parallel degrees above 1, by the keys that state them."""
    out: dict[str, int] = {}
    for name, keys in degrees.items():
        size = draft.integer(*keys, minimum=-1) if draft.stated(*keys) else None
        if size is not None and size > 1:
            out[name] = size
    if out:
        first = next(keys for name, keys in degrees.items() if name in out)
        draft.put("parallel", out, *first)
    return out


def world(degrees: Mapping[str, int], names: Iterable[str]) -> int:
    """Product of the degrees of these kinds."""
    return prod(degrees.get(name, 1) for name in names)


def low_rank(draft: Draft, *, rank: str = "", targets: str = "optim_target_modules") -> None:
    """Rank and targets of GaLore and APOLLO: a key of its own, or "rank=64" in ``optim_args``."""
    stated = draft.integer(rank, minimum=1) if rank else None
    where = rank
    if stated is None:
        where, arguments = "optim_args", draft.raw("optim_args")
        if isinstance(arguments, str):
            pairs = [pair.partition("=") for pair in arguments.replace(" ", "").split(",")]
            arguments = {key: value for key, _, value in pairs}
        found = arguments.get("rank") if isinstance(arguments, Mapping) else None
        if found is not None:
            if not str(found).isdigit() or int(found) < 1:
                raise InputError("the rank is no whole number above 0", where=draft.where("optim_args"), fix="rank=128")
            stated = int(found)
    draft.put("optim_rank", stated, where)
    names = draft.names(targets)
    everything = names in (("all-linear",), ("all_linear",))
    if any(set(name) & set("\\^$*()[]|+?") for name in names):
        draft.refuse("a pattern of gradients to project", f"list the modules of {targets} by name", targets)
    draft.put("optim_targets", () if everything else names, targets)


# Endings of repositories that publish checkpoints quantised, with the bits their makers publish by default
_PACKED = {"gptq": 4, "awq": 4, "bnb-4bit": 4, "bnb-nf4": 4, "int4": 4, "int8": 8, "fp8": 8}


def packed_bits(name: str | None) -> int | None:
    """Bits of a checkpoint whose name says that it is stored quantised; None for any other name."""
    base = (name or "").rstrip("/\\").lower()
    return next((bits for ending, bits in _PACKED.items() if base.endswith((f"-{ending}", f"_{ending}"))), None)
