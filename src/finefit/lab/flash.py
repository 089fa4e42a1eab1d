"""The ``flash_attention_2`` of transformers without the flash-attn package, for batches without padding.

flash-attn 2.8.3 ``flash_attn_interface.py`` ``FlashAttnFunc`` saves query, key, value, output, the fp32
log-sum-exp and the random state, as PyTorch's own flash operator does, which stands in for it here.
transformers 5.24.0 ``modeling_flash_attention_utils.py`` hands it no mask where nothing is padded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface

FLASH = "finefit_fa2"  # "flash" in a name makes transformers look for the package
_FLASH_DTYPES = (torch.float16, torch.bfloat16)


def _forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """(b, heads, s, d) in, (b, s, heads, d) out; the kernel takes grouped heads as they are."""
    if query.dtype not in _FLASH_DTYPES:  # integrations/flash_attention.py get_target_dtype
        half = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else module.config.dtype
        query, key, value = query.to(half), key.to(half), value.to(half)
    width = query.size(-1)
    rest = -width % 8  # flash_attn_interface.py pads the head dimension to 8
    if rest:
        query, key, value = (nn.functional.pad(x, (0, rest)) for x in (query, key, value))
    scale = width**-0.5 if scaling is None else scaling
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    out = flash(query, key, value, dropout, True, False, scale=scale)[0]
    return out[..., :width].transpose(1, 2), None


AttentionInterface.register(FLASH, _forward)
AttentionMaskInterface.register(FLASH, lambda *args, **kwargs: None)
