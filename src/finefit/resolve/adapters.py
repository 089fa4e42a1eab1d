"""Adapters and partial training of Axolotl, TRL and ms-swift, from a reading."""

from __future__ import annotations

from finefit.errors import InputError
from finefit.resolve.notes import Notes
from finefit.resolve.readings.reading import KINDS, Reading
from finefit.workload.lora import linear_modules
from finefit.workload.model import Model
from finefit.workload.parameters import embedding_parameters, layer_parameters, parameter_count
from finefit.workload.recipe import Trained


def kind_of(reading: Reading, notes: Notes) -> str:
    """Kind of adapter of a method that has one."""
    method = KINDS[reading.text("method") or "lora"]
    if reading.get("dora"):
        notes.source("lora.kind", reading.values["dora"].source)
        return "dora"
    if "method" in reading.values:
        notes.source("lora.kind", reading.values["method"].source)
    return method


def feedforward_of(kind: str, targets: tuple[str, ...]) -> tuple[str, ...]:
    """Targets whose input (IA)³ scales (peft utils/constants.py: down_proj of llama and the families like it)."""
    return tuple(name for name in targets if name == "down_proj") if kind == "ia3" else ()


def selection(reading: Reading, model: Model, notes: Notes) -> Trained | None:
    """The part that is trained where the first share of the parameters is frozen (ms-swift's freeze_parameters_ratio).

    ms-swift 4.6.0 utils/torch_utils.py ``freeze_parameters`` goes tensor by tensor; whole layers are taken here.

    Raises:
        InputError: a share outside 0 to 1.
    """
    share = reading.get("frozen_share")
    if not isinstance(share, int | float) or not share:
        return None
    where = reading.where("frozen_share")
    if not 0 < share <= 1:
        raise InputError("a share lies between 0 and 1", where=where, fix="write 0.5, say")
    limit, passed = share * parameter_count(model), sum(p.numel for p in embedding_parameters(model))
    first = 0
    for first in range(model.layers):
        passed += sum(p.numel for p in layer_parameters(model, first))
        if passed > limit:
            break
    notes.source("trained.layers", reading.values["frozen_share"].source)
    notes.assume(f"{where}: layers from {first} on are trained, each whole, with the norm and the head")
    return Trained(tuple(range(first, model.layers)), outside=("norm", "lm_head"))


# Modules of fused attention and plain MLPs in the families that have no q_proj (transformers 5.24.0 modeling files)
_FUSED = ("query_key_value", "qkv_proj", "c_attn", "Wqkv", "W_pack")
_OUTPUT = ("dense", "o_proj", "c_proj", "out_proj")


def _litgpt_targets(names: list[str], model: Model, where: str, notes: Notes) -> list[str]:
    """LitGPT's switches on a family whose modules have other names: a part of fused attention adapts all of it."""
    has = [name for name in linear_modules(model) if "." not in name]
    if set(names) <= set(has):
        return names
    fused = next((name for name in _FUSED if name in has), None)
    output = next((name for name in _OUTPUT if name in has), None)
    if fused is None:
        return names
    out = []
    for name in names:
        if name in ("q_proj", "k_proj", "v_proj"):
            out.append(fused)
        elif name == "o_proj" and output is not None:
            out.append(output)
        elif name in ("gate_proj", "up_proj", "down_proj"):
            out += [other for other in has if other not in (fused, output)]
        else:
            out.append(name)
    notes.assume(f"{where}: {model.name} joins query, key and value in {fused}, all of which is planned with adapters")
    return list(dict.fromkeys(out))


def targets_of(reading: Reading, model: Model, kind: str, notes: Notes) -> str | None:
    """Names of the targets as ``lora_targets`` takes them."""
    names = reading.text("lora_targets")
    if reading.tool == "litgpt" and names:
        return ",".join(_litgpt_targets(names.split(","), model, reading.where("lora_targets"), notes))
    if names is None and kind == "ia3":
        return ",".join(name for name in linear_modules(model) if name in ("k_proj", "v_proj", "down_proj"))
    return names
