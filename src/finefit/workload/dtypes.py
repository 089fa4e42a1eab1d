"""Number formats and how many bytes one element takes."""

from __future__ import annotations

from enum import StrEnum


class DType(StrEnum):
    """Element type of a tensor."""

    FP64 = "fp64"
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    UINT8 = "uint8"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"

    @property
    def bytes(self) -> int:
        """Bytes of one element."""
        return _BYTES[self]


_BYTES = {
    DType.FP64: 8,
    DType.FP32: 4,
    DType.BF16: 2,
    DType.FP16: 2,
    DType.FP8: 1,
    DType.UINT8: 1,
    DType.INT32: 4,
    DType.INT64: 8,
    DType.BOOL: 1,
}
