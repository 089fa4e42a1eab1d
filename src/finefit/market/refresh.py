"""Take prices from every provider and keep them: one transaction each, so that a failing one touches nothing else."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from finefit.errors import FinefitError
from finefit.market.attempts import PAUSE, RETRIES, TIMEOUT, tried
from finefit.market.prices import Observed
from finefit.market.providers import Provider
from finefit.market.store import Store


@dataclass(frozen=True, slots=True)
class Looked:
    """One look at a provider.

    Attributes:
        rows: prices kept; skipped: rows of cards the catalogue does not know.
        problem: why there are none; None where it went well.
    """

    provider: str
    rows: int
    skipped: int
    problem: FinefitError | None = None


def refresh(
    store: Store,
    providers: Mapping[str, Callable[[], Provider]],
    *,
    today: dt.date,
    timeout: float = TIMEOUT,
    retries: int = RETRIES,
    pause: float = PAUSE,
) -> tuple[Looked, ...]:
    """Look at every provider, in order; what fails is told and leaves the others and the old rows as they are."""
    return tuple(_look(store, name, make, today, timeout, retries, pause) for name, make in providers.items())


def _look(
    store: Store, name: str, make: Callable[[], Provider], today: dt.date, timeout: float, retries: int, pause: float
) -> Looked:
    try:

        def ask() -> list[Observed | None]:
            return list(make().fetch(timeout, today))

        found = tried(name, ask, timeout=timeout, retries=retries, pause=pause)
        rows = [row for row in found if row is not None]
        with store.writing() as connection:
            kept = store.add(connection, rows)
            store.note(connection, name, kept, len(found) - len(rows))
        return Looked(name, kept, len(found) - len(rows))
    except FinefitError as problem:
        return Looked(name, 0, 0, problem)
