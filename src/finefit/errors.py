"""One exception tree. Every error names the input, the place and the fix.

FinefitError
├── InputError            wrong input: what, where, how to fix              (exit code 2)
│   ├── UnknownModel      no such model in the catalogue, with the nearest names
│   │   └── HubUnreachable    a Hub that had to be asked did not answer         (exit code 3)
│   ├── UnknownGpu        no such GPU, or a name that means several
│   └── NotModelled       understood, but finefit cannot estimate it yet
├── SourceUnreachable     a needed online source did not answer             (exit code 3)
└── DataError             a data file shipped with finefit is damaged: a bug in the package
"""

from __future__ import annotations


class FinefitError(Exception):
    """Base of every error finefit raises on purpose.

    Args:
        what: what is wrong, in one sentence without a final full stop.
        where: the file, line, key or flag it was read from.
        fix: what the user can do about it.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what, self.where, self.fix = what, where, fix
        place = f"{where}: " if where else ""
        cure = f" — {fix}" if fix else ""
        super().__init__(f"{place}{what}{cure}")


class InputError(FinefitError):
    """The user's input cannot be used as it stands."""

    exit_code = 2


class UnknownModel(InputError):
    """No model of that name is known; ``fix`` lists the nearest catalogue names."""


class HubUnreachable(UnknownModel):
    """The Hub that may know the model did not answer."""

    exit_code = 3


class UnknownGpu(InputError):
    """No GPU of that name is known, or the name stands for several cards."""


class NotModelled(InputError):
    """The input is understood but not modelled yet: it is refused, never approximated in silence."""


class SourceUnreachable(FinefitError):
    """An online source that the answer needs did not answer."""

    exit_code = 3


class DataError(FinefitError):
    """A data file of the package is damaged or inconsistent."""
