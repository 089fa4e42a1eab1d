"""Speed: one warm estimate, the whole process, a peer's process, and the floor of any tool that needs torch.

    python -m benchmarks.speed [--runs 15] [--torch-python PATH] [--json]

All figures come from one run on one machine, the processes taking turns, so that a busy moment hits
each of them. ``--torch-python`` names an interpreter with torch and transformers; without it the floor
is skipped and said to be.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.tables import table
from finefit.memory.estimate import estimate
from finefit.resolve import resolve_flags

MODEL = "meta-llama/Llama-3.1-8B"
WARM_LIMIT, PROCESS_LIMIT = 2e-3, 0.35  # seconds: what this project promises
_WARM_CALLS = 200
_QUESTION = ["--method", "qlora", "--rank", "16", "--batch", "2", "--seq", "2048", "--gpu", "RTX 4090"]


def warm_estimate(calls: int = _WARM_CALLS) -> float:
    """Median seconds of one estimate whose structure is compiled, over QLoRA with changing lengths."""
    resolved = resolve_flags(MODEL, method="qlora", rank=16, batch=2, seq=2048, targets="all-linear")
    assert resolved.recipe is not None
    estimate(resolved.model, resolved.recipe, arch="Ada")
    seconds = []
    for call in range(calls):
        recipe = replace(resolved.recipe, seq_len=1024 + call)
        start = time.perf_counter()
        estimate(resolved.model, recipe, arch="Ada")
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def commands(torch_python: str | None) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Command lines by name, and what is skipped with the reason."""
    found = {"finefit memory": [sys.executable, "-m", "finefit.app.cli", "memory", MODEL, *_QUESTION, "--json"]}
    skipped = {}
    if find_spec("ftuneai"):
        options = [
            "--model",
            MODEL,
            "--method",
            "qlora",
            "--lora-rank",
            "16",
            "--batch-size",
            "2",
            "--seq-length",
            "2048",
        ]
        found["ftuneai estimate"] = [sys.executable, "-m", "ftuneai", "estimate", *options]
    else:
        skipped["ftuneai estimate"] = "ftuneai is not installed (pip install ftuneai)"
    if torch_python is None:
        skipped["import torch, transformers"] = "no interpreter was named with --torch-python"
    else:
        found["import torch, transformers"] = [torch_python, "-c", "import torch, transformers"]
    return found, skipped


def processes(lines: dict[str, list[str]], runs: int) -> tuple[dict[str, float], dict[str, str]]:
    """Median wall-clock seconds of each command over ``runs`` turns after one that fills the caches."""
    seconds: dict[str, list[float]] = {name: [] for name in lines}
    failed: dict[str, str] = {}
    for turn in range(runs + 1):
        for name, line in lines.items():
            if name in failed:
                continue
            start = time.perf_counter()
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            spent = time.perf_counter() - start
            if done.returncode not in (0, 1):  # 1: it does not fit
                failed[name] = f"exit code {done.returncode}: {' '.join(done.stderr.split())[-120:]}"
            elif turn:
                seconds[name].append(spent)
    return {name: statistics.median(found) for name, found in seconds.items() if found}, failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; 1 where one of finefit's is beyond its limit."""
    parser = argparse.ArgumentParser(prog="benchmarks.speed", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=15, help="turns of each process")
    parser.add_argument("--torch-python", metavar="PATH", help="an interpreter with torch and transformers")
    parser.add_argument("--json", action="store_true")
    stated = parser.parse_args(arguments)
    if stated.runs < 1:
        parser.error("--runs is 1 or more")
    torch_python = stated.torch_python
    if torch_python is not None and not Path(torch_python).is_file():
        parser.error(f"--torch-python: there is no {torch_python}")
    lines, skipped = commands(torch_python)
    warm = warm_estimate()
    medians, failed = processes(lines, stated.runs)
    skipped |= failed
    result: dict[str, Any] = {
        "scored": 1 + len(medians),
        "skipped": skipped,
        "warm_estimate_seconds": warm,
        "process_seconds": medians,
        "limits": {"warm_estimate_seconds": WARM_LIMIT, "finefit memory": PROCESS_LIMIT},
        "runs": stated.runs,
    }
    kept = warm <= WARM_LIMIT and medians.get("finefit memory", float("inf")) <= PROCESS_LIMIT
    print(json.dumps(result, indent=2) if stated.json else as_table(result))
    return 0 if kept else 1


def as_table(result: dict[str, Any]) -> str:
    """The same as a table of milliseconds."""
    limits = result["limits"]
    rows = [["warm estimate", _ms(result["warm_estimate_seconds"]), _ms(limits["warm_estimate_seconds"])]]
    for name, seconds in result["process_seconds"].items():
        rows.append([f"{name}, whole process", _ms(seconds), _ms(limits.get(name))])
    notes = [f"skipped: {name}: {reason}" for name, reason in result["skipped"].items()]
    return "\n".join([table(["median", "ms", "limit"], rows), *notes])


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.3g}"


if __name__ == "__main__":
    sys.exit(main())
