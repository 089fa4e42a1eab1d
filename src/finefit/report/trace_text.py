"""``finefit trace`` on a terminal, and its allocations as a table for a file."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from finefit.report import text
from finefit.report.i18n import Translator
from finefit.report.inputs import inputs
from finefit.report.layout import Page

if TYPE_CHECKING:
    from finefit.lab.summary import Summary
    from finefit.memory.timeline import Timeline
    from finefit.resolve.resolved import Resolved
    from finefit.workload.recipe import Recipe

_LINES = 16  # tensors that a reader takes in; --json has all
COLUMNS = (
    "allocated_at",
    "freed_at",
    "bytes",
    "category",
    "phase",
    "step",
    "op",
    "module",
    "layer",
    "assumed",
    "source",
)


def trace_page(
    resolved: Resolved,
    recipe: Recipe,
    summary: Summary,
    versions: Mapping[str, str],
    notes: Mapping[str, Sequence[str]],
    language: str = "en",
    *,
    cells: int = 80,
) -> Page:
    """Peak, phases, parts, the largest tensors and what was assumed.

    Args:
        versions: of the libraries that ran; notes: "assumptions" and "warnings".
    """
    t, page = Translator(language), Page(cells)

    def size(nbytes: int) -> str:
        return text.size(nbytes, t)

    said = {"model": resolved.model.name, "method": text.method(recipe.method_label, t)}
    page.heading(t("{model} · {method}, traced through the libraries' own code", **said))
    page.line(" · ".join(f"{name} {version}" for name, version in versions.items()), indent=2)
    phase = text.name(text.PHASES, summary.phase, t)
    page.heading(t("Peak: {size} allocated in the {phase}", size=size(summary.allocated), phase=phase))
    if summary.module:
        page.line(t("Reached by {op} in {module}.", op=summary.op, module=summary.module), indent=2)
    else:
        page.line(t("Reached by {op}.", op=summary.op), indent=2)
    replayed = {"reserved": size(summary.reserved), "required": size(summary.required)}
    page.line(
        t(
            "Allocator, replayed: {reserved} reserved, {required} needed at least; both without the CUDA context.",
            **replayed,
        ),
        indent=2,
    )
    page.line(t("Without what was assumed: {size}.", size=size(summary.without_assumed)), indent=2)
    page.heading(t("Peak of each phase"))
    page.table([[text.name(text.PHASES, name, t), size(nbytes)] for name, nbytes in summary.phases.items()], "lr")
    page.heading(t("Parts at the peak"))
    page.table([[text.name(text.PARTS, name, t), size(nbytes)] for name, nbytes in summary.parts.items()], "lr")
    page.heading(t("Largest tensors at the peak, all layers together"))
    page.table(
        [
            [size(line.nbytes * line.count), f"{line.count} x {size(line.nbytes)}", line.op, line.module]
            for line in summary.held[:_LINES]
        ],
        "rrll",
    )
    others = summary.held[_LINES:]
    if others:
        rest = size(sum(line.nbytes * line.count for line in others))
        page.line(t("{size} in {count} more kinds; --json lists them all.", size=rest, count=len(others)), indent=2)
    if summary.assumed:
        page.heading(t("Assumed: memory that the trace does not see, taken from the source named"))
        page.bullets(
            t(
                "{op}: {largest} at most, {now} at the peak ({source})",
                op=term.op,
                largest=size(term.largest),
                now=size(term.at_peak),
                source=term.source,
            )
            for term in summary.assumed
        )
    inputs(resolved.model_text, recipe, None, resolved.sources, page, t)
    for heading, sentences in ((t("Assumed"), notes["assumptions"]), (t("Please check"), notes["warnings"])):
        if sentences:
            page.heading(heading)
            page.bullets(t.sentence(each) for each in sentences)
    return page


def write_allocations(timeline: Timeline, sources: Mapping[str, str], file: TextIO) -> None:
    """One row of CSV for each allocation, in the order they are made.

    ``allocated_at`` and ``freed_at`` number the events of the run from 0; what is never freed has no ``freed_at``.
    Bytes are those the allocator hands out, in blocks of 512. ``source`` says where an assumed size is taken from.
    """
    dims = timeline.dims
    assert dims is not None  # every traced timeline has the point it was traced at
    freed: dict[int, int] = {}
    marks = iter((*timeline.marks[1:], None))
    mark, following = timeline.marks[0], next(marks)
    rows = []
    for event, number in enumerate(timeline.events):
        while following is not None and event >= following.start:
            mark, following = following, next(marks)
        if number < 0:
            freed[~number] = event
        else:
            rows.append((event, number, mark.step))
    out = csv.writer(file, lineterminator="\n")
    out.writerow(COLUMNS)
    for event, number, step in rows:
        tensor = timeline.tensors[number]
        out.writerow(
            (
                event,
                freed.get(number, ""),
                tensor.size.block(dims),
                tensor.category,
                tensor.phase,
                step,
                tensor.op,
                tensor.module,
                "" if tensor.layer is None else tensor.layer,
                int(tensor.assumed),
                sources.get(tensor.op, "") if tensor.assumed else "",
            )
        )
