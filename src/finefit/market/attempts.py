"""Asking somebody else's service: within a time, and again where it does not answer."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from finefit.errors import FinefitError, InputError, SourceUnreachable

TIMEOUT = 60.0  # seconds for one look at a source
RETRIES = 2  # after the first try
PAUSE = 1.0  # seconds before the first retry, doubled each time
MAX_BYTES = 20_000_000  # a day of one large marketplace is 0.3 MB
_T = TypeVar("_T")


def tried(name: str, ask: Callable[[], _T], *, timeout: float, retries: int, pause: float) -> _T:
    """What a source gives within its time, asked again where it is not reachable.

    Raises:
        SourceUnreachable: no answer, or a plug-in that failed; any other error of ours as the source raised it.
    """
    for attempt in range(retries + 1):
        try:
            return _within(name, ask, timeout)
        except SourceUnreachable:
            if attempt == retries:
                raise
            time.sleep(pause * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


def _within(name: str, ask: Callable[[], _T], timeout: float) -> _T:
    """The answer in time; a source that hangs is left behind."""
    found: list[_T] = []
    problems: list[Exception] = []

    def run() -> None:
        try:
            found.append(ask())
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


def read_place(place: str, timeout: float) -> str:
    """The text of a file or of a URL (http, https).

    Raises:
        SourceUnreachable: the URL does not answer.
        InputError: no such file, too large, or not UTF-8.
    """
    if is_url(place):
        request = urllib.request.Request(place, headers={"User-Agent": "finefit"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                data: bytes = answer.read(MAX_BYTES + 1)
        except (OSError, ValueError) as problem:  # URLError and timeouts are OSErrors
            raise SourceUnreachable(
                f"does not answer: {problem}", where=place, fix="try again later; the prices of before are kept"
            ) from None
    else:
        try:
            with Path(place).expanduser().open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as problem:
            raise InputError(
                f"cannot be read: {problem.strerror}", where=place, fix="name a CSV or JSON file"
            ) from None
    if len(data) > MAX_BYTES:
        raise InputError("the file is too large for prices", where=place, fix="name a smaller one")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("the file is not UTF-8 text", where=place, fix="name a CSV or JSON file") from None


def is_url(place: str) -> bool:
    """Whether a place is on the net rather than a file."""
    return place.lower().startswith(("http://", "https://"))
