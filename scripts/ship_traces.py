"""Make the traces that come with the package: ``python -m scripts.ship_traces [--only TEXT]``.

Needs the extra ``finefit[trace]``. The set: the most used shapes, each in full, with adapters on PEFT's default
modules and on every linear one, 16-bit and quantised, with and without checkpointing, for one row, for rows of
one length and for padded rows. Traces that nothing in the set names any more are removed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from finefit.memory.store import SHIPPED, SUFFIX, key_of, save
from finefit.resolve.flags import resolve_flags
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe

MODELS = (
    "meta-llama/Llama-3.1-8B",
    "Qwen/Qwen2.5-7B",
    "Qwen/Qwen3-8B",
    "mistralai/Mistral-7B-v0.3",
)
METHODS = (("full", None), ("lora", None), ("lora", "all-linear"), ("qlora", None), ("qlora", "all-linear"))
BATCHES = ((1, False), (2, False), (2, True))  # rows, padded
_LENGTH = 2048


@dataclass(frozen=True, slots=True)
class Entry:
    """One trace of the set."""

    name: str
    model: Model
    recipe: Recipe


def entries() -> Iterator[Entry]:
    """The set, one entry a file; where two ways to say a recipe mean the same, it comes once."""
    seen = set()
    for name, (method, targets), checkpointing, (rows, padded) in product(MODELS, METHODS, ("none", "full"), BATCHES):
        found = resolve_flags(
            name, method=method, targets=targets, checkpointing=checkpointing, batch=rows, padded=padded, seq=_LENGTH
        )
        assert found.recipe is not None  # method and length are stated
        key = key_of(found.model, found.recipe)
        if key not in seen:
            seen.add(key)
            label = f"{name} {method} {targets or ''} {checkpointing} {rows} {'padded' if padded else ''}"
            yield Entry(" ".join(label.split()), found.model, found.recipe)


def main(arguments: list[str] | None = None) -> int:
    """Trace what is missing, write it beside ``finefit.memory.store``, say how big the set is."""
    parser = argparse.ArgumentParser(prog="scripts.ship_traces", description=__doc__)
    parser.add_argument("--only", default="", help="entries whose name contains this; nothing is removed then")
    parser.add_argument("--again", action="store_true", help="trace entries that are there already too")
    options = parser.parse_args(arguments)
    from finefit.lab.compiled import compile_trace

    known = set()
    for entry in entries():
        name = key_of(entry.model, entry.recipe) + SUFFIX
        known.add(name)
        if options.only not in entry.name or ((SHIPPED / name).exists() and not options.again):
            continue
        data = compile_trace(entry.model, entry.recipe).data
        save(entry.model, entry.recipe, data, folder=SHIPPED)
        print(f"{len(data):7,} B  {entry.name}", flush=True)
    files = sorted(SHIPPED.glob(f"*{SUFFIX}"))
    if not options.only:
        for file in files:
            if file.name not in known:
                file.unlink()
    files = sorted(SHIPPED.glob(f"*{SUFFIX}"))
    print(f"{len(files)} traces, {sum(file.stat().st_size for file in files):,} B")
    return 0


if __name__ == "__main__":
    sys.exit(main())
