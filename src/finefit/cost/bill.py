"""The bill of a run: every money item with its quantity, unit price and source.

An item whose price or quantity nobody knows has no amount: it is unknown, not free, and the total of
the others is then a lower bound. Cloud prices count GB (10⁹ bytes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from finefit.errors import InputError
from finefit.units import GB, Money

# Minutes before the first step, lowest and highest, from provider documentation and users' reports
# collected in 2026-11. Most providers bill the GPU from the moment it boots.
BOOT_MINUTES = (Decimal(1), Decimal(10))
IMAGE_MINUTES = (Decimal(2), Decimal(10))
ENVIRONMENT_MINUTES = (Decimal(3), Decimal(10))
DOWNLOAD_GB_PER_SECOND = (Decimal("0.1"), Decimal("0.5"))  # weights from a hub, slowest and fastest


@dataclass(frozen=True, slots=True)
class Span:
    """A quantity with the ends of its interval."""

    low: Decimal
    likely: Decimal
    high: Decimal

    @classmethod
    def of(cls, low: float, likely: float, high: float) -> Span:
        """From floats, by their shortest decimal form."""
        return cls(Decimal(str(low)), Decimal(str(likely)), Decimal(str(high)))

    @classmethod
    def exact(cls, value: Decimal) -> Span:
        """A quantity that is known."""
        return cls(value, value, value)

    def scaled(self, low: Decimal, likely: Decimal, high: Decimal) -> Span:
        """Each end by a factor of its own."""
        return Span(self.low * low, self.likely * likely, self.high * high)


@dataclass(frozen=True, slots=True)
class Price:
    """A unit price: what one unit costs, who says so, and how far it may have drifted since.

    Attributes:
        low, high: factors around the price between which today's is expected.
        quoted: the same in the currency it was published in; None where that is the bill's.
    """

    unit_price: Money
    source: str
    low: Decimal = Decimal(1)
    high: Decimal = Decimal(1)
    quoted: Money | None = None


# Cost of so many GB by a provider's tariff, None where the tariff ends before.
Tariff = Callable[[Decimal], Money | None]


@dataclass(frozen=True, slots=True)
class BillItem:
    """One line: quantity times unit price.

    ``amount`` is None where a price or the quantity is unknown, ``low`` and ``high`` with it; ``source``
    then says what is missing.
    """

    name: str
    unit: str
    quantity: Span | None
    unit_price: Money | None
    amount: Money | None
    low: Money | None
    high: Money | None
    source: str


@dataclass(frozen=True, slots=True)
class Bill:
    """All items of one run in one currency.

    Attributes:
        total, low, high: sums of the known items; None while the GPU-hours themselves are unknown.
        unknown: names of items without an amount. Where there are any, the sums are lower bounds.
    """

    items: tuple[BillItem, ...]
    total: Money | None
    low: Money | None
    high: Money | None
    unknown: tuple[str, ...]

    @property
    def lower_bound(self) -> bool:
        """The total leaves something out."""
        return bool(self.unknown)


def gpu_item(hours: Span | None, gpus: int, price: Price | None) -> BillItem:
    """GPU-hours of the run: wall-clock hours times GPUs."""
    return flat_item("GPU-hours", "GPU-hour", _times(hours, gpus), price, "hours of the run unknown")


def setup_item(weights_bytes: int | None, gpus: int, price: Price | None, minutes: Decimal | None = None) -> BillItem:
    """GPU-hours paid before the first step: boot, image, environment, download of the weights.

    The likely value is the middle of the lowest and highest time. Tokenising the data comes on top. ``minutes`` are
    the user's own.
    """
    if minutes is not None:
        return flat_item("set-up", "GPU-hour", _times(Span.exact(minutes / 60), gpus), price, "")
    if weights_bytes is None:
        return flat_item("set-up", "GPU-hour", None, price, "size of the weights unknown")
    hours = setup_hours(weights_bytes)
    item = flat_item("set-up", "GPU-hour", _times(hours, gpus), price, "")
    low, high = hours.low, hours.high
    if item.amount is None:  # its source is the one reason why not
        return item
    return replace(item, source=f"{item.source}; {low * 60:.0f} to {high * 60:.0f} minutes before the first step")


def setup_hours(weights_bytes: int) -> Span:
    """Hours from the order of a machine to its first step."""
    size = Decimal(weights_bytes) / GB / 60
    ends = (BOOT_MINUTES, IMAGE_MINUTES, ENVIRONMENT_MINUTES)
    low = sum((low for low, _ in ends), size / DOWNLOAD_GB_PER_SECOND[1]) / 60
    high = sum((high for _, high in ends), size / DOWNLOAD_GB_PER_SECOND[0]) / 60
    return Span(low, (low + high) / 2, high)


def storage_item(
    checkpoint: int | None, kept: int | None, months: Decimal, tariff: Tariff | None, source: str = ""
) -> BillItem:
    """Checkpoints kept for a time: copies times size.

    Args:
        checkpoint: bytes of one; kept: copies on disk (``save_total_limit``, or the number of saves).
        months: how long they are kept; tariff: cost of GB for one month.
    """
    if checkpoint is None or kept is None:
        why = "size of a checkpoint unknown" if checkpoint is None else "number of kept checkpoints unknown"
        return unknown_item("checkpoint storage", "GB-month", None, why)
    size = Decimal(checkpoint) * kept / GB
    month = tariff(size) if tariff else None
    amount = month * months if month else None
    return tariff_item("checkpoint storage", "GB-month", size * months, amount, source)


def egress_item(result: int | None, tariff: Tariff | None, source: str = "") -> BillItem:
    """Traffic of the result out of the provider.

    Args:
        result: bytes taken out; tariff: cost of so many GB.
    """
    if result is None:
        return unknown_item("egress", "GB", None, "size of the result unknown")
    volume = Decimal(result) / GB
    return tariff_item("egress", "GB", volume, tariff(volume) if tariff else None, source)


def bill(items: Iterable[BillItem]) -> Bill:
    """Sum of the items.

    Raises:
        InputError: items in different currencies.
    """
    lines = tuple(items)
    unknown = tuple(line.name for line in lines if line.amount is None)
    if any(line.name == "GPU-hours" and line.amount is None for line in lines):
        return Bill(lines, None, None, None, unknown)
    return Bill(
        lines,
        _sum(line.amount for line in lines),
        _sum(line.low for line in lines),
        _sum(line.high for line in lines),
        unknown,
    )


def _times(span: Span | None, count: int) -> Span | None:
    factor = Decimal(count)
    return None if span is None else span.scaled(factor, factor, factor)


def flat_item(name: str, unit: str, quantity: Span | None, price: Price | None, why: str) -> BillItem:
    """A line at a flat price; the ends join the quantity's interval and the price's drift."""
    if quantity is None or price is None:
        return unknown_item(name, unit, quantity, why if quantity is None else "price unknown")
    cost = quantity.scaled(price.low, Decimal(1), price.high)
    each = price.unit_price
    return BillItem(name, unit, quantity, each, each * cost.likely, each * cost.low, each * cost.high, price.source)


def tariff_item(name: str, unit: str, quantity: Decimal, amount: Money | None, source: str) -> BillItem:
    """A line whose amount a tariff gave; its unit price is the average."""
    if amount is None:
        return unknown_item(name, unit, Span.exact(quantity), "price unknown")
    average = Money(amount.amount / quantity, amount.currency, amount.as_of) if quantity else None
    return BillItem(name, unit, Span.exact(quantity), average, amount, amount, amount, source)


def unknown_item(name: str, unit: str, quantity: Span | None, why: str) -> BillItem:
    """A line without an amount; ``why`` says what is missing."""
    return BillItem(name, unit, quantity, None, None, None, None, why)


def _sum(amounts: Iterable[Money | None]) -> Money | None:
    """Sum of the known amounts, None where there are none."""
    total: Money | None = None
    for amount in amounts:
        if amount is not None:
            total = amount if total is None else _plus(total, amount)
    return total


def _plus(left: Money, right: Money) -> Money:
    """Sum in one currency, dated by the older price."""
    if left.currency != right.currency:
        raise InputError(
            f"prices in {left.currency} and {right.currency} in one bill", fix="convert them to one currency first"
        )
    dates = [date for date in (left.as_of, right.as_of) if date]
    return Money(left.amount + right.amount, left.currency, min(dates) if dates else None)
