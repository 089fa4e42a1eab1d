"""Items of a project's bill beyond the run itself: time that is paid and trains nothing, disks, traffic, people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

from finefit.cost.bill import BillItem, Price, Span, Tariff, flat_item, tariff_item, unknown_item
from finefit.cost.interruption import Interruption
from finefit.cost.terms import hours_paid
from finefit.units import Money

_DAYS_A_MONTH = Decimal("30.4375")  # 365.25 / 12


def held_item(name: str, hours: Decimal | None, gpus: int, price: Price | None, why: str) -> BillItem:
    """Hours in which the GPUs are paid and do not train; ``why`` says what to state where they are unknown."""
    quantity = None if hours is None else Span.exact(hours * gpus)
    return flat_item(name, "GPU-hour", quantity, price, why)


def waste_item(hours: Span | None, gpus: int, lost: Interruption | None, price: Price | None) -> BillItem:
    """GPU-hours that interruptions and checkpoints cost."""
    if lost is None:
        return unknown_item("interruptions", "GPU-hour", None, "time between interruptions unknown")
    quantity = None
    if hours is not None:
        share = lost.waste.scaled(*(Decimal(gpus),) * 3)
        quantity = Span(hours.low * share.low, hours.likely * share.likely, hours.high * share.high)
    item = flat_item("interruptions", "GPU-hour", quantity, price, "hours of the run unknown")
    return item if item.amount is None else replace(item, source=lost.source)


def failed_item(attempts: Decimal | None, share: Decimal, attempt: Money | None) -> BillItem:
    """Runs that fail: so many attempts, each paid for a share of a run."""
    if attempts is None:
        return unknown_item("failed attempts", "attempt", None, "failed attempts not stated")
    quantity = Span.exact(attempts)
    if attempt is None and attempts:
        return unknown_item("failed attempts", "attempt", quantity, "cost of a run unknown")
    each = None if attempt is None else attempt * share
    amount = None if each is None else each * attempts
    return BillItem(
        "failed attempts", "attempt", quantity, each, amount, amount, amount, "each paid for its share of a run"
    )


def unused_item(hours: Span | None, gpus: int, term: Decimal | None, price: Price | None) -> BillItem | None:
    """Hours of a longer term that are paid and not used; None where hours are paid one by one.

    Args:
        hours: used by the whole project; term: hours of the shortest term, all of them paid.
    """
    if term is None:
        return None
    if hours is None:
        return unknown_item("unused hours of the term", "GPU-hour", None, "hours of the run unknown")
    left = [(hours_paid(each, term) - each) * gpus for each in (hours.low, hours.likely, hours.high)]
    return flat_item("unused hours of the term", "GPU-hour", Span(min(left), left[1], max(left)), price, "")


def cold_item(
    checkpoint: int | None, kept: int, months: Decimal | None, tariff: Tariff | None, source: str
) -> BillItem:
    """Checkpoints after they moved to cool storage."""
    if months is None:
        return unknown_item("cold storage", "GB-month", None, "months in cold storage not stated")
    if checkpoint is None:
        return unknown_item("cold storage", "GB-month", None, "size of a checkpoint unknown")
    size = Decimal(checkpoint) * kept / 10**9
    month = tariff(size) if tariff else None
    return tariff_item("cold storage", "GB-month", size * months, month * months if month else None, source)


def disk_item(name: str, gb: Decimal | None, months: Decimal, tariff: Tariff | None, source: str, why: str) -> BillItem:
    """Data or images kept on a disk."""
    if gb is None:
        return unknown_item(name, "GB-month", None, why)
    month = tariff(gb) if tariff else None
    return tariff_item(name, "GB-month", gb * months, month * months if month else None, source)


def stopped_item(gb: Decimal | None, days: Decimal | None, tariff: Tariff | None, source: str) -> BillItem:
    """The disk of a stopped machine, which some providers charge at twice the price of a running one."""
    if days is None:
        return unknown_item("disk while stopped", "GB-month", None, "days stopped not stated")
    return disk_item("disk while stopped", gb, days / _DAYS_A_MONTH, tariff, source, "size of the disk unknown")


def upload_item(gb: Decimal | None, price: Money | None) -> BillItem:
    """Data into the provider, at the user's price: the catalogue knows none."""
    if gb is None or price is None:
        why = "size of the upload not stated" if gb is None else "price unknown"
        return unknown_item("upload", "GB", None if gb is None else Span.exact(gb), why)
    amount = price * gb
    return BillItem("upload", "GB", Span.exact(gb), price, amount, amount, amount, "stated")


def minimum_item(
    minimum: Money | None, rental: Callable[[], tuple[Money | None, Money | None, Money | None]]
) -> BillItem:
    """What a minimum charge adds to a rental that costs less.

    Args:
        rental: low, likely and high cost of the GPU-hours in the same currency.
    """
    if minimum is None:
        return unknown_item("minimum charge", "rental", None, "no minimum charge is stated: ask the provider")
    low, likely, high = rental()
    if low is None or likely is None or high is None:
        return unknown_item("minimum charge", "rental", None, "cost of a run unknown")

    def missing(paid: Money) -> Money:
        return Money(max(minimum.amount - paid.amount, Decimal(0)), minimum.currency, minimum.as_of)

    return BillItem(
        "minimum charge",
        "rental",
        Span.exact(Decimal(1)),
        minimum,
        missing(likely),
        missing(high),
        missing(low),
        "stated",
    )


def people_item(hours: Decimal | None, rate: Money | None) -> BillItem:
    """Engineers' hours at the user's rate."""
    if hours is None or rate is None:
        why = "hours of engineers not stated" if hours is None else "rate of engineers not stated"
        return unknown_item("engineers", "hour", None if hours is None else Span.exact(hours), why)
    amount = rate * hours
    return BillItem("engineers", "hour", Span.exact(hours), rate, amount, amount, amount, "stated")
