"""Regenerate the output shown in the documentation: ``python -m scripts.docs``.

A block of the form

    <!-- from: Cost; until: Time -->
    ```console
    $ finefit plan ... --as-of 2026-11-30
    ...
    ```

is filled with what its command prints, from the line that starts with one text up to the line that starts
with another; either may be missing. A ``...`` stands for what was left out.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

from finefit.app.cli import main as finefit

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "README.zh-CN.md")
_BLOCK = re.compile(
    r"(?P<head>(?:<!-- (?:from: (?P<start>[^;\n]*?))?(?:; )?(?:until: (?P<until>[^;\n]*?))? -->\n)?"
    r"```console\n\$ finefit (?P<arguments>[^\n]*)\n)(?P<output>.*?)(?P<tail>```)",
    re.DOTALL,
)


def output(arguments: str) -> str:
    """What ``finefit ARGUMENTS`` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.chdir(ROOT):
        finefit(shlex.split(arguments))
    return printed.getvalue()


def regenerated(page: str) -> str:
    """A page with the output of its commands as of today's program."""
    return _BLOCK.sub(_filled, page)


def _filled(block: re.Match[str]) -> str:
    lines = output(block["arguments"]).rstrip("\n").split("\n")
    if block["until"]:
        lines = [*lines[: _index(lines, block["until"])], "..."]
    if block["start"]:
        lines = ["...", "", *lines[_index(lines, block["start"]) :]]
    return block["head"] + "\n".join(lines) + "\n" + block["tail"]


def _index(lines: list[str], start: str) -> int:
    return next(index for index, line in enumerate(lines) if line.startswith(start))


def main() -> None:
    """Rewrite the pages that changed."""
    for name in PAGES:
        path = ROOT / name
        old = path.read_text(encoding="utf-8")
        new = regenerated(old)
        if new != old:
            path.write_text(new, encoding="utf-8")
            print(f"{name} rewritten")


if __name__ == "__main__":
    main()
