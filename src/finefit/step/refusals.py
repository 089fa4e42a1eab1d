"""What the step refuses to build, each in one sentence."""

from __future__ import annotations

from finefit.errors import InputError, NotModelled
from finefit.step.decoder import MODELLED
from finefit.step.versions import version_tuple
from finefit.workload.model import Model
from finefit.workload.parameters import DECODERS
from finefit.workload.recipe import Recipe

# transformers 5.24.0: their modelling code computes the scores itself and sets no _supports_flash_attn
_NO_FLASH = frozenset({"bloom", "mpt"})


def refuse(model: Model, recipe: Recipe) -> None:
    """What would be wrong in silence is said instead.

    Raises:
        NotModelled: a family, quantisation or mode whose operations are not written down here yet.
    """
    if model.head in DECODERS and model.family not in MODELLED:
        what = f"the memory of {model.family} models is not modelled yet ({model.name})"
        raise NotModelled(what, fix="parameter counts are exact; for memory take a family listed in the README")
    if model.experts is not None and recipe.fused_kernels:
        what = f"Liger's kernels for mixtures of experts are not modelled yet ({model.name})"
        raise NotModelled(what, fix="leave enable_liger_kernel out: memory without it is at least as large")
    version = recipe.stack.get("transformers")
    if model.experts is not None and version is not None and version_tuple(version) < (5,):
        what = f"experts of transformers {version}, each a module of its own, are not modelled yet ({model.name})"
        raise NotModelled(what, fix="plan it with transformers 5, which stacks the experts of a layer in one tensor")
    if model.family == "falcon" and recipe.quant is not None and not _quantises_subclasses(version):
        what = f"transformers from 5.5 on leaves {model.name} in 16 bits: its layers are a subclass of nn.Linear"
        raise NotModelled(what, fix="train it with LoRA, or in 4 bits with transformers 5.4 or older")
    if model.checkpoint_quant and not (recipe.quant and recipe.quant.kind == model.checkpoint_quant):
        what = f"{model.checkpoint_quant} checkpoints are not modelled yet ({model.name})"
        raise NotModelled(what, fix="take the 16-bit checkpoint with quantization_bit 4 or 8")
    if recipe.attention == "flash2" and model.family in _NO_FLASH:
        what = f"transformers has no FlashAttention for {model.name}"
        raise NotModelled(what, fix="use eager attention")
    if recipe.checkpointing not in ("none", "full"):
        raise NotModelled(f"{recipe.checkpointing} gradient checkpointing is not modelled yet", fix="use none or full")
    if recipe.compiled:
        raise NotModelled("torch.compile is not modelled yet", fix="leave it out: eager memory is at least as large")


def check_length(model: Model, recipe: Recipe) -> None:
    """A learned position table has no row for a longer sample.

    Raises:
        InputError: the sequence is longer than the table.
    """
    if model.position == "learned" and recipe.seq_len > model.max_position > 0:
        raise InputError(
            f"{model.name} has positions for {model.max_position} tokens, not for {recipe.seq_len}",
            fix=f"set the sequence length to at most {model.max_position}",
        )


def _quantises_subclasses(transformers: str | None) -> bool:
    """integrations/bitsandbytes.py replaces what ``isinstance`` calls an nn.Linear to 5.4, its own type from 5.5 on."""
    return transformers is not None and version_tuple(transformers) < (5, 5)
