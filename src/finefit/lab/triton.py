"""TRL's Triton kernels on fake tensors: they write into tensors they are given, so nothing is to be done.

trl 1.16.0 ``kernels/chunked_logprob.py`` launches ``_forward_kernel`` and ``_backward_kernel`` on CUDA; their
statistics and tiles are allocated by the code around them, which runs as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch


class _Launcher:
    """``kernel[grid](...)`` that launches nothing."""

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: None


@contextmanager
def fake_triton() -> Iterator[None]:
    """Take the CUDA path of TRL's fused output layer, for the duration of the block; nothing without trl."""
    if find_spec("trl") is None:
        yield
        return
    from trl.kernels import chunked_logprob

    stand_in = SimpleNamespace(cdiv=lambda a, b: -(-a // b))
    with ExitStack() as stack:
        for name, value in (
            ("_TRITON_AVAILABLE", True),
            ("_forward_kernel", _Launcher()),
            ("_backward_kernel", _Launcher()),
            ("triton", stand_in),
        ):
            stack.enter_context(patch.object(chunked_logprob, name, value, create=True))
        yield
