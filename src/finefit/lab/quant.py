"""bitsandbytes' quantised linear layers on fake tensors: their forward and backward, with storage of our making.

``Params4bit`` and ``Int8Params`` cannot wrap fake tensors, so the packed weight is a plain parameter with
the ``QuantState`` that quantising would have left. Everything that runs afterwards is bitsandbytes' own
code (0.50.2 ``autograd/_functions.py``).
"""

from __future__ import annotations

from typing import Any

import bitsandbytes as bnb
import torch
from bitsandbytes.functional import QuantState
from torch import nn
from transformers import BitsAndBytesConfig
from transformers.quantizers import AutoHfQuantizer
from transformers.utils.quantization_config import QuantizationMethod

from finefit.workload.recipe import Quant

_BLOCK = 64  # weights a constant: bitsandbytes 0.50.2 functional.py quantize_4bit default on CUDA
_NESTED_BLOCK = 256  # constants a nested constant, the same file
_KEPT = ("lm_head", "embed_out")  # transformers keeps the output layer unquantised (get_keys_to_not_convert)


def _state_4bit(numel: int, shape: torch.Size, dtype: torch.dtype, quant: Quant, device: torch.device) -> QuantState:
    constants = -(-numel // _BLOCK)
    common: dict[str, Any] = {"shape": shape, "dtype": dtype, "blocksize": _BLOCK, "quant_type": quant.kind}
    code = torch.empty(16, device=device)
    if not quant.double:
        return QuantState(absmax=torch.empty(constants, device=device), code=code, **common)
    nested = QuantState(
        absmax=torch.empty(-(-constants // _NESTED_BLOCK), device=device),
        code=torch.empty(256, device=device),
        blocksize=_NESTED_BLOCK,
        dtype=torch.float32,
    )
    absmax = torch.empty(constants, dtype=torch.uint8, device=device)
    offset = torch.empty((), device=device)
    return QuantState(absmax=absmax, code=code, offset=offset, state2=nested, **common)


class FakeLinear4bit(bnb.nn.Linear4bit):
    """``Linear4bit`` after quantisation."""

    def __init__(self, source: nn.Linear, quant: Quant, compute: torch.dtype) -> None:
        nn.Module.__init__(self)
        device, numel = source.weight.device, source.weight.numel()
        self.in_features, self.out_features = source.in_features, source.out_features
        packed = torch.empty((-(-numel // 2), 1), dtype=torch.uint8, device=device)
        weight: Any = nn.Parameter(packed, requires_grad=False)
        weight.quant_state = _state_4bit(numel, source.weight.shape, source.weight.dtype, quant, device)
        weight.quant_type, weight.compress_statistics, weight.blocksize = quant.kind, quant.double, _BLOCK
        weight.quant_storage, weight.bnb_quantized, weight.module = torch.uint8, True, self
        self.weight, self.quant_state = weight, weight.quant_state
        self.bias = source.bias
        self.compute_dtype, self.compute_type_is_set = compute, True
        self.quant_storage, self.support_avx512bf16_for_cpu = torch.uint8, False


class FakeLinear8bit(bnb.nn.Linear8bitLt):
    """``Linear8bitLt`` after quantisation; outlier columns, which depend on data, are taken as none."""

    def __init__(self, source: nn.Linear) -> None:
        nn.Module.__init__(self)
        device = source.weight.device
        self.in_features, self.out_features = source.in_features, source.out_features
        packed = torch.empty(source.weight.shape, dtype=torch.int8, device=device)
        weight: Any = nn.Parameter(packed, requires_grad=False)
        weight.CB, weight.SCB = packed, torch.empty(self.out_features, device=device)
        weight.has_fp16_weights = False
        self.weight, self.bias, self.index = weight, source.bias, None
        self.state = bnb.MatmulLtState()
        self.state.threshold, self.state.has_fp16_weights = 0.0, False


def quantise(model: Any, quant: Quant, compute: torch.dtype) -> None:
    """Replace every linear layer but the output by its quantised form, as transformers does on loading."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is not nn.Linear or name in _KEPT:
                continue
            replacement = FakeLinear8bit(child) if quant.kind == "int8" else FakeLinear4bit(child, quant, compute)
            for parameter in replacement.parameters(recurse=False):
                parameter.requires_grad_(False)
            setattr(module, name, replacement)
    _restore_weights()
    model.is_quantized, model.quantization_method = True, QuantizationMethod.BITS_AND_BYTES
    model.is_loaded_in_8bit = quant.kind == "int8"
    model.is_loaded_in_4bit = not model.is_loaded_in_8bit
    settings = BitsAndBytesConfig(load_in_8bit=model.is_loaded_in_8bit, load_in_4bit=model.is_loaded_in_4bit)
    model.hf_quantizer = AutoHfQuantizer.from_config(settings)  # trainers ask it whether training is supported


def _restore_weights() -> None:
    """DoRA asks PEFT for whole weights, which knows them by bitsandbytes' own classes (utils/integrations.py)."""
    from peft.tuners.lora import dora

    if getattr(dora.dequantize_module_weight, "of_finefit", False):
        return
    original = dora.dequantize_module_weight

    def whole(module: Any) -> torch.Tensor:
        weight = module.weight
        if isinstance(module, FakeLinear4bit):
            return bnb.functional.dequantize_4bit(weight.data, weight.quant_state)
        if isinstance(module, FakeLinear8bit):
            return bnb.functional.int8_vectorwise_dequant(weight.data, weight.SCB)
        return original(module)

    whole.of_finefit = True  # type: ignore[attr-defined]
    dora.dequantize_module_weight = whole


def quantisation_tensors(parameter: torch.Tensor) -> list[torch.Tensor]:
    """Constants that belong to a quantised parameter."""
    scale = getattr(parameter, "SCB", None)
    if scale is not None:
        return [scale]
    state = getattr(parameter, "quant_state", None)
    if state is None:
        return []
    found = [state.absmax, state.code, state.offset]
    if state.state2 is not None:
        found += [state.state2.absmax, state.state2.code]
    return [t for t in found if t is not None]
