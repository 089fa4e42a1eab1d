"""The façade's second half: what is known of GPUs and their prices, and what a job costs altogether.

    >>> from finefit import pricing
    >>> pricing.offers(gpu="RTX 4090", kinds="spot", as_of="2026-11-30").rows[0].offer.kind
    <Kind.SPOT: 'spot'>

As in ``finefit.api``, every answer is a frozen dataclass with ``to_dict()``, the JSON contract object.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from finefit.api import Question, currency_of, day_of

if TYPE_CHECKING:
    from finefit.catalog.offers import Offer
    from finefit.planner.cost_answer import CostAnswer
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
    refreshed: Iterable[Offer] | None = None,
) -> OfferList:
    """Published prices of GPU-hours, cheapest first.

    Args:
        gpu: "RTX 4090"; min_memory: of each GPU, "40GB" on the box or "39GiB" as torch reports it.
        kinds: terms separated by commas: on-demand, spot, community, monthly, yearly; all where empty.
        region: mainland, hong-kong, overseas, unknown, or a part of a region's name.
        currency: USD (where left out) or CNY.
        refreshed: newer prices; each stands in for the bundled one of the same offer.

    Raises:
        InputError, UnknownGpu: what, where and how to fix it.
    """
    from finefit.catalog.offers import newest
    from finefit.planner.offer_list import check_kinds, list_offers

    on = day_of(as_of)
    return list_offers(
        on=on,
        gpu=gpu,
        min_memory=min_memory,
        kinds=check_kinds(kinds),
        region=region,
        currency=currency_of(currency) or "USD",
        offers=None if refreshed is None else newest(refreshed, on),
    )


def gpus(name: str | None = None, *, as_of: str | dt.date | None = None) -> GpuList:
    """What the catalogue knows of every GPU, or of the one that a name means.

    Raises:
        UnknownGpu: no such card, or several of that name: the fix lists them.
    """
    from finefit.planner.gpu_list import list_gpus

    return list_gpus(name, on=day_of(as_of))


def cost(
    source: str | Path,
    *,
    gpu: str | None,
    terms: str = "on-demand",
    currency: str | None = None,
    budget: str | None = None,
    deadline: str | None = None,
    settings: Mapping[str, str | None] | None = None,
    settings_file: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
    as_of: str | dt.date | None = None,
    network: float | None = None,
    refreshed: Iterable[Offer] | None = None,
    explain: bool = False,
    **question: Unpack[Question],
) -> CostAnswer:
    """What a job costs altogether, on which terms, and what it would cost elsewhere.

    Args:
        source, gpu, network, overrides, question: as ``finefit.api.plan`` takes them.
        terms: on-demand, spot, community, monthly, yearly or owned: what the bill is made on.
        settings: money settings by name, as text ("runs": "3", "engineer_rate": "60USD"); see ``CostSettings``.
        refreshed: newer prices, as ``offers`` takes them; explain: with the parts of a step and what they rest on.
        settings_file: a finefit.toml; the one in the working folder where None, if there is one.

    Raises:
        InputError, UnknownModel, UnknownGpu, NotModelled: what, where and how to fix it.
    """
    from finefit.api import workload
    from finefit.catalog.offers import PriceList, newest
    from finefit.planner.cost_answer import Asked, cost_answer
    from finefit.planner.cost_settings import read_settings
    from finefit.units import parse_duration, parse_money

    found, sources = read_settings(settings or {}, settings_file)
    limit = None if budget is None else parse_money(budget)
    on = day_of(as_of)
    asked = Asked(
        terms=terms,
        currency=currency_of(currency) or (limit.currency if limit else "USD"),
        prices=PriceList(on, None if refreshed is None else newest(refreshed, on)),
        budget=limit,
        deadline_seconds=None if deadline is None else parse_duration(deadline),
        explain=explain,
    )
    resolved, cluster = workload(source, gpu=gpu, network=network, overrides=overrides, **question)
    return cost_answer(resolved, cluster, found, sources, asked)
