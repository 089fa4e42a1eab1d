"""Speed of tracing, beside torch's own MemTracker: ``python -m benchmarks.trace_speed [--only TEXT] [--json]``.

Each row runs in a process of its own, imports not counted; ``trace`` is the whole trace (loading, two optimizer
steps), ``step`` its second step alone with the building of the fake model, ``folded`` the three small traces of
the compiled form at any depth. MemTracker (torch.distributed._tools.mem_tracker) runs the same loop on the same
fake model, two steps too, without an event log. The work is that of one thread: limits are compared with CPU
seconds, which other work on the machine does not change as it does wall seconds.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.tables import table
from finefit.resolve.flags import resolve_flags
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe

MEMORY_LIMIT = 2 << 30


@dataclass(frozen=True, slots=True)
class Row:
    """A recipe and the seconds that one steady step may take, building included."""

    name: str
    model: str
    flags: dict[str, Any]
    limit: float
    peer: bool = True  # MemTracker cannot follow frozen parameters


ROWS = (
    Row("8B full", "meta-llama/Llama-3.1-8B", {"method": "full"}, 4.0),
    Row("70B full, checkpointing", "meta-llama/Llama-3.1-70B", {"method": "full", "checkpointing": "full"}, 12.0),
    Row("30B of 128 experts, full", "Qwen/Qwen3-30B-A3B", {"method": "full"}, 8.0),
    Row(
        "8B QLoRA, checkpointing",
        "meta-llama/Llama-3.1-8B",
        {"method": "qlora", "targets": "all-linear", "checkpointing": "full"},
        8.0,
        peer=False,
    ),
)
FOLDED_LIMIT = 3.0


def workload(row: Row) -> tuple[Model, Recipe]:
    """One row of 2,048 tokens."""
    found = resolve_flags(row.model, batch=1, seq=2048, **row.flags)
    assert found.recipe is not None
    return found.model, found.recipe


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def measure_trace(row: Row) -> dict[str, Any]:
    """The whole trace, and of it the part that one steady step needs."""
    from finefit.lab import trace as lab
    from finefit.lab.tracker import Tracker

    model, recipe = workload(row)
    lab.trace(replace(model, layers=2), recipe)  # what a process does once
    clock: list[tuple[int, float, float]] = []
    original = Tracker.mark

    def mark(tracker: Tracker, phase: str, step: int) -> None:
        clock.append((step, time.perf_counter(), time.process_time()))
        original(tracker, phase, step)

    Tracker.mark = mark  # type: ignore[method-assign]
    events = 0

    def run() -> None:
        nonlocal events
        events = len(lab.trace(model, recipe).events)

    wall, cpu = _timed(run)
    first, second = (next(at for step, *at in clock if step == n) for n in (1, 2))
    return {
        "wall": wall,
        "cpu": cpu,
        "step_wall": wall - (second[0] - first[0]),
        "step_cpu": cpu - (second[1] - first[1]),
        "events": events,
    }


def measure_folded(row: Row) -> dict[str, Any]:
    """The three small traces and what is made of them."""
    from finefit.lab.compiled import compile_trace
    from finefit.lab.trace import trace

    model, recipe = workload(row)
    trace(replace(model, layers=2), recipe)
    wall, cpu = _timed(lambda: compile_trace(model, recipe))
    return {"wall": wall, "cpu": cpu}


def measure_peer(row: Row) -> dict[str, Any]:
    """MemTracker over the same fake model and loop; it cannot be asked whether rows are packed, so nobody asks."""
    from unittest.mock import patch

    import torch
    import transformers.masking_utils as masks
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    from finefit.lab.build import load_model, prepare_model
    from finefit.lab.optimizers import build_optimizer
    from finefit.lab.sdpa import attention
    from finefit.lab.shim import fake_cuda

    model, recipe = workload(row)

    def run() -> None:
        unpacked = patch.object(masks, "find_packed_sequence_indices", lambda position_ids: None)
        with unpacked, fake_cuda(attention("sm80"), "sm80"), FakeTensorMode(allow_non_fake_inputs=False):
            module = prepare_model(load_model(model, recipe), recipe)
            optimizer = build_optimizer(
                [(n, p) for n, p in module.named_parameters() if p.requires_grad], recipe.optimizer
            )
            peer = MemTracker()
            peer.track_external(module, optimizer)
            with peer:
                for _ in range(2):
                    ids = torch.zeros((recipe.micro_batch, recipe.seq_len), dtype=torch.long, device="cuda")
                    module(input_ids=ids, labels=ids, use_cache=False).loss.backward()
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
                    peer.reset_mod_stats()

    wall, cpu = _timed(run)
    return {"wall": wall, "cpu": cpu}


MEASURES = {"trace": measure_trace, "folded": measure_folded, "peer": measure_peer}


def _child(row: int, what: str) -> dict[str, Any] | None:
    command = [sys.executable, "-m", "benchmarks.trace_speed", "--child", str(row), what]
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode else json.loads(done.stdout.splitlines()[-1])


def main(arguments: list[str] | None = None) -> int:
    """Measure the rows, print them, 1 where a limit is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks.trace_speed", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("ROW", "WHAT"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        result = MEASURES[options.child[1]](ROWS[int(options.child[0])])
        result["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps(result))
        return 0
    found = {}
    for number, row in enumerate(ROWS):
        if options.only in row.name:
            wanted = MEASURES if row.peer else ("trace", "folded")
            found[row.name] = {
                **{what: _child(number, what) for what in wanted},
                "limit_seconds": row.limit,
                "folded_limit_seconds": FOLDED_LIMIT,
            }
    if options.json:
        print(json.dumps(found))
    else:
        print(table(_HEAD, (_line(name, result) for name, result in found.items())))
    return 0 if all(_within(result) for result in found.values()) else 1


_HEAD = ["row", "step, CPU s (wall)", "limit", "trace", "folded", "MemTracker", "GiB"]


def _line(name: str, result: dict[str, Any]) -> list[str]:
    def seconds(what: str) -> str:
        return f"{result[what]['cpu']:.1f} ({result[what]['wall']:.1f})" if result.get(what) else "-"

    trace = result["trace"]
    step, rss = "-", "-"
    if trace:
        step, rss = f"{trace['step_cpu']:.1f} ({trace['step_wall']:.1f})", f"{trace['rss'] / 2**30:.2f}"
    return [name, step, f"{result['limit_seconds']:.0f}", *map(seconds, ("trace", "folded", "peer")), rss]


def _within(result: dict[str, Any]) -> bool:
    trace, folded = result["trace"], result["folded"]
    if trace is None or folded is None:
        return False
    return bool(
        trace["step_cpu"] <= result["limit_seconds"]
        and folded["cpu"] <= result["folded_limit_seconds"]
        and trace["rss"] <= MEMORY_LIMIT
    )


if __name__ == "__main__":
    sys.exit(main())
