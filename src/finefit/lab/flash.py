"""The ``flash_attention_2`` of transformers without the flash-attn package, for batches without padding.

flash-attn 2.8.3 ``flash_attn_interface.py`` ``FlashAttnFunc`` saves query, key, value, output, the fp32
log-sum-exp and the random state, as PyTorch's own flash operator does, which stands in for it here. Heads of
keys and values are not expanded, and the head dimension is padded to 8. transformers hands it no mask where
nothing is padded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import transformers
from torch import nn

_HAS_INTERFACE = hasattr(transformers, "AttentionMaskInterface")  # transformers 4.53 and later
# "flash" in a name makes transformers look for the package.
FLASH = "finefit_fa2" if _HAS_INTERFACE else "flash_attention_2"
_FLASH_DTYPES = (torch.float16, torch.bfloat16)


def _kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout: float, scale: float | None
) -> torch.Tensor:
    """(b, heads, s, d) in and out."""
    width = query.size(-1)
    rest = -width % 8
    if rest:
        query, key, value = (nn.functional.pad(x, (0, rest)) for x in (query, key, value))
    scale = width**-0.5 if scale is None else scale
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    out: torch.Tensor = flash(query, key, value, dropout, True, False, scale=scale)[0]
    return out[..., :width] if rest else out


def _attention_interface(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What a model of transformers calls: (b, heads, s, d) in, (b, s, heads, d) out."""
    if query.dtype not in _FLASH_DTYPES:  # integrations/flash_attention.py get_target_dtype
        config: Any = module.config
        half = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else config.dtype
        query, key, value = query.to(half), key.to(half), value.to(half)
    return _kernel(query, key, value, dropout, scaling).transpose(1, 2), None


def _flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    deterministic: bool = False,
) -> torch.Tensor:
    """``flash_attn.flash_attn_func``: (b, s, heads, d) in and out."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return _kernel(q, k, v, dropout_p, softmax_scale).transpose(1, 2)


@contextmanager
def flash_package() -> Iterator[None]:
    """For the duration of the block transformers finds the package, or the implementation called ``FLASH``."""
    if _HAS_INTERFACE:
        transformers.AttentionInterface.register(FLASH, _attention_interface)
        transformers.AttentionMaskInterface.register(FLASH, lambda *args, **kwargs: None)
        yield
        return
    from transformers import modeling_flash_attention_utils as utils
    from transformers import modeling_utils
    from transformers import utils as asked  # by the modules of models when they are imported

    with ExitStack() as stack:
        for module in (modeling_utils, asked):
            stack.enter_context(patch.object(module, "is_flash_attn_2_available", lambda: True))
        for name, value in (
            ("flash_attn_func", _flash_attn_func),
            ("_flash_supports_window_size", True),
            ("is_flash_attn_greater_or_equal", lambda version: True),
        ):
            stack.enter_context(patch.object(utils, name, value, create=True))
        yield
