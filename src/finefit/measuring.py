"""The façade's third part: the lengths of training data, and what the longest samples cost.

    >>> from finefit import measuring
    >>> measuring.lengths("train.jsonl", "Qwen/Qwen2.5-7B", seq=2048).longest

As in ``finefit.api``, the answer is a frozen dataclass with ``to_dict()``, the JSON contract object.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Unpack

from finefit import api
from finefit.planner.lengths_answer import LengthsAnswer, lengths_answer
from finefit.planner.plan import Plan


def lengths(
    path: str | Path,
    model: str,
    *,
    tokenizer: str | Path | None = None,
    template: str | None = None,
    shape: str | None = None,
    gpu: str | None = None,
    as_of: str | dt.date | None = None,
    progress: Callable[[int], None] = lambda done: None,
    **flags: Unpack[api.Flags],
) -> LengthsAnswer:
    """Tokens of every sample of a file, and what batches of them hold.

    Args:
        path: a JSONL, JSON, CSV, Parquet or Arrow file.
        model: as ``api.memory`` takes it; its tokenizer counts where it lies on this machine.
        tokenizer: another tokenizer.json, or its folder.
        template: a template of LLaMA-Factory, "none", or the model's own if left out.
        shape: sharegpt, alpaca, messages, text or preference; told by the content if left out.
        gpu: the GPUs whose memory, hours and money the longest samples cost.
        flags: how the model is trained. ``seq`` is what samples are cut to, ``batch`` the samples of a micro-batch;
            without ``method`` memory and time are not answered.

    Raises:
        InputError, UnknownModel, UnknownGpu, NotModelled: what, where and how to fix it.
    """
    seq, batch = flags.get("seq"), flags.get("batch")
    answer = lengths_answer(
        path,
        model,
        as_of=api.day_of(as_of),
        tokenizer=tokenizer,
        template=template,
        shape=shape,
        cutoff=seq,
        batch=1 if batch is None else batch,
        progress=progress,
    )
    if flags.get("method") is None:
        return answer
    whole, less = (_planned(answer, model, gpu, as_of, flags, without) for without in (False, True))
    saved = replace(answer.saving, memory=_held(whole) - _held(less))
    if whole.run is not None and whole.cluster is not None and whole.recipe.epochs is not None:
        # The padded tokens that go are those of long batches: they go at the speed of the long rows.
        fewer = answer.batchings["padding"].epoch_tokens - answer.kept_padded
        seconds = fewer * whole.recipe.epochs / whole.run.tokens_per_second
        hours = Decimal(str(seconds)) / 3600 * whole.cluster.count
        saved = replace(saved, seconds=seconds, price=None if whole.price is None else whole.price * hours)
    return replace(answer, saving=saved)


def _held(plan: Plan) -> int:
    """What nvidia-smi shows where the GPU is stated, so that the memory outside the allocator is known."""
    return plan.peak.allocated if plan.peak.device is None else plan.peak.device


def _planned(
    answer: LengthsAnswer, model: str, gpu: str | None, as_of: str | dt.date | None, flags: api.Flags, without: bool
) -> Plan:
    """The run on all samples, or without the longest ones, at its longest sample."""
    saving = answer.saving
    stated = api.Flags(**{**flags, "seq": saving.longest if without else answer.longest})
    samples = answer.samples - saving.samples if without else answer.samples
    tokens = answer.mean * answer.samples - (saving.tokens if without else 0)
    plan = api.plan(model, gpu=gpu, as_of=as_of, samples=samples, mean_length=tokens / samples, **stated)
    assert isinstance(plan, Plan)  # a method and a length are stated
    return plan
