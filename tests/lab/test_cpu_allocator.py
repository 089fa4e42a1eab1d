"""The trace against the truth a CPU can give: real tensors, and the allocator's own record of the same step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import pytest

from finefit.workload import DType, Lora, Model, Optimizer, Recipe

torch = pytest.importorskip("torch", reason="needs the trace extra: pip install 'finefit[trace]'")
pytest.importorskip("transformers", reason="needs the trace extra")
pytest.importorskip("peft", reason="needs the trace extra")

from finefit.lab import kernels  # noqa: E402
from finefit.lab.build import load_model, prepare_model  # noqa: E402
from finefit.lab.optimizers import build_optimizer  # noqa: E402
from finefit.lab.step import STEPS, run  # noqa: E402
from finefit.lab.trace import trace  # noqa: E402

TINY = Model("tiny", "llama", 256, 3, 4, 2, 64, 688, 1000, tied=False)
MHA = replace(TINY, kv_heads=4)
BF16 = Recipe("full", DType.BF16, Optimizer("adamw", "fused"), seq_len=256, micro_batch=4, attention="eager")
FP32 = replace(BF16, weight_dtype=DType.FP32)
LORA = Lora(8, 16, targets=("q_proj", "v_proj", "down_proj"))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine make tiny steps slow."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class _Profiled:
    """Recorder that profiles the last step and nothing before it."""

    def __init__(self) -> None:
        self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
        self.on = False

    def __len__(self) -> int:
        return 0

    def mark(self, phase: str, step: int) -> None:
        if step == STEPS and not self.on:
            self.on = True
            self.profile.start()

    def module(self, name: str) -> object:
        return nullcontext()

    def block_of(self, tensor: object) -> None:
        return None


def measured(model: Model, recipe: Recipe) -> int:
    """Bytes the real last step adds at its peak to what lives when it starts."""
    torch.manual_seed(0)
    module = prepare_model(load_model(model, recipe, "cpu"), recipe)
    optimizer = build_optimizer([(n, p) for n, p in module.named_parameters() if p.requires_grad], recipe.optimizer)
    recorder = _Profiled()
    run(recorder, module, optimizer, recipe, "cpu")  # type: ignore[arg-type]
    recorder.profile.stop()
    records = recorder.profile.profiler.kineto_results.events()
    live = peak = 0
    for record in sorted((r for r in records if r.name() == "[memory]"), key=lambda r: r.start_ns()):
        live += record.nbytes()
        peak = max(peak, live)
    return peak


def traced(model: Model, recipe: Recipe, *, assumed: bool = False) -> int:
    """The same of the trace, in bytes as asked for and without what only CUDA kernels take."""
    timeline = trace(model, recipe)
    sizes = [0 if t.assumed and not assumed else t.size.raw(timeline.dims) for t in timeline.tensors]
    start = next(m.start for m in timeline.marks if m.step == STEPS)
    live = peak = 0
    for event in timeline.events[start:]:
        live += sizes[event] if event >= 0 else -sizes[~event]
        peak = max(peak, live)
    return peak


EQUAL = {
    "fp32": FP32,
    "bf16": BF16,
    "bf16 sdpa": replace(BF16, attention="sdpa"),
    "bf16 checkpointed": replace(BF16, checkpointing="full"),
    "bf16 checkpointed reentrant": replace(BF16, checkpointing="full", reentrant=True),
    "fp32 checkpointed": replace(FP32, checkpointing="full"),
    "autocast": replace(FP32, autocast=DType.BF16),
    "autocast checkpointed": replace(FP32, autocast=DType.BF16, checkpointing="full"),
    "outputs kept": replace(BF16, keeps_outputs=True),
    "accumulation": replace(BF16, grad_accum=2),
    "fp32 lora": replace(FP32, method="lora", lora=LORA),
    "bf16 lora": replace(BF16, method="lora", lora=LORA),
}


@pytest.mark.parametrize("name", EQUAL)
def test_trace_equals_the_cpu_allocator(name: str) -> None:
    recipe = EQUAL[name]
    assert traced(TINY, recipe) == pytest.approx(measured(TINY, recipe), rel=1e-3)


def test_fp32_attention_without_grouped_queries() -> None:
    """With grouped queries CUDA would take its quadratic fallback in fp32, where the CPU has a kernel."""
    recipe = replace(FP32, attention="sdpa")
    assert traced(MHA, recipe) == pytest.approx(measured(MHA, recipe), rel=1e-3)


def _cpu_casts(args: tuple[object, ...], kwargs: object) -> list[int]:
    """Temporaries of ATen/TensorIterator.cpp for operands of another dtype than the result."""
    tensors = [a for a in args if isinstance(a, torch.Tensor) and a.dim() > 0]
    common = max((t.element_size() for t in tensors), default=0)
    return [common * t.numel() for t in tensors if t.element_size() != common]


@pytest.mark.parametrize("reentrant", [False, True])
def test_bf16_lora_with_checkpointing_differs_by_cpu_casts_alone(
    reentrant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU casts bf16 operands of an fp32 operation into temporaries, CUDA in registers."""
    recipe = replace(BF16, method="lora", lora=LORA, checkpointing="full", reentrant=reentrant)
    truth, bare = measured(TINY, recipe), traced(TINY, recipe)
    monkeypatch.setattr(kernels, "TEMPS", {"aten::add": _cpu_casts, "aten::mul": _cpu_casts})
    monkeypatch.setattr(kernels, "CUBLAS", frozenset())
    with_casts = traced(TINY, recipe, assumed=True)
    assert bare <= with_casts
    assert with_casts == pytest.approx(truth, rel=1e-3)
