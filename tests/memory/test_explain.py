"""The formulas behind the peak: every byte of it is in one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.memory.estimate import dims_of, estimate, timeline
from finefit.memory.explain import merged, terms_at_peak
from finefit.planner.explain import explain
from finefit.report.explain_text import explanation
from finefit.report.i18n import Translator
from finefit.report.layout import Page
from finefit.workload import DType, Lora, Model, Optimizer, Quant, Recipe, Sharding

# config.json of meta-llama/Meta-Llama-3-8B; 8,030,261,248 parameters by its safetensors index
LLAMA = Model("llama-3-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, tied=False)
FULL = Recipe("full", DType.BF16, Optimizer("adamw"), seq_len=2048)
LORA = replace(FULL, method="lora", lora=Lora(8, 16, ("q_proj", "v_proj")))
QLORA = replace(LORA, quant=Quant("nf4", double=True), checkpointing="full")


@settings(max_examples=25, deadline=None)
@given(
    recipe=st.sampled_from([FULL, LORA, QLORA, replace(FULL, sharding=Sharding("zero3", 8), master_weights=True)]),
    rows=st.integers(1, 9),
    length=st.integers(2, 3000),
    checkpointing=st.sampled_from(["none", "full"]),
    padded=st.booleans(),
)
def test_terms_add_up_to_the_peak(recipe: Recipe, rows: int, length: int, checkpointing: str, padded: bool) -> None:
    recipe = replace(recipe, micro_batch=rows, seq_len=length, checkpointing=checkpointing, padded=padded)
    peak, found = estimate(LLAMA, recipe), explain(LLAMA, recipe, None)
    assert sum(part.nbytes for part in found.parts) == peak.allocated
    assert {part.name: part.nbytes for part in found.parts} == {k: v for k, v in peak.parts.items() if v}
    for part in found.parts:
        assert sum(term.nbytes for term in part.terms) == part.nbytes


def test_merging_keeps_bytes_and_formulas_give_them() -> None:
    dims = dims_of(QLORA)
    terms = terms_at_peak(timeline(LLAMA, QLORA), dims)
    short = merged(terms, dims)
    assert len(short) < len(terms)
    assert sum(t.nbytes for t in short) == sum(t.nbytes for t in terms)
    for term in short:  # a product of the printed numbers, up to the rounding of each tensor to 512 bytes
        assert term.count * term.size.raw(dims) == pytest.approx(term.nbytes, rel=0.01, abs=512)


def test_weights_of_a_published_model() -> None:
    (weights,) = explain(LLAMA, FULL, None).parts[0].terms
    assert (weights.size.numel, weights.size.itemsize) == (8_030_261_248, 2)
    packed = {term.op: term.size.numel * term.size.itemsize for term in explain(LLAMA, QLORA, None).parts[0].terms}
    linear = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
    assert packed["parameter.absmax"] == linear // 64  # QLoRA, arXiv 2305.14314: 8 bits a block of 64
    assert packed["parameter.nested_absmax"] == 4 * linear // 64 // 256


def test_text_has_the_formula_of_what_weighs_most() -> None:
    page = Page(100)
    explanation(explain(LLAMA, replace(FULL, micro_batch=4), None), page, Translator("en"))
    text = str(page)
    assert "8,030,261,248 × 2 B" in text
    assert "32 × (b·s × 14,336) × 2 B" in text
    assert "b = 4, s = 2,048" in text
