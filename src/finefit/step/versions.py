"""What changed in transformers between versions that memory can see.

Read in the wheels of 4.36.2, 4.41.2, 4.45.2, 4.46.3, 4.48.1, 4.49.0, 4.50.0, 4.51.3, 4.53.3, 4.54.1, 4.55.4,
4.56.0, 4.57.6 and 5.24.0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LossCode:
    """How a causal language model computes its loss from logits.

    Attributes:
        model_upcasts: the model replaces its logits by fp32 ones, which its output then holds.
        upcast: the loss function makes an fp32 copy beside the model's logits.
        shift_copy: logits[..., :-1, :] is copied; later versions shift the labels instead.
    """

    model_upcasts: bool
    upcast: bool
    shift_copy: bool


# Their forward computed the loss itself, in the dtype of the logits, until 4.49 gave them loss_function.
_OWN_LOSS_BEFORE_4_49 = frozenset({"gpt_bigcode", "gpt2", "gpt_neox"})


def version_tuple(version: str) -> tuple[int, ...]:
    """(4, 48, 1) of "4.48.1"; parts that are not numbers end it."""
    parts = []
    for part in version.split("."):
        if not part.isdigit():
            break
        parts.append(int(part))
    return tuple(parts)


def loss_code(family: str, transformers: str | None) -> LossCode:
    """The loss of a family at a version of transformers; None is the newest one read."""
    version = version_tuple(transformers) if transformers else (5, 24)
    if version >= (4, 49):
        return LossCode(model_upcasts=False, upcast=True, shift_copy=False)
    if family in _OWN_LOSS_BEFORE_4_49:
        return LossCode(model_upcasts=False, upcast=False, shift_copy=True)
    if version >= (4, 46):
        return LossCode(model_upcasts=False, upcast=True, shift_copy=True)
    return LossCode(model_upcasts=True, upcast=False, shift_copy=True)


def caches(family: str, transformers: str | None, checkpointed: bool) -> bool:
    """A training forward that is asked for keys and values returns them.

    Layers that are checkpointed return none, but for GPT-BigCode's before 4.53.
    """
    before = transformers is not None and version_tuple(transformers) < (4, 53)
    return not checkpointed or (family == "gpt_bigcode" and before)


def copies_into_cache(transformers: str | None) -> bool:
    """The cache appends keys and values to empty tensors; before 4.56 it held them as they came."""
    return transformers is None or version_tuple(transformers) >= (4, 56)


def boolean_masks(transformers: str | None) -> bool:
    """SDPA's mask is boolean, which torch makes additive in each layer; before 4.53 the model made it additive once."""
    return transformers is None or version_tuple(transformers) >= (4, 53)


def masks_window(family: str, transformers: str | None) -> bool:
    """From the length of the sliding window on a mask is made for SDPA; before 4.46 Mistral's code alone did so."""
    return family == "mistral" or transformers is None or version_tuple(transformers) >= (4, 46)


def keeps_triangle(family: str, transformers: str | None) -> bool:
    """Attention of every layer keeps a causal mask of all positions, a buffer of booleans (``attn.bias``)."""
    version = version_tuple(transformers) if transformers else (5, 24)
    until = {"gpt_neox": (4, 49), "gpt2": (5,), "gpt_neo": (6,)}  # GPT-Neo has it in the newest one read
    return family in until and version < until[family]


def lays_out_heads(transformers: str | None, masked: bool) -> bool:
    """SDPA was given queries, keys and values copied head by head, until 4.48 with a mask alone, from 4.56 on never."""
    version = version_tuple(transformers) if transformers else (5, 24)
    return version < (4, 56) and (masked or version >= (4, 48))


def hands_over_groups(transformers: str | None) -> bool:
    """SDPA is given grouped key and value heads as they are; before 4.54 they were expanded always."""
    return transformers is None or version_tuple(transformers) >= (4, 54)
