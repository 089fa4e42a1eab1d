"""``finefit trace``: the memory of the real library code, run on fake tensors. Needs the extra ``finefit[trace]``."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Protocol

from finefit import __version__
from finefit.app import options
from finefit.errors import InputError, NotModelled
from finefit.workload.sourced import Origin, Source

if TYPE_CHECKING:
    from finefit.lab.summary import Summary
    from finefit.resolve.resolved import Resolved
    from finefit.workload.cluster import Cluster
    from finefit.workload.recipe import Recipe

SCHEMA = "finefit/trace/1"
_LINES = 16  # tensors that a reader takes in; --json has all
# Compute capability of the architectures of the catalogue: developer.nvidia.com/cuda-gpus.
_CAPABILITY = {
    "volta": "sm70",
    "turing": "sm75",
    "ampere": "sm80",
    "ada": "sm89",
    "hopper": "sm90",
    "blackwell": "sm100",
}
_UNSTATED = "ampere"


class Command(Protocol):
    """Adds a command to the parser."""

    def __call__(self, name: str, run: Callable[[Namespace], int], text: str) -> ArgumentParser: ...


def add(command: Command) -> None:
    """Add the command with its options."""
    trace = command("trace", run, "The memory of the real library code, run without a GPU (extra finefit[trace]).")
    trace.add_argument("source", metavar="CONFIG|MODEL", help="a LLaMA-Factory config, or a model")
    trace.add_argument("--gpu", metavar="GPU", help='the GPU whose kernels are taken, such as "RTX 4090"')
    trace.add_argument("--json", action="store_true", help="print one JSON object")
    trace.add_argument(
        "--eval-batch", type=int, metavar="N", help="evaluate too, N samples a batch; a config says so itself"
    )
    trace.add_argument(
        "--set", action="append", dest="changes", metavar="KEY=VALUE", help="a key of the config with another value"
    )
    options.add(trace, options.RECIPE, "the recipe, for a model without a config")


def run(stated: Namespace) -> int:
    """Trace, print; 0."""
    from finefit import api

    recipe_flags = {name: getattr(stated, name) for name in options.RECIPE}
    resolved, cluster = api.workload(
        stated.source, gpu=stated.gpu, overrides=options.overrides(stated.changes), **recipe_flags
    )
    resolved = _with_evaluation(resolved, stated.eval_batch)
    recipe = resolved.workload(cluster).recipe
    summary, versions, kept = _traced(resolved, recipe, cluster)
    if stated.json:
        print(json.dumps(_object(resolved, recipe, cluster, summary, versions), indent=2, ensure_ascii=False))
    else:
        sys.stdout.write(_text(resolved, recipe, cluster, summary, versions))
    print(kept, file=sys.stderr)
    return 0


def _with_evaluation(resolved: Resolved, rows: int | None) -> Resolved:
    if rows is None:
        return resolved
    if rows < 1:
        raise InputError(f"{rows} samples are no batch", where="--eval-batch", fix="write a number from 1")
    assert resolved.recipe is not None  # the façade refuses an incomplete one
    sources = {**resolved.sources, "eval_batch": Source(Origin.STATED, "--eval-batch")}
    return replace(resolved, recipe=replace(resolved.recipe, eval_batch=rows), sources=sources)


def _architecture(cluster: Cluster | None) -> str:
    name = cluster.gpu.arch.lower() if cluster else _UNSTATED
    if name not in _CAPABILITY:
        assert cluster is not None
        raise NotModelled(
            f"the kernels of {cluster.gpu.name} ({cluster.gpu.arch}) are not known to the tracer",
            where="--gpu",
            fix="name an NVIDIA GPU from Volta on, or leave it out",
        )
    return _CAPABILITY[name]


def _traced(resolved: Resolved, recipe: Recipe, cluster: Cluster | None) -> tuple[Summary, dict[str, str], str]:
    """The summary, the versions of the libraries that ran, and whether the trace was stored for ``memory --exact``.

    Raises:
        NotModelled: a library of the extra is absent, or the recipe cannot be traced.
    """
    arch = _architecture(cluster)
    try:
        from finefit.lab.compiled import keep
        from finefit.lab.sharding import trace_sharded
        from finefit.lab.summary import summarise
        from finefit.lab.trace import trace
        from finefit.lab.versions import versions

        with _progress("tracing load and two steps") as show:
            if recipe.sharding.kind != "none":
                return summarise(trace_sharded(resolved.model, recipe, arch=arch)), versions(), _ONE_GPU
            timeline = trace(resolved.model, recipe, arch=arch)
            show("tracing three smaller points", 0)
            try:
                kept = f"stored for finefit memory --exact: {keep(resolved.model, recipe, timeline, arch, show)}"
            except NotModelled as error:
                kept = f"not stored for finefit memory --exact: {error}"
        return summarise(timeline), versions(), kept
    except ImportError as error:
        raise NotModelled(f"tracing needs {error.name}", fix="pip install 'finefit[trace]'") from error


_ONE_GPU = "not stored for finefit memory --exact, which answers for one GPU"


@contextmanager
def _progress(first: str) -> Iterator[Callable[[str, int], None]]:
    """A bar on the terminal's error stream; what it yields takes what is done now and how many of four are done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(first, total=4)
        yield lambda text, points: bar.update(task, description=text, completed=1 + points)


def _assumptions(resolved: Resolved, cluster: Cluster | None) -> list[str]:
    found = list(resolved.assumptions)
    if cluster is None:
        found.append(f"no GPU was stated: kernels of {_CAPABILITY[_UNSTATED]} ({_UNSTATED.capitalize()})")
    kind = resolved.recipe.sharding.kind if resolved.recipe else "none"
    if kind in ("ddp", "zero1", "zero2"):
        found.append(f"{kind} is modelled over the trace of one GPU: what it adds is no library code that ran")
    elif kind == "fsdp":
        found.append("FSDP2 with a unit a layer, one of the embedding, one of norm and head (accelerate 1.15.0)")
    return found


def _warnings(resolved: Resolved, recipe: Recipe, versions: dict[str, str]) -> list[str]:
    """The resolver's, and libraries other than those whose defaults the recipe took."""
    others = [
        f"{name} {versions[name]} ran, and the recipe is for {release}"
        for name, release in recipe.stack.items()
        if name in versions and versions[name].partition("+")[0] != release
    ]
    return [*resolved.warnings, *others]


class _Traced:
    """What ``inputs_of`` asks of an answer."""

    def __init__(self, resolved: Resolved, recipe: Recipe, cluster: Cluster | None) -> None:
        self.model, self.model_text, self.sources = resolved.model, resolved.model_text, resolved.sources
        self.recipe, self.cluster, self.lengths = recipe, cluster, resolved.lengths


def _object(
    resolved: Resolved, recipe: Recipe, cluster: Cluster | None, summary: Summary, versions: dict[str, str]
) -> dict[str, Any]:
    from finefit.planner.inputs import inputs_of

    return {
        "schema": SCHEMA,
        "finefit_version": __version__,
        "libraries": versions,
        "inputs": inputs_of(_Traced(resolved, recipe, cluster)),
        "peak": {
            "allocated_bytes": summary.allocated,
            "without_assumed_bytes": summary.without_assumed,
            "required_bytes": summary.required,
            "reserved_bytes": summary.reserved,
            "phase": summary.phase,
            "op": summary.op,
            "module": summary.module,
        },
        "parts": summary.parts,
        "phases": [{"phase": name, "allocated_bytes": nbytes} for name, nbytes in summary.phases.items()],
        "tensors": [asdict(line) for line in summary.held],
        "assumed": [asdict(term) for term in summary.assumed],
        "events": summary.events,
        "assumptions": _assumptions(resolved, cluster),
        "warnings": _warnings(resolved, recipe, versions),
    }


def _text(
    resolved: Resolved, recipe: Recipe, cluster: Cluster | None, summary: Summary, versions: dict[str, str]
) -> str:
    """Plain English at 80 cells."""
    from finefit.report import text
    from finefit.report.i18n import Translator
    from finefit.report.inputs import inputs
    from finefit.report.layout import Page

    t, page = Translator("en"), Page()

    def size(nbytes: int) -> str:
        return text.size(nbytes, t)

    page.heading(f"{resolved.model.name} · {recipe.method_label}, traced through the libraries' own code")
    page.line(" · ".join(f"{name} {version}" for name, version in versions.items()), indent=2)
    page.heading(f"Peak: {size(summary.allocated)} allocated in the {text.name(text.PHASES, summary.phase, t)}")
    page.line(f"Reached by {summary.op}{f' in {summary.module}' if summary.module else ''}.", indent=2)
    page.line(
        f"Allocator, replayed: {size(summary.reserved)} reserved, {size(summary.required)} needed at least; both "
        "without the CUDA context.",
        indent=2,
    )
    page.line(f"Without what was assumed of kernels: {size(summary.without_assumed)}.", indent=2)
    page.heading("Peak of each phase")
    page.table([[text.name(text.PHASES, name, t), size(nbytes)] for name, nbytes in summary.phases.items()], "lr")
    page.heading("Parts at the peak")
    page.table([[text.name(text.PARTS, name, t), size(nbytes)] for name, nbytes in summary.parts.items()], "lr")
    page.heading("Largest tensors at the peak, all layers together")
    shown = summary.held[:_LINES]
    page.table(
        [
            [size(line.nbytes * line.count), f"{line.count} x {size(line.nbytes)}", line.op, line.module]
            for line in shown
        ],
        "rrll",
    )
    rest = sum(line.nbytes * line.count for line in summary.held[_LINES:])
    if rest:
        page.line(f"{size(rest)} in {len(summary.held) - len(shown)} more kinds; --json lists them all.", indent=2)
    page.heading("Assumed: memory inside kernels, read in their source and not seen in the trace")
    page.bullets(
        f"{term.op}: {size(term.largest)} at most, {size(term.at_peak)} at the peak ({term.source})"
        for term in summary.assumed
    )
    inputs(resolved.model_text, recipe, None, resolved.sources, page, t)
    for heading, sentences in (
        ("Assumed", _assumptions(resolved, cluster)),
        ("Please check", _warnings(resolved, recipe, versions)),
    ):
        if sentences:
            page.heading(heading)
            page.bullets(sentences)
    return str(page)
