"""One rank of a sharded run, traced: the real FSDP2 and tensor parallelism under a process group that sends nothing.

Collectives of torch's fake backend return at once; streams and events, which a CPU build lacks, do nothing, so
everything runs on one stream and a buffer that waits for another stream in reality is free as soon as it is
dropped. Units are those that accelerate makes (1.15.0 ``utils/fsdp_utils.py`` ``fsdp2_prepare_model``).
"""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator

from finefit.errors import NotModelled
from finefit.lab.build import DTYPES, load_model, prepare_model, refuse_untraced
from finefit.lab.configured import Configured, foreign
from finefit.lab.optimizers import build_optimizer
from finefit.lab.resharded import KINDS, base, with_sharding
from finefit.lab.sdpa import attention
from finefit.lab.shim import fake_cuda
from finefit.lab.step import run, tensors_of
from finefit.lab.trace import beside, no_collection, ready, trace
from finefit.lab.tracker import Label, Tracker, canonical
from finefit.lab.versions import quiet
from finefit.lab.vision import known_grids
from finefit.memory.timeline import Timeline
from finefit.step.size import Dims
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe


class _Nothing:
    """A stream or an event of a device that runs everything at once."""

    device_index = stream_id = cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        return event or _Nothing()

    def _nothing(self, *args: Any) -> None:
        pass

    record = wait = wait_event = wait_stream = synchronize = _nothing


@contextmanager
def process_group(ranks: int) -> Iterator[DeviceMesh]:
    """This process as rank 0 of ``ranks``, each with one CUDA device; must be entered outside of fake tensors."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    with ExitStack() as stack:
        # the group that finishes the backward pass asks the accelerator, whatever it is
        stack.enter_context(patch.object(torch.accelerator, "current_stream", lambda device=None: _Nothing()))
        for name, value in (
            ("current_device", lambda: 0),
            ("set_device", lambda device: None),
            ("Stream", _Nothing),
            ("Event", _Nothing),
            ("current_stream", lambda device=None: _Nothing()),
            ("stream", lambda stream: stream),
        ):
            stack.enter_context(patch.object(torch.cuda, name, value))
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
        stack.callback(dist.destroy_process_group)
        yield init_device_mesh("cuda", (ranks,))


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


class ShardedTracker(Tracker):
    """A tracker that counts this rank's part of distributed tensors, and what FSDP gathers and reduces."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.found: dict[int, Label] = {}
        self._shadow = 0  # depth of DTensor's own computations on tensors of the whole size
        self._collective: tuple[str, str] | None = None
        self._patches = ExitStack()

    def __enter__(self) -> ShardedTracker:
        for owner, name, wrap in (
            (torch.UntypedStorage, "resize_", self._resizing),
            (ShardingPropagator, "_propagate_tensor_meta_non_cached", self._shadowing),
            (FSDPParamGroup, "unshard", partial(self._collecting, "all_gather")),
            (FSDPParamGroup, "wait_for_unshard", partial(self._collecting, "all_gather")),
            (FSDPParamGroup, "post_backward", partial(self._collecting, "reduce_scatter")),
        ):
            self._patches.enter_context(patch.object(owner, name, wrap(getattr(owner, name))))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patches.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it runs the operator on the local tensors next
        if self._shadow:
            return func(*args, **(kwargs or {}))
        if func is torch.ops._c10d_functional.wait_tensor.default:
            return args[0]  # its meta function makes a new tensor, the real one does not
        return super().__torch_dispatch__(func, types, args, kwargs)

    def block_of(self, tensor: torch.Tensor) -> int | None:
        return super().block_of(_local(tensor))

    def _see(self, tensor: torch.Tensor, op: str, source: Any = None) -> int | None:
        return super()._see(_local(tensor), op, source)

    def _allocate(self, nbytes: int, op: str, assumed: bool = False, module: str | None = None) -> int:
        if self._collective is None:
            return super()._allocate(nbytes, op, assumed, module)
        op, owner = self._collective
        block = super()._allocate(nbytes, op, assumed, owner)
        self.found[block] = ("buffers", owner)
        return block

    # -- patches -----------------------------------------------------------------------------------

    def _shadowing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def propagate(*args: Any, **kwargs: Any) -> Any:
            self._shadow += 1
            try:
                return original(*args, **kwargs)
            finally:
                self._shadow -= 1

        return propagate

    def _collecting(self, op: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """What a group of parameters allocates here is a buffer of a collective; the gradients it reduces are known."""

        def collect(group: FSDPParamGroup, *args: Any, **kwargs: Any) -> Any:
            for parameter in group.fsdp_params if op == "reduce_scatter" else ():
                gradient = getattr(parameter, "unsharded_param", None)
                gradient = None if gradient is None else gradient.grad
                block = None if gradient is None else self.block_of(gradient)
                if block is not None:
                    owner = canonical(parameter._param_fqn or "").rpartition(".")[0]
                    self.found[block] = ("gradients", owner)
            before, self._collective = self._collective, (op, canonical(group._module_fqn or ""))
            try:
                return original(group, *args, **kwargs)
            finally:
                self._collective = before

        return collect

    def _resizing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """FSDP gives memory of gathered parameters back, and takes it again, by resizing their storage."""

        def resize(storage: torch.UntypedStorage, nbytes: int) -> Any:
            before, out = storage.nbytes(), original(storage, nbytes)
            address = storage._cdata
            block = self._live.get(address)
            if block is None or before == nbytes:
                return out
            if before:
                self._dead(block, address, None)
            block = self._allocate(nbytes, "resize_")  # of no bytes: holds the storage's address until it dies
            self._live[address] = block
            self._refs[block] = weakref.ref(storage, partial(self._dead, block, address))
            return out

        return resize


def shard(module: Any, recipe: Recipe, mesh: DeviceMesh) -> None:
    """FSDP2 units of a model: each layer, the embedding, final norm with head, and what is left."""
    policy = MixedPrecisionPolicy()
    if recipe.autocast is not None:  # accelerate 1.15.0 dataclasses.py set_mixed_precision
        half = DTYPES[recipe.autocast]
        policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=half, output_dtype=half)
    options: dict[str, Any] = {"mesh": mesh, "mp_policy": policy}
    body = module.get_base_model() if hasattr(module, "get_base_model") else module
    classes = set(body._no_split_modules or ())
    for child in list(body.modules()):
        if type(child).__name__ in classes:
            fully_shard(child, reshard_after_forward=True, **options)
    embedding, head = body.get_input_embeddings(), body.get_output_embeddings()
    norms = [m for name, m in body.base_model.named_children() if "norm" in name or name == "ln_f"]
    tied = head is not None and embedding.weight is head.weight
    if not tied:
        fully_shard(embedding, reshard_after_forward=True, **options)
    tail = [*norms[-1:], *([embedding] if tied else []), *([head] if head is not None else [])]
    fully_shard(tail, reshard_after_forward=False, **options)
    fully_shard(module, **options)


def trace_sharded(model: Model, recipe: Recipe, *, arch: str = "sm80", config: Configured | None = None) -> Timeline:
    """Load, first step and steady step of one rank.

    FSDP runs the real FSDP2; loading is taken as accelerate does it with ``cpu_ram_efficient_loading``: a rank's
    own shards alone reach its device. DDP and ZeRO 1 and 2 are the trace of one GPU with their buffers and states
    laid over it, marked as assumed (``resharded``).

    Args:
        arch, config: as for ``trace``.

    Raises:
        NotModelled: another sharding, offloading, FSDP of quantised weights, or what one GPU cannot be traced with.
    """
    sharding = recipe.sharding
    offloaded = sharding.offload_params or sharding.offload_optimizer
    if offloaded or sharding.kind not in ("fsdp", *KINDS) or (sharding.kind == "fsdp" and recipe.quant is not None):
        raise NotModelled(
            f"sharding {sharding.kind!r} of this recipe cannot be traced",
            fix=f"use fsdp of 16-bit weights, {', '.join(KINDS)}, without offloading",
        )
    if sharding.kind in KINDS:
        return with_sharding(trace(model, base(recipe), arch=arch, config=config), recipe)
    refuse_untraced(base(recipe))
    ready(arch)
    with (
        warnings.catch_warnings(),
        foreign(config),
        quiet(),
        fake_cuda(attention(arch), arch) as recompute,
        process_group(sharding.ranks) as mesh,
        FakeTensorMode(allow_non_fake_inputs=False),
        known_grids(model, recipe),
    ):
        warnings.simplefilter("ignore")
        module = prepare_model(load_model(model, recipe, config=config), recipe)
        shard(module, recipe, mesh)
        return record(ShardedTracker(recompute, arch, recipe.padded), module, model, recipe, sharding.ranks)


def record(tracker: ShardedTracker, module: Any, model: Model, recipe: Recipe, ranks: int) -> Timeline:
    """Train a prepared module of ``model`` under the tracker."""
    dims = Dims(recipe.micro_batch, recipe.seq_len, recipe.lora.rank if recipe.lora else 0, ranks)
    with tracker, no_collection():
        for tensor, (_, owner) in tensors_of(module):
            tracker.adopt(tensor, owner)
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        optimizer = build_optimizer([(name, p) for name, p in trained if isinstance(p, DTensor)], recipe.optimizer)
        whole = [p for _, p in trained if not isinstance(p, DTensor)]
        if whole:  # of a kind each: one kernel takes distributed tensors or plain ones
            optimizer.add_param_group({"params": whole})
        tracker.attach(module)
        gc.collect()
        try:
            known = run(tracker, module, optimizer, recipe, pictures=lambda: beside(model, recipe))
        finally:
            tracker.detach()
        return tracker.timeline({**tracker.found, **known}, dims)
