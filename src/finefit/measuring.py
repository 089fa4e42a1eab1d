"""The façade's third part: the lengths of training data, and what the longest samples cost.

    >>> from finefit import measuring
    >>> measuring.lengths("train.jsonl", "Qwen/Qwen2.5-7B", seq=2048).longest

As in ``finefit.api``, the answer is a frozen dataclass with ``to_dict()``, the JSON contract object.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Unpack

from finefit import api
from finefit.planner.lengths_answer import LengthsAnswer, lengths_answer
from finefit.planner.plan import Plan
from finefit.units import Money


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
        batch=batch or 1,
        progress=progress,
    )
    if flags.get("method") is None:
        return answer
    whole, less = (_priced(answer, model, gpu, as_of, flags, without) for without in (False, True))
    saved = replace(
        answer.saving,
        memory=whole.memory - less.memory,
        seconds=None if whole.seconds is None or less.seconds is None else whole.seconds - less.seconds,
        price=None
        if whole.price is None or less.price is None
        else replace(whole.price, amount=whole.price.amount - less.price.amount),
    )
    return replace(answer, saving=saved)


@dataclass(frozen=True, slots=True)
class _Priced:
    """Bytes of the peak on one GPU, seconds and GPU-hours' price of the run; None unknown."""

    memory: int
    seconds: float | None
    price: Money | None


def _priced(
    answer: LengthsAnswer, model: str, gpu: str | None, as_of: str | dt.date | None, flags: api.Flags, without: bool
) -> _Priced:
    """The run on all samples, or without the longest ones: at its longest sample, for the tokens of its batches."""
    saving = answer.saving
    stated = api.Flags(**{**flags, "seq": saving.longest if without else answer.longest})
    samples = answer.samples - saving.samples if without else answer.samples
    tokens = answer.mean * answer.samples - (saving.tokens if without else 0)
    plan = api.plan(model, gpu=gpu, as_of=as_of, samples=samples, mean_length=tokens / samples, **stated)
    assert isinstance(plan, Plan)  # a method and a length are stated
    # What nvidia-smi shows, where the GPU is stated and so the memory outside the allocator is known.
    held = plan.peak.allocated if plan.peak.device is None else plan.peak.device
    if plan.run is None or plan.cluster is None or plan.recipe.epochs is None:
        return _Priced(held, None, None)
    padded = answer.kept_padded if without else answer.batchings["padding"].epoch_tokens
    seconds = padded * plan.recipe.epochs / plan.run.tokens_per_second
    price = None if plan.price is None else plan.price * (Decimal(str(seconds)) / 3600 * plan.cluster.count)
    return _Priced(held, seconds, price)
