"""Stored traces: names, files, and the set that comes with the package."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts.ship_traces import entries

from finefit.memory import store
from finefit.memory.allocator import replay
from finefit.memory.estimate import estimate, timeline
from finefit.memory.tracefile import read
from finefit.step.size import Dims
from finefit.workload import DType, Lora, Model, Optimizer, Recipe
from finefit.workload.recipe import Sharding

ROOT = Path(__file__).resolve().parents[2]
MODEL = Model("a", "llama", 4096, 32, 32, 8, 128, 14336, 128256, tied=False)
RECIPE = Recipe("full", DType.BF16, Optimizer("adamw", "fused"), 2048, 2)
LORA = replace(RECIPE, method="lora", lora=Lora(8, 16, targets=("q_proj",)))
ENTRIES = {entry.name: entry for entry in entries()}
BUDGET = 1 << 20


@given(st.integers(2, 64), st.integers(1, 1 << 17), st.integers(1, 256))
def test_free_dimensions_are_no_part_of_the_name(rows: int, length: int, rank: int) -> None:
    assert LORA.lora is not None
    other = replace(LORA, micro_batch=rows, seq_len=length, lora=replace(LORA.lora, rank=rank, alpha=2 * rank))
    assert store.key_of(MODEL, other) == store.key_of(replace(MODEL, name="b", origin="elsewhere"), LORA)


@pytest.mark.parametrize(
    "other",
    [
        replace(RECIPE, micro_batch=1),
        replace(RECIPE, padded=True),
        replace(RECIPE, checkpointing="full"),
        replace(RECIPE, grad_accum=2),
        replace(RECIPE, optimizer=Optimizer("adamw", "foreach")),
        replace(RECIPE, sharding=Sharding("fsdp", 8)),
        replace(RECIPE, stack={"transformers": "4.57.1"}),
        LORA,
    ],
)
def test_what_changes_events_changes_the_name(other: Recipe) -> None:
    assert store.key_of(MODEL, other) != store.key_of(MODEL, RECIPE)


def test_a_mask_of_whole_blocks_is_a_class_of_its_own() -> None:
    padded = replace(RECIPE, padded=True)
    assert store.key_of(MODEL, padded) != store.key_of(MODEL, replace(padded, seq_len=2047))
    assert store.key_of(MODEL, RECIPE) == store.key_of(MODEL, replace(RECIPE, seq_len=2047))


def test_the_versions_are_those_that_the_extra_pins() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = dict(line.split("==") for line in project["optional-dependencies"]["trace"])
    assert {name: pinned[name] for name in store.VERSIONS} == store.VERSIONS


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "cache_folder", lambda: tmp_path)
    store.save(MODEL, replace(RECIPE, stack={"torch": "0"}), b"no trace")
    assert store.load(MODEL, replace(RECIPE, stack={"torch": "0"})) is None


def test_gpus_without_flash_attention_run_another_step() -> None:
    entry = next(iter(ENTRIES.values()))
    assert store.load(entry.model, entry.recipe, arch="Ampere") is not None
    assert store.load(entry.model, entry.recipe, arch="Turing") is None


def test_the_shipped_set_is_whole_and_small() -> None:
    names = {store.key_of(entry.model, entry.recipe) + store.SUFFIX for entry in ENTRIES.values()}
    files = {path.name: path.stat().st_size for path in store.SHIPPED.glob(f"*{store.SUFFIX}")}
    assert set(files) == names, "run python -m scripts.ship_traces"
    assert sum(files.values()) <= BUDGET


# Modelled and traced bytes differ by what docs/accuracy.md lists tensor by tensor.
@pytest.mark.parametrize("name", ENTRIES)
def test_shipped_traces_agree_with_the_model(name: str) -> None:
    model, recipe = ENTRIES[name].model, ENTRIES[name].recipe
    trace = store.load(model, recipe)
    assert trace is not None and trace.shipped and trace.layers == model.layers
    for rows, length in ((recipe.micro_batch, 2048), (4 if recipe.micro_batch > 1 else 1, 4096)):
        at = replace(recipe, micro_batch=rows, seq_len=length)
        assert estimate(model, at, trace=trace).allocated == pytest.approx(estimate(model, at).allocated, rel=0.005)


def test_a_shipped_trace_replays_like_the_model() -> None:
    entry = ENTRIES["meta-llama/Llama-3.1-8B lora all-linear full 2"]
    model, recipe = entry.model, entry.recipe
    trace = store.load(model, recipe)
    assert trace is not None and recipe.lora is not None
    dims = Dims(2, 2048, recipe.lora.rank)
    mine, modelled = (replay(t, dims).reserved for t in (trace.timeline(8_519_680), timeline(model, recipe)))
    assert mine == pytest.approx(modelled, rel=0.02)


def test_a_file_gives_the_same_after_reading_and_writing() -> None:
    from finefit.memory.tracefile import write

    trace = read(min(store.SHIPPED.glob(f"*{store.SUFFIX}")).read_bytes())
    again = read(write(trace.compiled, trace.program, trace.layers, trace.versions))
    assert again.program == trace.program
    assert (again.layers, again.versions) == (trace.layers, trace.versions)
    assert (again.compiled.columns, again.compiled.rows, again.compiled.points) == (
        trace.compiled.columns,
        trace.compiled.rows,
        trace.compiled.points,
    )


def test_reading_a_trace_imports_no_torch() -> None:
    code = (
        "import sys; from finefit.memory import store; from finefit.memory.tracefile import read\n"
        f"data = next(store.SHIPPED.glob('*{store.SUFFIX}')).read_bytes()\n"
        "read(data).timeline(0)\n"
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
