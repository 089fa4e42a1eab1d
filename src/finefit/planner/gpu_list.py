"""What the catalogue knows of one card, or of all."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from finefit.catalog.gpu_facts import GpuFacts, all_facts, facts_of, variants
from finefit.catalog.gpu_names import find_gpu
from finefit.catalog.revision import catalog_revision

GPUS_SCHEMA = "finefit/gpus/1"


@dataclass(frozen=True, slots=True)
class GpuList:
    """Cards of the catalogue.

    Attributes:
        one: a single card was asked for; ``variants`` then are the cards that share its model number.
        notes: what the name was read as.
    """

    gpus: tuple[GpuFacts, ...]
    as_of: dt.date
    catalog_revision: str
    one: bool = False
    variants: tuple[GpuFacts, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract object."""
        from finefit.planner.listing_contract import gpus_object

        return gpus_object(self)


def list_gpus(name: str | None, *, on: dt.date) -> GpuList:
    """All cards, or the one that a name means with those it may be confused with.

    Raises:
        UnknownGpu: no such card, or several of that name: the fix lists them.
    """
    if name is None:
        return GpuList(all_facts(), on, catalog_revision())
    match = find_gpu(name, where="NAME")
    facts = facts_of(match.gpu.id)
    return GpuList((facts,), on, catalog_revision(), one=True, variants=variants(facts), notes=match.notes)
