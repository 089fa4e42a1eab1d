"""Token lengths of the training data, as far as they are known. Unknown is None, never zero."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lengths:
    """Samples and tokens of one epoch.

    Attributes:
        longest: tokens of the longest sample after truncation.
        mean: mean tokens of a sample, without padding.
        samples: samples an epoch.
        tokens: tokens an epoch, without padding.
        source: file or flag they came from.
    """

    longest: int | None = None
    mean: float | None = None
    samples: int | None = None
    tokens: int | None = None
    source: str = ""
