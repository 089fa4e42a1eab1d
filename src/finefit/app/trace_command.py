"""``finefit trace``: the memory of the real library code, run on fake tensors. Needs the extra ``finefit[trace]``."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from warnings import catch_warnings, simplefilter

from finefit import __version__
from finefit.app import options
from finefit.errors import InputError, NotModelled
from finefit.workload.sourced import Origin, Source

if TYPE_CHECKING:
    from finefit.lab.configured import Configured
    from finefit.lab.summary import Summary
    from finefit.memory.timeline import Timeline
    from finefit.resolve.resolved import Resolved
    from finefit.workload.cluster import Cluster
    from finefit.workload.lengths import Lengths
    from finefit.workload.model import Model
    from finefit.workload.recipe import Recipe

SCHEMA = "finefit/trace/1"
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
    trace.add_argument(
        "source", metavar="CONFIG|MODEL", help="a config or launch script, or a model; a folder of any model will do"
    )
    trace.add_argument("--gpu", metavar="GPU", help='the GPUs whose kernels are taken: "RTX 4090", "8x H100"')
    trace.add_argument("--json", action="store_true", help="print one JSON object")
    trace.add_argument("--lang", metavar="LANG", help="en or zh; that of the environment if left out")
    trace.add_argument("--timeline", metavar="FILE", help="write every allocation to a CSV file")
    trace.add_argument(
        "--trust-remote-code", action="store_true", help="run the code that lies in the folder of the model"
    )
    trace.add_argument(
        "--tensor-parallel", type=int, metavar="N", help="one of N ranks that share each matrix, by transformers' plan"
    )
    trace.add_argument(
        "--set", action="append", dest="changes", metavar="KEY=VALUE", help="a key of the config with another value"
    )
    options.add(trace, options.RECIPE, "the recipe, for a model without a config")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is traced.

    Attributes:
        config: the model's own configuration, where it lies on this machine.
        modelled: finefit models the architecture; else the trace alone knows it.
    """

    resolved: Resolved
    recipe: Recipe
    cluster: Cluster | None
    config: Configured | None
    modelled: bool

    # What ``inputs_of`` asks of an answer:

    @property
    def model(self) -> Model:
        return self.resolved.model

    @property
    def model_text(self) -> str:
        return self.resolved.model_text

    @property
    def sources(self) -> Mapping[str, Source]:
        return self.resolved.sources

    @property
    def lengths(self) -> Lengths:
        return self.resolved.lengths


def run(stated: Namespace) -> int:
    """Trace, print; 0."""
    asked = _asked(stated)
    timeline, kept = _traced(asked)
    from finefit.lab.summary import sources_of, summarise
    from finefit.lab.versions import versions
    from finefit.report.i18n import Translator, pick_language

    summary, ran, language = summarise(timeline), versions(), pick_language(stated.lang)
    notes = _notes(asked, ran)
    if stated.timeline is not None:
        _write(stated.timeline, timeline, sources_of(timeline))
    if stated.json:
        print(json.dumps(_object(asked, summary, ran, notes), indent=2, ensure_ascii=False))
    else:
        from finefit.report.terminal import draw_page
        from finefit.report.trace_text import trace_page

        draw_page(lambda cells: trace_page(asked.resolved, asked.recipe, summary, ran, notes, language, cells=cells))
    print(Translator(language).sentence(kept), file=sys.stderr)
    return 0


def _asked(stated: Namespace) -> _Asked:
    """The workload, with the model's own configuration where that lies on this machine.

    Raises:
        FinefitError: as ``api.workload``, and for a configuration that cannot be used.
    """
    from finefit import api

    question = {name: getattr(stated, name) for name in options.RECIPE}
    given: dict[str, Any] = {"gpu": stated.gpu, "overrides": options.overrides(stated.changes), **question}
    found = api.model_file(stated.source)
    if found is None and stated.trust_remote_code:
        raise InputError(
            "code is taken from a folder on this machine alone",
            where="--trust-remote-code",
            fix="name the folder of the model",
        )
    modelled = found is None or found[1]
    workload = api.workload(stated.source, **given) if modelled else None
    config = None
    if found is not None:
        with _library():
            from finefit.lab.configured import outline, read

            config = read(found[0], trusted=stated.trust_remote_code)
            workload = workload or api.workload(stated.source, outline=outline(config), **given)
    assert workload is not None
    resolved, cluster = workload
    recipe = resolved.workload(cluster).recipe
    if stated.tensor_parallel is not None:
        recipe = _tensor_parallel(recipe, stated.tensor_parallel)
        sources = {**resolved.sources, "parallel.tensor": Source(Origin.STATED, "--tensor-parallel")}
        resolved = replace(resolved, sources=sources)
    return _Asked(resolved, recipe, cluster, config, modelled)


def _tensor_parallel(recipe: Recipe, ranks: int) -> Recipe:
    """The recipe on one of ``ranks`` tensor-parallel ranks, which are all the GPUs that are stated."""
    from finefit.workload.recipe import Parallel, Sharding

    if ranks < 2:
        raise InputError(f"{ranks} ranks share nothing", where="--tensor-parallel", fix="write a number from 2")
    if recipe.sharding.ranks not in (1, ranks) or recipe.sharding.kind not in ("none", "ddp"):
        raise InputError(
            "tensor parallelism together with another way of spreading a run cannot be traced yet",
            where="--tensor-parallel",
            fix=f"state {ranks} GPUs and no --sharding",
        )
    return replace(recipe, parallel=Parallel(tensor=ranks), sharding=Sharding())


def _write(path: str, timeline: Timeline, sources: Mapping[str, str]) -> None:
    from finefit.report.trace_text import write_allocations

    try:
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            write_allocations(timeline, sources, file)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror})", where="--timeline", fix="name another file"
        ) from error


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


@contextmanager
def _library() -> Iterator[None]:
    """A library of the extra that is absent is named; transformers must not be imported where torch is."""
    try:
        import_module("torch")
        yield
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] == "finefit":
            raise
        raise NotModelled(f"tracing needs {error.name}", fix="pip install 'finefit[trace]'") from error


def _traced(asked: _Asked) -> tuple[Timeline, str]:
    """The trace, and whether it was stored for ``memory --exact``.

    Raises:
        NotModelled: a library of the extra is absent, or the recipe cannot be traced.
    """
    arch, recipe, model = _architecture(asked.cluster), asked.recipe, asked.model
    with _library():
        from finefit.lab import notes
        from finefit.lab.compiled import keep
        from finefit.lab.rank import trace_rank

        with _progress("tracing load and two steps") as show, catch_warnings():
            simplefilter("ignore", UserWarning)  # another torch than the tested one is among the notes
            timeline = trace_rank(model, recipe, arch=arch, config=asked.config)
            why_not = notes.not_stored(recipe, asked.modelled)
            if why_not is not None:
                return timeline, why_not
            show("tracing three smaller points", 0)
            try:
                return timeline, notes.stored(keep(model, recipe, timeline, arch, show))
            except NotModelled as error:
                return timeline, notes.failed(error)


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


def _notes(asked: _Asked, versions: Mapping[str, str]) -> dict[str, list[str]]:
    from finefit.lab import notes

    arch = f"{_CAPABILITY[_UNSTATED]} ({_UNSTATED.capitalize()})" if asked.cluster is None else None
    taken = notes.assumptions(asked.model, asked.recipe, arch=arch, modelled=asked.modelled)
    return {
        "assumptions": [*asked.resolved.assumptions, *taken],
        "warnings": [*asked.resolved.warnings, *notes.warnings(asked.recipe, asked.config, versions)],
    }


def _object(
    asked: _Asked, summary: Summary, versions: Mapping[str, str], notes: Mapping[str, list[str]]
) -> dict[str, Any]:
    from finefit.planner.inputs import inputs_of

    return {
        "schema": SCHEMA,
        "finefit_version": __version__,
        "libraries": dict(versions),
        "inputs": inputs_of(asked),
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
        **notes,
    }
