"""One observed price, as providers give it and the history keeps it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal

from finefit.catalog.gpu_names import match_gpu
from finefit.catalog.gpu_table import card_by_id
from finefit.catalog.offers import Kind, Offer
from finefit.errors import InputError
from finefit.units import Money

MICRO = 1_000_000  # prices are kept as whole millionths: exact in every database
LARGEST = Decimal(100_000)  # a GPU-hour in any currency; more is an error of the source
CURRENCIES = ("USD", "CNY")


@dataclass(frozen=True, slots=True)
class Observed:
    """A price of one GPU and hour, seen on one day.

    Attributes:
        gpu_id: of the catalogue; kind: a ``Kind``, or "market-median" of an index.
        min_gpus: GPUs of the smallest machine let at it.
        day: on which it was true.
    """

    provider: str
    gpu_id: str
    kind: str
    region: str
    min_gpus: int
    micros: int
    currency: str
    day: dt.date
    source: str
    licence: str

    @property
    def price(self) -> Money:
        """The price as money."""
        return Money(Decimal(self.micros) / MICRO, self.currency, self.day)

    def offer(self) -> Offer:
        """The price as an offer beside the bundled ones.

        Raises:
            ValueError: a kind that no offer has.
        """
        return Offer(
            provider=self.provider,
            gpu_id=self.gpu_id,
            price=self.price,
            kind=Kind(self.kind),
            region=self.region,
            min_gpus=self.min_gpus,
            date=self.day,
            source=self.source,
            licence=self.licence,
            confidence="medium",
            dataset="refreshed",
        )


def observed(
    *,
    provider: str,
    gpu: str,
    price: Decimal,
    kind: str,
    day: dt.date,
    source: str,
    currency: str = "USD",
    region: str = "",
    min_gpus: int = 1,
    licence: str = "",
    where: str = "",
) -> Observed | None:
    """A checked price; None where the name means no card of the catalogue, or several.

    Raises:
        InputError: a price, kind or currency that is none.
    """
    match = match_gpu(gpu)
    if match is None:
        return None
    if not price.is_finite() or not 0 < price < LARGEST:
        raise InputError(f"{price} is not the price of a GPU-hour", where=where, fix="correct the row")
    if kind not in list(Kind):
        raise InputError(f"{kind[:20]!r} is not a kind of offer", where=where, fix=f"write one of {', '.join(Kind)}")
    if currency not in CURRENCIES:
        raise InputError(f"{currency[:20]!r} is not a currency with prices", where=where, fix="write USD or CNY")
    if min_gpus < 1:
        raise InputError(f"a machine of {min_gpus} GPUs", where=where, fix="write 1 or more")
    devices = card_by_id(match.gpu.id).devices
    micros = int((price / devices * MICRO).to_integral_value())
    return Observed(
        provider[:80],
        match.gpu.id,
        kind,
        region[:80],
        min_gpus * devices,
        micros,
        currency,
        day,
        source[:300],
        licence[:120],
    )
