"""The Timeline of a recipe from the real Transformers, PEFT and bitsandbytes code, on a machine without a GPU."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from finefit.errors import NotModelled
from finefit.memory.timeline import Timeline
from finefit.step.size import Dims
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe

try:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
except ImportError as error:  # pragma: no cover - depends on the environment
    raise NotModelled(f"tracing needs {error.name}", fix="pip install 'finefit[trace]'") from error

from finefit.lab.build import load_model, prepare_model, refuse_untraced
from finefit.lab.configured import Configured, foreign
from finefit.lab.encoder import labels
from finefit.lab.optimizers import build_optimizer
from finefit.lab.sdpa import attention
from finefit.lab.shim import CAPABILITY, fake_cuda
from finefit.lab.step import run, tensors_of
from finefit.lab.tracker import Tracker
from finefit.lab.versions import quiet
from finefit.lab.vision import known_grids, pictures

TORCH = "2.13.0"  # the version whose internals shim.py patches
# It ends at once: an interpreter that shuts down right after a backward pass can meet autograd's threads still alive.
_CHECK = """
import os, sys
from finefit.lab.trace import self_check
try:
    self_check()
except Exception as error:
    print(error.what, file=sys.stderr, flush=True)
    os._exit(1)
os._exit(0)
"""


@contextmanager
def no_collection() -> Iterator[None]:
    """Garbage collection at a random moment would free cycles at a random event.

    What is there already, the libraries above all, is left out of collections that are asked for.
    """
    enabled, frozen = gc.isenabled(), gc.get_freeze_count()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()
        if enabled:
            gc.enable()


def trace(
    model: Model,
    recipe: Recipe,
    *,
    arch: str = "sm80",
    config: Mapping[str, Any] | Configured | None = None,
) -> Timeline:
    """Load, first step and steady step of one GPU.

    Args:
        arch: compute capability of the GPU whose kernels are assumed ("sm80", "sm90", ...).
        config: the model's config.json, its keys or as read, to build it from in place of its dimensions.

    Raises:
        NotModelled: something in the recipe cannot be traced, or this torch cannot be patched.
    """
    refuse_untraced(recipe)
    ready(arch)
    with foreign(config):
        try:
            return _traced(model, recipe, arch, config)
        except RuntimeError as error:
            if "device_ready_queues_" not in str(error):
                raise
            raise NotModelled(
                "autograd ran in this process before finefit.lab was imported, so it has no thread for CUDA",
                fix="trace in a fresh process, or import finefit.lab.trace first",
            ) from error


def ready(arch: str) -> None:
    """Refuse what this machine or this version of torch cannot trace, before anything is traced.

    Raises:
        NotModelled: an architecture whose kernels are not known, or a torch that traces a known step wrongly.
    """
    if arch not in CAPABILITY:
        raise NotModelled(f"no kernels are known for {arch!r}", fix=f"use one of {', '.join(CAPABILITY)}")
    if torch.__version__.split("+")[0] != TORCH:
        warnings.warn(f"tracing was tested on torch {TORCH}, this is {torch.__version__}", stacklevel=3)
        _check_elsewhere()


def _traced(model: Model, recipe: Recipe, arch: str, config: Mapping[str, Any] | Configured | None) -> Timeline:
    rank = recipe.lora.rank if recipe.lora else 0
    with (
        warnings.catch_warnings(),
        quiet(),
        fake_cuda(attention(arch), arch) as recompute,
        FakeTensorMode(allow_non_fake_inputs=False),
        known_grids(model, recipe),
    ):
        warnings.simplefilter("ignore", FutureWarning)  # peft calls names that transformers 5 renamed
        module = load_model(model, recipe, config=config)
        with Tracker(recompute, arch, recipe.padded) as tracker, no_collection():
            for tensor, (_, owner) in tensors_of(module):
                tracker.adopt(tensor, owner)
            module = prepare_model(module, recipe)
            optimizer = build_optimizer(
                [(n, p) for n, p in module.named_parameters() if p.requires_grad], recipe.optimizer
            )
            tracker.attach(module)
            gc.collect()  # what building left behind must not count in the steps
            try:
                known = run(tracker, module, optimizer, recipe, pictures=lambda: beside(model, recipe))
            finally:
                tracker.detach()
            return tracker.timeline(known, Dims(recipe.micro_batch, recipe.seq_len, rank))


def beside(model: Model, recipe: Recipe) -> dict[str, Any]:
    """What a batch holds beside ids, labels and mask, or in their place."""
    return {**pictures(model, recipe, "cuda"), **labels(model, recipe, "cuda")}


@cache
def _check_elsewhere() -> None:
    """``self_check`` in a process of its own, which another torch may end: its C++ parts have other layouts.

    Raises:
        NotModelled: this version of torch cannot be traced.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", _CHECK], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        said = done.stderr.strip().splitlines() if done.returncode > 0 else []
        raise NotModelled(
            said[-1] if said else f"torch {torch.__version__} ends the process when a step is traced",
            fix=f"pip install torch=={TORCH}",
        )


def self_check() -> None:
    """Trace a step whose bytes are known by hand; refuse this torch when they differ.

    A bf16 linear layer of 64x64, 8 rows, y.sum().backward(): weight 8,192 B, input 1,024, output 1,024, the
    sum 2, its gradient 2 and the weight's gradient 8,192, each in blocks of 512.

    Raises:
        NotModelled: this version of torch cannot be traced.
    """
    try:
        with (
            fake_cuda(attention("sm80")) as recompute,
            FakeTensorMode(allow_non_fake_inputs=False),
            Tracker(recompute, "sm80", False) as tracker,
        ):
            layer = torch.nn.Linear(64, 64, bias=False, dtype=torch.bfloat16, device="cuda")
            tracker.mark("forward", 1)
            out = layer(torch.empty(8, 64, dtype=torch.bfloat16, device="cuda"))
            loss = out.sum()
            tracker.mark("backward", 1)
            loss.backward()
            timeline = tracker.timeline({}, Dims(8, 64))
        real = [t for t in timeline.tensors if not t.assumed]
        sizes = sorted(t.size.numel for t in real)
    except Exception as error:
        raise NotModelled(
            f"torch {torch.__version__} cannot be traced ({str(error).splitlines()[0]})",
            fix=f"pip install torch=={TORCH}",
        ) from error
    if sizes != [2, 2, 1024, 1024, 8192, 8192]:
        raise NotModelled(f"torch {torch.__version__} traces a known step wrongly", fix=f"pip install torch=={TORCH}")
