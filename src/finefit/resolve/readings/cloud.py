"""SkyPilot (0.14.1) and dstack (0.22.5) tasks: which machines they rent, and the training command they run there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from finefit.formats.said import Entry, Said
from finefit.formats.tools import TOOLS
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import Reading, Refusal, Value

_COUNT = re.compile(r":(\d{1,4})$")


def reading(said: Said, inner: Callable[[Said], Reading]) -> Reading:
    """The rented GPUs, and the run itself where its command is one finefit reads.

    Args:
        said: the task.
        inner: reads the command's own settings.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    draft = Draft(said)
    nodes_key = "num_nodes" if said.tool == "skypilot" else "nodes"
    nodes = draft.integer(nodes_key, minimum=1) or 1
    gpu_key = "resources.accelerators" if said.tool == "skypilot" else "resources.gpu"
    count = _count(draft.raw(gpu_key))
    values: Mapping[str, Value] = {}
    refusals: tuple[Refusal, ...] = ()
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    command = command_of(said)
    if command is not None:
        run = inner(command)
        values, refusals, assumptions, warnings = run.values, run.refusals, run.assumptions, run.warnings
    else:
        draft.refuse("a task whose command is not a training run that is known", "name the training config itself")
    draft.put("nodes", nodes, nodes_key)
    if count:
        draft.put("gpus", count * nodes, gpu_key)
    own = draft.reading("task")
    return replace(
        own,
        values=MappingProxyType({**values, **own.values}),
        refusals=(*own.refusals, *refusals),
        assumptions=(*own.assumptions, *assumptions),
        warnings=tuple(dict.fromkeys((*own.warnings, *warnings))),
    )


def _count(accelerators: object) -> int | None:
    """ "H100:8", "H100:80GB:8", {"H100": 8}, {count: 8}, or a list of which the first is asked for."""
    if isinstance(accelerators, list) and accelerators:
        accelerators = accelerators[0]
    if isinstance(accelerators, Mapping):
        first = accelerators.get("count", next(iter(accelerators.values()), None))
        return first if isinstance(first, int) and not isinstance(first, bool) and 0 < first < 10_000 else None
    if not isinstance(accelerators, str) or not accelerators.strip():
        return None
    match = _COUNT.search(accelerators.strip())
    return max(1, int(match[1])) if match else 1


def command_of(said: Said) -> Said | None:
    """The settings of the command inside, which the task's keys carry under the tool's name; None without one."""
    tool, _, program = said.program.partition(" ")
    if tool not in TOOLS:
        return None
    prefix = f"{tool}:"
    entries: dict[str, Entry] = {
        key.removeprefix(prefix): entry for key, entry in said.entries.items() if key.startswith(prefix)
    }
    return replace(
        said, tool=tool, version=TOOLS[tool].version, entries=MappingProxyType(entries), program=program, warnings=()
    )
