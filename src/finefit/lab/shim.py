"""Every patch that lets a PyTorch without a GPU run CUDA code paths on fake tensors.

All are undone on exit but the first, which is harmless and cannot take effect later than import.

A PyTorch without a GPU lacks three things that ``FakeTensorMode`` needs for fake "cuda" tensors:

1. A device guard. ``torch._C._ensureCUDADeviceGuardSet`` (called by ``FakeTensorMode.__enter__``) swaps in
   its fake guard only where the registry slot is taken and the device count is 0, as on a CUDA build
   without a GPU. An object whose every virtual function returns 0 is put there for the call.
2. An accelerator. The autograd engine asks ``CUDAHooksInterface::isBuilt`` and ``hasPrimaryContext``; the
   hooks object gets a copied table of virtual functions in which these two return 1.
3. Kernels that exist only for CUDA. An operator with a CUDA kernel *and* a composite fallback decomposes
   silently on a CPU build (SiLU backward becomes six operations); a dummy CUDA kernel stops that.

A CUDA build without a GPU has the third itself, a real guard that torch replaces, and hooks that refuse every device.
Layouts are those of torch 2.13.0 (c10/core/impl/DeviceGuardImplInterface.h, aten/src/ATen/detail/CUDAHooksInterface.h).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch._meta_registrations as registrations
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from finefit.lab.flash import flash_package
from finefit.lab.triton import fake_triton

_LIBRARIES = Path(torch.__file__).parent / "lib"
_CUDA, _META, _DEVICE_TYPES = 1, 14, 22  # c10::DeviceType values, size of the guard registry
_DEVICE_COUNT_SLOT = 15  # virtual function deviceCount() of DeviceGuardImplInterface
_HOOKS_FUNCTIONS = 56  # at least the number of virtual functions of CUDAHooksInterface
_IS_BUILT, _HAS_PRIMARY_CONTEXT = 2, 4  # their slots there

# Operators of native_functions.yaml (torch 2.13.0) with a CUDA kernel beside a CompositeImplicitAutograd one.
_COMPOSITE_ON_CPU = ("silu_backward", "mish_backward", "native_channel_shuffle", "_fused_rms_norm")

_HAS_FAKE_GUARD = hasattr(torch._C, "_ensureCUDADeviceGuardSet")  # not yet in torch 2.9.1

CAPABILITY = {
    "sm70": (7, 0),
    "sm75": (7, 5),
    "sm80": (8, 0),
    "sm86": (8, 6),
    "sm89": (8, 9),
    "sm90": (9, 0),
    "sm100": (10, 0),
}


@contextmanager
def _set(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute for the duration of the block."""
    own = name in vars(owner)
    before = vars(owner)[name] if own else None
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


_kept: list[Any] = []  # C objects that torch may still point at


def _guard_registry() -> Any:
    """The table of device guards, by device type."""
    library = ctypes.CDLL(str(_LIBRARIES / "libc10.so"))
    return (ctypes.c_void_p * _DEVICE_TYPES).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")


def _install_guard() -> None:
    """Put torch's fake CUDA device guard into its registry slot: empty in a CPU build, the real one in a CUDA build.

    It stays for the life of the process: the autograd engine starts its threads at the first backward pass,
    one for each device type that has a guard by then, and never again.
    """
    if not _HAS_FAKE_GUARD:
        return
    registry = _guard_registry()
    if registry[_CUDA] is not None:
        torch._C._ensureCUDADeviceGuardSet()  # torch replaces the real guard where it finds no GPU
        return
    function = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: 0)
    table = (ctypes.c_void_p * 64)(*[ctypes.cast(function, ctypes.c_void_p).value] * 64)
    stub = (ctypes.c_void_p * 4)(ctypes.addressof(table))
    _kept.extend((function, table, stub))
    registry[_CUDA] = ctypes.addressof(stub)
    torch._C._ensureCUDADeviceGuardSet()
    if registry[_CUDA] == ctypes.addressof(stub):
        registry[_CUDA] = None
        raise RuntimeError("torch did not install its fake CUDA device guard")


@contextmanager
def _accelerator(library: Any, registry: Any) -> Iterator[None]:
    """CUDA hooks that say "built", and "used" of every device, for the duration of the block."""
    pointers = ctypes.POINTER(ctypes.c_void_p)
    one = ctypes.cast(ctypes.cast(registry[_META], pointers)[0], pointers)[_DEVICE_COUNT_SLOT]
    if ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)(one)(registry[_META]) != 1:
        raise RuntimeError("the device guard of torch has another layout than expected")
    get = library._ZN2at6detail12getCUDAHooksEv
    get.restype = ctypes.c_void_p
    hooks = ctypes.cast(get(), pointers)
    original = hooks[0]
    assert original is not None
    words = (ctypes.c_void_p * (_HOOKS_FUNCTIONS + 2)).from_address(original - 16)  # two words of RTTI before
    table = (ctypes.c_void_p * (_HOOKS_FUNCTIONS + 2))(*[w or 0 for w in words])
    table[2 + _IS_BUILT] = table[2 + _HAS_PRIMARY_CONTEXT] = one
    _kept.append(table)
    hooks[0] = ctypes.addressof(table) + 16
    try:
        yield
    finally:
        hooks[0] = original


@contextmanager
def _cuda_kernels() -> Iterator[None]:
    """Dummy CUDA kernels for operators that would decompose without one."""
    library = torch.library.Library("aten", "IMPL", "CUDA")

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a kernel that exists for fake tensors only was run on real ones")

    for name in _COMPOSITE_ON_CPU:
        library.impl(name, refuse)
    try:
        yield
    finally:
        library._destroy()


def _apply_in_place(original: Callable[..., Any]) -> Callable[..., Any]:
    """``Module._apply`` that keeps Parameters of fake tensors as objects, as eager does for real ones.

    The original swaps tensors and fails because the fake mode holds weak references to them.
    """

    def put(parameter: nn.Parameter, value: torch.Tensor) -> None:
        if value is not parameter:
            parameter.data = value
            if isinstance(parameter, FakeTensor):
                parameter.fake_device = value.fake_device

    def apply(self: nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        if not any(isinstance(p, FakeTensor) for p in self.parameters()):
            return original(self, fn, recurse)
        with torch.no_grad():
            for module in self.modules() if recurse else [self]:
                for parameter in module._parameters.values():
                    if parameter is not None:
                        put(parameter, fn(parameter))
                        if parameter.grad is not None:
                            parameter.grad = fn(parameter.grad)
                for name, buffer in module._buffers.items():
                    if buffer is not None:
                        module._buffers[name] = fn(buffer)
        return self

    return apply


class Recompute:
    """Whether a reentrant checkpoint is recomputing, which renumbers autograd's nodes."""

    depth = 0


@contextmanager
def _watch_reentrant(state: Recompute) -> Iterator[None]:
    from torch.utils.checkpoint import CheckpointFunction

    original = CheckpointFunction.backward

    def backward(*args: Any) -> Any:
        state.depth += 1
        torch._C._set_only_lift_cpu_tensors(True)
        try:
            return original(*args)
        finally:
            state.depth -= 1

    with _set(CheckpointFunction, "backward", staticmethod(backward)):
        yield


@contextmanager
def _constants_in_recomputation() -> Iterator[None]:
    """Constants that a layer makes again in the backward thread become fake tensors there too.

    ``FakeTensorMode`` asks torch to make them on the CPU first, but only in the thread that entered the mode.
    """
    import torch.utils.checkpoint as checkpoint

    original = checkpoint._run_fn_with_dynamo_disabled

    def run(*args: Any, **kwargs: Any) -> Any:
        torch._C._set_only_lift_cpu_tensors(True)
        return original(*args, **kwargs)

    with _set(checkpoint, "_run_fn_with_dynamo_disabled", run):
        yield


def _grouped_mm_in_any_dtype(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Shapes of ``grouped_mm`` in fp32 and fp16 too.

    torch 2.13.0 knows them in bf16 alone, though the CUDA operator takes the others by products one group
    after another into the same output (``cuda/GroupedBlas.cpp`` ``_grouped_mm_cuda``).
    """

    def shapes(mat_a: torch.Tensor, mat_b: torch.Tensor, **rest: Any) -> torch.Tensor:
        if mat_a.dtype not in (torch.float32, torch.float16) or mat_a.dtype != mat_b.dtype:
            return original(mat_a, mat_b, **rest)
        return registrations._create_grouped_mm_output_tensor(mat_a, mat_b, rest["offs"], rest["out_dtype"])

    return shapes


@contextmanager
def fake_cuda(attention: Callable[..., torch.Tensor], arch: str = "sm80") -> Iterator[Recompute]:
    """Let fake tensors live on "cuda" on a machine without a GPU.

    Args:
        attention: stands in for ``scaled_dot_product_attention`` (see ``sdpa.py``): without CUDA kernels
            torch would take its quadratic fallback.
        arch: the GPU architecture that capability queries report.

    Raises:
        RuntimeError: a torch that cannot be patched.
    """
    import torch.cuda.amp.common as amp
    import transformers.utils.import_utils as imports

    if not _HAS_FAKE_GUARD:
        raise RuntimeError("it has no device guard for fake CUDA tensors")
    state = Recompute()
    with ExitStack() as stack:
        if not torch.cuda.is_available():
            stack.enter_context(_accelerator(ctypes.CDLL(str(_LIBRARIES / "libtorch_cpu.so")), _guard_registry()))
        if not torch.backends.cuda.is_built():
            stack.enter_context(_cuda_kernels())
        for owner, name, value in (
            (amp, "amp_definitely_not_available", lambda: False),
            (torch.cuda, "is_bf16_supported", lambda *a, **k: CAPABILITY[arch] >= (8, 0)),
            (torch.cuda, "get_device_capability", lambda *a, **k: CAPABILITY[arch]),
            (torch.cuda, "synchronize", lambda *a, **k: None),  # bitsandbytes' optimizers wait for the device
            (nn.functional, "scaled_dot_product_attention", attention),
            (nn.Module, "_apply", _apply_in_place(nn.Module._apply)),
            (registrations, "_meta_grouped_mm_common", _grouped_mm_in_any_dtype(registrations._meta_grouped_mm_common)),
            # deepcopy of a module (PEFT modules_to_save) must not copy the mode its tensors belong to.
            (FakeTensorMode, "__deepcopy__", lambda self, memo: self),
        ):
            stack.enter_context(_set(owner, name, value))
        if hasattr(imports, "is_fake_tensor"):  # since transformers 4.54
            # Masks: transformers takes fake tensors for a compiler's and then builds masks it skips otherwise.
            stack.enter_context(_set(imports, "is_fake_tensor", lambda x: False))
        stack.enter_context(_watch_reentrant(state))
        stack.enter_context(_constants_in_recomputation())
        stack.enter_context(flash_package())
        stack.enter_context(fake_triton())
        yield state


_install_guard()
