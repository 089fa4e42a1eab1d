"""Scaled dot-product attention as PyTorch dispatches it on CUDA, for fake tensors.

Follows torch 2.13.0 ``aten/src/ATen/native/transformers/attention.cpp`` (padding, mask conversion) and
``transformers/cuda/sdp_utils.cpp`` (order: flash, memory-efficient, math). The chosen kernel's operator has a
meta function and an autograd formula on every build, so what it saves is torch's own.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

_FLASH_HEAD_DIM = 256  # sdp_utils.cpp check_head_dim_size_flash
_HALF = (torch.float16, torch.bfloat16)


def _pad_last(x: torch.Tensor, multiple: int) -> torch.Tensor:
    """``pad_last_dim``: the head dimension rounded up."""
    rest = x.size(-1) % multiple
    return x if rest == 0 else functional.pad(x, (0, multiple - rest))


def _additive(mask: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """``convert_boolean_attn_mask``: a new tensor in the query's dtype at each call."""
    if mask.dtype != torch.bool:
        return mask
    zero = torch.full((), 0.0, dtype=query.dtype, device=query.device)
    return torch.where(mask, zero, torch.full((), float("-inf"), dtype=query.dtype, device=query.device))


def _aligned(mask: torch.Tensor, query: torch.Tensor, keys: int) -> torch.Tensor:
    """``preprocess_mask``: rows padded to 16 elements, then expanded to all heads without a copy."""
    width = mask.size(-1)
    if width % 16:
        mask = functional.pad(mask, (0, 16 - width % 16))[..., :width]
    return mask.expand(query.size(0), query.size(1), query.size(2), keys)


def backend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, masked: bool, gqa: bool, flash: bool) -> str:
    """The kernel CUDA takes: "flash", "efficient" or "math"."""
    grouped = key.size(-3) != query.size(-3)
    if grouped and not gqa:
        return "math"  # sdp_utils.cpp check_batch_size_and_num_heads_dense: heads broadcast in no other kernel
    flash = flash and query.size(-1) == value.size(-1)  # sdp_utils.cpp check_head_dim_size_flash
    if flash and query.dtype in _HALF and query.size(-1) <= _FLASH_HEAD_DIM and not masked:
        return "flash"
    if grouped:
        return "math"  # the memory-efficient kernel has no grouped queries
    return "efficient"


def attention(arch: str) -> Callable[..., torch.Tensor]:
    """``scaled_dot_product_attention`` as a GPU of that architecture runs it."""
    flash = arch not in ("sm70", "sm75")  # sdp_utils.cpp: flash needs sm80

    def scaled_dot_product_attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        aten = torch.ops.aten
        if torch.is_autocast_enabled("cuda"):  # the operator is on autocast's list of 16-bit ones
            half = torch.get_autocast_dtype("cuda")
            query, key, value = (t.to(half) if t.is_floating_point() else t for t in (query, key, value))
            if attn_mask is not None and attn_mask.is_floating_point():
                attn_mask = attn_mask.to(half)
        chosen = backend(query, key, value, attn_mask is not None, enable_gqa, flash)
        if attn_mask is not None:
            attn_mask = _additive(attn_mask, query)
        if chosen == "flash":
            width = query.size(-1)
            scale = width**-0.5 if scale is None else scale
            padded = [_pad_last(t, 8) for t in (query, key, value)]
            out = aten._scaled_dot_product_flash_attention(*padded, dropout_p, is_causal, False, scale=scale)[0]
            return out if out.size(-1) == width else out[..., :width]
        if chosen == "efficient":
            if attn_mask is not None:
                attn_mask = _aligned(attn_mask, query, key.size(2))
            grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
            return aten._scaled_dot_product_efficient_attention(
                query, key, value, attn_mask, grad, dropout_p, is_causal, scale=scale
            )[0]
        with torch.autocast("cuda", enabled=False):  # the operator's autocast kernel runs what is inside without it
            return aten._scaled_dot_product_attention_math(
                query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
            )[0]

    return scaled_dot_product_attention
