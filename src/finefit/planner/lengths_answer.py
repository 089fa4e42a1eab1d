"""Lengths of a data file: how long the samples are, what batches of them hold, what the longest ones cost."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from finefit.catalog.revision import catalog_revision
from finefit.errors import InputError
from finefit.planner.plain import head, money, number
from finefit.resolve.chat_templates import template_of
from finefit.resolve.measure import measure
from finefit.resolve.token_count import ERROR, counter_of
from finefit.workload.batches import Batching, grouped, histogram, packed, padded, percentile

if TYPE_CHECKING:
    from finefit.units import Money

SCHEMA = "finefit/lengths/1"
SHARES = (0.5, 0.9, 0.95, 0.99)
_KEPT = 0.99  # "the longest 1 %" is left out
_LARGEST = 10**6  # of a batch and of a truncation: more is a slip


@dataclass(frozen=True, slots=True)
class Saving:
    """What leaving out the longest 1 % saves; None where it is not asked for, or unknown.

    Attributes:
        samples: left out; longest: tokens of the longest one that stays; tokens: fewer in one pass, without padding.
        memory: bytes of the peak on one GPU; seconds: of the run; price: of the run.
    """

    samples: int
    longest: int
    tokens: int
    memory: int | None = None
    seconds: float | None = None
    price: Money | None = None


@dataclass(frozen=True, slots=True)
class LengthsAnswer:
    """The lengths of one file.

    Attributes:
        counted_by: the tokenizer's file or the rule; exact: the tokenizer is the model's.
        samples, tokens, mean, longest: after truncation, of all usable samples; of a pair, its longer answer's length.
        longest_line: where the longest is before truncation, and longest_uncut its tokens there.
        truncated: samples that are cut.
        rows_per_sample: 2 for preference pairs, whose answers are two rows of a batch.
        batchings: by name (padding, group_by_length, packing), of ``batch`` samples.
        kept_padded: tokens of one pass of padded batches without the longest 1 %.
        packing_rows: rows of ``row`` tokens that packing fills.
    """

    file: str
    model: str
    shape: str
    counted_by: str
    exact: bool
    batch: int
    cutoff: int | None
    samples: int
    tokens: int
    mean: float
    longest: int
    longest_line: int
    longest_uncut: int
    truncated: int
    rows_per_sample: int
    percentiles: dict[float, int]
    histogram: list[tuple[int, int, int]]
    batchings: dict[str, Batching]
    kept_padded: int
    packing_rows: int
    bad: int
    bad_rows: tuple[tuple[int, str], ...]
    saving: Saving
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    as_of: dt.date

    @property
    def catalog_revision(self) -> str:
        """Of the facts that the answer rests on."""
        return catalog_revision()

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract object."""
        saving = self.saving
        return {
            **head(SCHEMA, self.as_of, self.catalog_revision),
            "file": self.file,
            "model": self.model,
            "shape": self.shape,
            "counted_by": self.counted_by,
            "exact": self.exact,
            "error": None if self.exact else {"low": ERROR[0], "high": ERROR[1]},
            "cutoff": self.cutoff,
            "samples": self.samples,
            "rows_per_sample": self.rows_per_sample,
            "tokens": self.tokens,
            "mean": number(self.mean),
            "longest": self.longest,
            "longest_line": self.longest_line,
            "longest_uncut": self.longest_uncut,
            "truncated": self.truncated,
            "percentiles": {f"{share * 100:g}": tokens for share, tokens in self.percentiles.items()},
            "histogram": [{"from": a, "to": b, "samples": n} for a, b, n in self.histogram],
            "batch": self.batch,
            "batches": {
                name: {"longest_batch_tokens": each.longest_batch, "epoch_tokens": each.epoch_tokens}
                for name, each in self.batchings.items()
            },
            "packing_rows": self.packing_rows,
            "bad_rows": self.bad,
            "bad_rows_named": [{"line": line, "reason": why} for line, why in self.bad_rows],
            "without_longest_percent": {
                "samples": saving.samples,
                "longest": saving.longest,
                "tokens_saved": saving.tokens,
                "memory_saved_bytes": saving.memory,
                "seconds_saved": number(saving.seconds),
                "price_saved": money(saving.price),
            },
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }


def lengths_answer(
    path: str | Path,
    model: str,
    *,
    as_of: dt.date,
    tokenizer: str | Path | None = None,
    template: str | None = None,
    shape: str | None = None,
    cutoff: int | None = None,
    batch: int = 1,
    progress: Callable[[int], None] = lambda done: None,
) -> LengthsAnswer:
    """Measure a file.

    Raises:
        InputError: a value, the file, its tokenizer or its template cannot be used.
    """
    for flag, value in (("--seq", cutoff), ("--batch", batch)):
        if value is not None and not 1 <= value <= _LARGEST:
            raise InputError(f"{value} is not a whole number from 1 to {_LARGEST}", where=flag, fix="correct it")
    counter = counter_of(model, tokenizer)
    written, assumed = template_of(template, counter)
    found = measure(path, counter, written, shape=shape, cutoff=cutoff, progress=progress)
    uncut = np.frombuffer(found.lengths, dtype=np.uint32).astype(np.int64)
    lengths = np.minimum(uncut, cutoff) if cutoff else uncut
    ordered = np.sort(lengths)
    at, n, pair = int(uncut.argmax()), len(lengths), found.rows_per_sample
    longest = int(ordered[-1])
    packing, rows = packed(lengths, batch, cutoff or longest)
    ways = {"padding": padded(ordered, batch), "group_by_length": grouped(lengths, batch)}
    ways = {name: Batching(each.longest_batch * pair, each.epoch_tokens * pair) for name, each in ways.items()}
    if pair == 1:
        ways["packing"] = packing
    kept = ordered[: max(1, int(n * _KEPT))]
    assumptions = [] if assumed is None or found.shape == "text" else [assumed]
    if not counter.exact:
        low, high = (f"{abs(part) * 100:.0f}" for part in ERROR)
        assumptions.append(
            f"tokens by {counter.source}: the model's own count may be {low} % lower or {high} % higher; "
            "name its tokenizer.json with --tokenizer"
        )
    warnings = []
    if found.bad:
        warnings.append(f"{found.bad} rows cannot be used and are left out")
    if found.pictured:
        warnings.append(f"{found.pictured} samples hold pictures, video or sound, whose tokens are not counted")
    return LengthsAnswer(
        file=str(path),
        model=model,
        shape=found.shape,
        counted_by=counter.source,
        exact=counter.exact,
        batch=batch,
        cutoff=cutoff,
        samples=n,
        tokens=found.cut_tokens,
        mean=float(lengths.mean()),
        longest=longest,
        longest_line=found.places[at],
        longest_uncut=int(uncut[at]),
        truncated=int((uncut > cutoff).sum()) if cutoff else 0,
        rows_per_sample=pair,
        percentiles={share: percentile(ordered, share) for share in SHARES},
        histogram=histogram(ordered),
        batchings=ways,
        kept_padded=padded(kept, batch).epoch_tokens * pair,
        packing_rows=rows if pair == 1 else 0,
        bad=found.bad,
        bad_rows=found.named,
        saving=Saving(n - len(kept), int(kept[-1]), int(ordered.sum() - kept.sum())),
        assumptions=tuple(assumptions),
        warnings=tuple(warnings),
        as_of=as_of,
    )
