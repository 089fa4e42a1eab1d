"""How many parameters the tensors of a checkpoint stand for, and how it is quantised, told by their names and shapes.

Packed layouts: GPTQ (auto-gptq 0.7.1 ``qlinear_cuda.py``: qweight [in / pack, out] int32, scales [groups, out]); AWQ
(autoawq 0.2.9 ``modules/linear/gemm.py``: qweight [in, out / pack] int32); bitsandbytes 0.50.2 ``functional.py``
(4-bit weight [n / 2, 1] uint8 beside ``weight.quant_state...``, int8 weight beside ``weight.SCB``); fp8 with
``weight_scale_inv`` or ``weight_scale`` (transformers 5.24.0 ``finegrained_fp8``); mxfp4 ``_blocks`` uint8 and
``_scales`` (``mxfp4.py``); NVFP4 uint8 with ``weight_scale_2`` (modelopt).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from finefit.formats.safetensors import Tensor

# Constants of quantisation and buffers: stored beside the weights, none of them a parameter
_BESIDE = (
    ".scales", ".qzeros", ".g_idx", ".SCB", ".weight_format", ".absmax", ".quant_map", ".nested_absmax",
    ".nested_quant_map", ".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".input_scale",
    ".k_scale", ".v_scale",
    "_scales", "_scale_inv", "_scale", "_scale_2", ".weight_shape", ".weight_zero_point", ".rotary_emb.inv_freq",
    ".attn.bias", ".attn.masked_bias", ".attention.masked_bias", "position_ids",
)  # fmt: skip
_INT = ("I32", "U32")


@dataclass(frozen=True, slots=True)
class Contents:
    """What a checkpoint's tensors hold.

    Attributes:
        parameters: as the model has them; a tied head stored twice counts twice.
        stored: bytes by dtype.
        quant: "gptq", "awq", "bitsandbytes", "fp8", "mxfp4", "nvfp4", "compressed-tensors" or "" for plain weights.
        bits: of the quantised weights; None for plain ones.
        group: weights that share a scale; None where it is not per group.
    """

    parameters: int
    stored: Mapping[str, int]
    quant: str = ""
    bits: int | None = None
    group: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(self.stored.values())


def contents(tensors: Mapping[str, Tensor]) -> Contents:
    """Parameters, bytes and the way of packing."""
    stored: dict[str, int] = {}
    for tensor in tensors.values():
        stored[tensor.dtype] = stored.get(tensor.dtype, 0) + tensor.bytes
    quant, bits, group = "", None, None
    parameters = 0
    for name, tensor in tensors.items():
        if name.endswith(_BESIDE) or ".quant_state." in name:
            continue
        count, kind, width, size = _unpacked(name, tensor, tensors)
        parameters += count
        if kind:
            quant, bits, group = kind, width, size if size is not None else group
    return Contents(parameters, stored, quant, bits, group)


def _unpacked(name: str, tensor: Tensor, tensors: Mapping[str, Tensor]) -> tuple[int, str, int | None, int | None]:
    """(parameters, way of packing, bits, group) of one tensor."""
    base, _, leaf = name.rpartition(".")
    if leaf == "qweight" and tensor.dtype in _INT and len(tensor.shape) == 2:
        return _int_packed(base, tensor, tensors)
    if leaf == "weight_packed":
        scale = tensors.get(f"{base}.weight_scale")
        wide = tensor.elements * (8 if tensor.dtype in _INT else 2)
        size = wide // scale.elements if scale and scale.elements else None
        return wide, "compressed-tensors", 4, size
    if name.endswith("_blocks") and tensor.dtype == "U8" and f"{name[:-7]}_scales" in tensors:
        return 2 * tensor.elements, "mxfp4", 4, 32
    if tensor.dtype == "U8" and any(key in tensors for key in (f"{name}.absmax", f"{name}.quant_map")):
        return 2 * tensor.elements, "bitsandbytes", 4, None
    if tensor.dtype == "U8" and f"{name}_scale_2" in tensors:
        return 2 * tensor.elements, "nvfp4", 4, 16
    if tensor.dtype == "I8" and (f"{base}.SCB" in tensors or f"{name}.SCB" in tensors):
        return tensor.elements, "bitsandbytes", 8, None
    if tensor.dtype in ("F8_E4M3", "F8_E5M2"):
        return tensor.elements, "fp8", 8, None
    return tensor.elements, "", None, None


def _int_packed(base: str, tensor: Tensor, tensors: Mapping[str, Tensor]) -> tuple[int, str, int | None, int | None]:
    """GPTQ packs rows of the input, AWQ columns of the output; the scales tell the true width of both."""
    scales = tensors.get(f"{base}.scales")
    if scales is None or len(scales.shape) != 2 or not all(scales.shape) or not all(tensor.shape):
        return 8 * tensor.elements, "gptq", 4, None
    groups, out = scales.shape
    rows, columns = tensor.shape
    if columns == out:  # GPTQ: rows = in x bits / 32
        index = tensors.get(f"{base}.g_idx")
        zeros = tensors.get(f"{base}.qzeros")
        bits = 32 * zeros.shape[-1] // out if zeros is not None and zeros.shape else 4
        inputs = index.shape[0] if index is not None and index.shape else rows * 32 // (bits or 4)
        return inputs * out, "gptq", bits, inputs // groups
    return rows * out, "awq", 32 * columns // out, rows // groups
