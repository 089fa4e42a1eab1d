"""``finefit lengths``: how long the samples of a data file are, in tokens of a model."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from finefit.app import options


def add(command: options.Adder) -> None:
    """Add the command."""
    lengths = command("lengths", _run, "How long the samples of a data file are, and what batches of them hold.")
    lengths.add_argument("file", metavar="FILE", help="JSONL, JSON, CSV, Parquet or Arrow")
    lengths.add_argument("--model", required=True, metavar="MODEL", help="as finefit memory takes it")
    lengths.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="a tokenizer.json or its folder; the model's, where that is here, if left out",
    )
    lengths.add_argument(
        "--template", metavar="NAME", help="a template of LLaMA-Factory, or none; the model's own if left out"
    )
    lengths.add_argument(
        "--format", dest="shape", metavar="SHAPE", help="sharegpt, alpaca, messages, text or preference"
    )
    lengths.add_argument("--gpu", metavar="GPU", help='"RTX 4090", "2x RTX 4090": what the longest samples cost there')
    options.add_output(lengths)
    options.add(lengths, {**options.RECIPE, "epochs": options.RUN["epochs"]}, "the recipe; --seq is the truncation")


def _run(stated: Namespace) -> int:
    from finefit import measuring

    flags = {name: getattr(stated, name) for name in (*options.RECIPE, "epochs")}
    with _progress(stated.file) as progress:
        found = measuring.lengths(
            stated.file,
            stated.model,
            tokenizer=stated.tokenizer,
            template=stated.template,
            shape=stated.shape,
            gpu=stated.gpu,
            as_of=stated.as_of,
            progress=progress,
            **flags,
        )
    if stated.json:
        from finefit.report.json_output import dumps

        sys.stdout.write(dumps(found))
        return 0
    from finefit.report.i18n import pick_language
    from finefit.report.lengths_text import lengths_page
    from finefit.report.terminal import draw_page

    language = pick_language(stated.lang)
    draw_page(lambda cells: lengths_page(found, language, cells=cells))
    return 0


@contextmanager
def _progress(path: str) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal's standard error, nothing elsewhere."""
    file = Path(path)
    if not sys.stderr.isatty() or not file.is_file():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(file.name, total=file.stat().st_size)
        seen = 0

        def told(done: int) -> None:
            nonlocal seen
            if done - seen >= 1 << 20:  # a bar drawn for every line would take longer than the reading
                seen = done
                bar.update(task, completed=done)

        yield told
