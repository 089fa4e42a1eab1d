"""Small types that every answer shares, and the answer of ``finefit memory``.

Kept apart from ``plan`` so that memory alone loads neither prices nor the time model.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from finefit.memory.peak import Peak
from finefit.workload.cluster import Cluster
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe
from finefit.workload.sourced import Source

if TYPE_CHECKING:
    from finefit.planner.explain import Explanation


class Fits(StrEnum):
    """Whether the run fits the GPUs as configured."""

    YES = "yes"  # the upper end of the bracket is within the usable memory
    TIGHT = "tight"  # the usable memory lies inside the bracket
    NO = "no"  # the lower end is beyond it
    UNKNOWN = "unknown"  # no GPU was stated


@dataclass(frozen=True, slots=True)
class Margin:
    """Step 4: what is left on each GPU.

    Attributes:
        usable: bytes of the card that torch reports as total.
        low, high: bracket of the need, CUDA context and communication buffers included: the least capacity
            at which the allocator survives, and what it takes when nothing presses it.
        bytes: ``usable - high``; negative when the run does not surely fit.
    """

    usable: int
    low: int
    high: int

    @property
    def bytes(self) -> int:
        """Bytes left at the upper end of the bracket."""
        return self.usable - self.high


@dataclass(frozen=True, slots=True)
class MemoryAnswer:
    """What one GPU needs, and whether the stated GPUs hold it.

    Attributes:
        model_text: what the user called the model; origin: "flags" or the config's path.
        sources: where each input came from, by dotted field name.
        cluster: the stated GPUs, None without.
        peak: the four numbers on the fullest GPU. ``required`` is None where no search for it was asked for.
        context: bytes outside the allocator that ``peak.device`` includes.
        fits, margin: against the stated GPUs; unknown and None without.
        exact: whether a stored trace of the real code was used; None where none was asked for.
        explanation: the formulas behind the allocated peak, where they were asked for.
    """

    model: Model
    model_text: str
    recipe: Recipe
    cluster: Cluster | None
    origin: str
    sources: Mapping[str, Source]
    as_of: dt.date
    catalog_revision: str
    peak: Peak
    context: int
    fits: Fits
    margin: Margin | None
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    exact: bool | None = None
    explanation: Explanation | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract object."""
        from finefit.planner.contract import memory_object

        return memory_object(self)
