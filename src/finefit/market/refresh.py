"""Take prices from every provider and keep them: one transaction each, so that a failing one touches nothing else."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from finefit.errors import FinefitError, SourceUnreachable
from finefit.market.prices import Observed
from finefit.market.providers import Provider
from finefit.market.store import Store

TIMEOUT = 60.0  # seconds for one look at a provider
RETRIES = 2  # after the first try
_PAUSE = 1.0  # seconds before the first retry, doubled each time


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
    pause: float = _PAUSE,
) -> tuple[Looked, ...]:
    """Look at every provider, in order; what fails is told and leaves the others and the old rows as they are."""
    return tuple(_look(store, name, make, today, timeout, retries, pause) for name, make in providers.items())


def _look(
    store: Store, name: str, make: Callable[[], Provider], today: dt.date, timeout: float, retries: int, pause: float
) -> Looked:
    try:
        found = _tried(name, make, today, timeout, retries, pause)
        rows = [row for row in found if row is not None]
        with store.writing() as connection:
            kept = store.add(connection, rows)
            store.note(connection, name, kept, len(found) - len(rows))
        return Looked(name, kept, len(found) - len(rows))
    except FinefitError as problem:
        return Looked(name, 0, 0, problem)


def _tried(
    name: str, make: Callable[[], Provider], today: dt.date, timeout: float, retries: int, pause: float
) -> list[Observed | None]:
    for attempt in range(retries + 1):
        try:
            return _within(name, make, today, timeout)
        except SourceUnreachable:
            if attempt == retries:
                raise
            time.sleep(pause * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


def _within(name: str, make: Callable[[], Provider], today: dt.date, timeout: float) -> list[Observed | None]:
    """What a provider gives within its time; a plug-in that hangs is left behind."""
    found: list[list[Observed | None]] = []
    problems: list[Exception] = []

    def run() -> None:
        try:
            found.append(list(make().fetch(timeout, today)))
        except Exception as problem:  # a plug-in is not our code: told below
            problems.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout)
    if found:
        return found[0]
    if problems and isinstance(problems[0], FinefitError):
        raise problems[0]
    if problems:
        raise SourceUnreachable(
            f"the provider failed: {type(problems[0]).__name__}: {problems[0]}"[:300],
            where=name,
            fix="report it to who wrote the plug-in",
        ) from problems[0]
    raise SourceUnreachable(f"no answer within {timeout:g} s", where=name, fix="try again later, or raise --timeout")
