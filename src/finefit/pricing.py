"""The façade's second half: what is known of GPUs and their prices, and what a job costs altogether.

    >>> from finefit import pricing
    >>> pricing.offers(gpu="RTX 4090", kinds="spot", as_of="2026-11-30").rows[0].offer.kind
    <Kind.SPOT: 'spot'>

As in ``finefit.api``, every answer is a frozen dataclass with ``to_dict()``, the JSON contract object.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from finefit.api import currency_of, day_of

if TYPE_CHECKING:
    from finefit.planner.gpu_list import GpuList
    from finefit.planner.offer_list import OfferList


def offers(
    *,
    gpu: str | None = None,
    min_memory: str | None = None,
    kinds: str = "",
    region: str | None = None,
    currency: str | None = None,
    as_of: str | dt.date | None = None,
) -> OfferList:
    """Published prices of GPU-hours, cheapest first.

    Args:
        gpu: "RTX 4090"; min_memory: of each GPU, "40GB" on the box or "39GiB" as torch reports it.
        kinds: terms separated by commas: on-demand, spot, community, monthly, yearly; all where empty.
        region: mainland, hong-kong, overseas, unknown, or a part of a region's name.
        currency: USD (where left out) or CNY.

    Raises:
        InputError, UnknownGpu: what, where and how to fix it.
    """
    from finefit.planner.offer_list import check_kinds, list_offers

    return list_offers(
        on=day_of(as_of),
        gpu=gpu,
        min_memory=min_memory,
        kinds=check_kinds(kinds),
        region=region,
        currency=currency_of(currency) or "USD",
    )


def gpus(name: str | None = None, *, as_of: str | dt.date | None = None) -> GpuList:
    """What the catalogue knows of every GPU, or of the one that a name means.

    Raises:
        UnknownGpu: no such card, or several of that name: the fix lists them.
    """
    from finefit.planner.gpu_list import list_gpus

    return list_gpus(name, on=day_of(as_of))
