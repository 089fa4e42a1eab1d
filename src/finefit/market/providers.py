"""Where live prices come from: plug-ins of the entry-point group ``finefit.providers``.

A plug-in is a callable without arguments that gives a provider: an object with a ``name`` and ``fetch(timeout)``. A
package adds its own with

    [project.entry-points."finefit.providers"]
    mycloud = "mypackage.prices:MyCloud"
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import Protocol

from finefit.errors import FinefitError, InputError, SourceUnreachable
from finefit.market.prices import Observed

GROUP = "finefit.providers"


class Provider(Protocol):
    """One source of prices.

    ``fetch`` gives today's prices, None in place of rows whose card the catalogue does not know. It raises
    SourceUnreachable where the source does not answer within ``timeout`` seconds; that is tried again.
    """

    name: str

    def fetch(self, timeout: float, today: dt.date) -> Iterable[Observed | None]: ...


def installed() -> dict[str, Callable[[], Provider]]:
    """Plug-ins by name, not yet loaded."""
    found: dict[str, Callable[[], Provider]] = {}
    for point in entry_points(group=GROUP):

        def make(name: str = point.name) -> Provider:
            (chosen,) = (each for each in entry_points(group=GROUP) if each.name == name)
            try:
                made: Provider = chosen.load()()
            except FinefitError:
                raise
            except Exception as problem:  # a plug-in is not our code
                raise SourceUnreachable(
                    f"the provider cannot be loaded: {type(problem).__name__}: {problem}",
                    where=name,
                    fix="install what it needs, or leave it out with --provider",
                ) from problem
            return made

        found[point.name] = make
    return found


def chosen(names: list[str] | None) -> dict[str, Callable[[], Provider]]:
    """The named plug-ins, all of them where none is named.

    Raises:
        InputError: a name that no plug-in has.
    """
    known = installed()
    for name in names or ():
        if name not in known:
            fix = f"installed: {', '.join(sorted(known)) or 'none'}"
            raise InputError(f"no provider is called {name[:40]!r}", where="--provider", fix=fix)
    return {name: make for name, make in known.items() if not names or name in names}
