"""Every row of the catalogue is whole and agrees with what makers say of the generation."""

from __future__ import annotations

import pytest

from finefit.catalog.gpu_facts import GpuFacts, all_facts, facts_of, variants
from finefit.errors import UnknownGpu
from finefit.units import GIB

ALL = pytest.mark.parametrize("facts", all_facts(), ids=lambda facts: facts.card.gpu.id)


@ALL
def test_every_row_is_plausible(facts: GpuFacts) -> None:
    card = facts.card
    # Torch reports less than the box says, which counts 10^9 or 2^30 bytes to the GB.
    assert 0.7 * card.gpu.memory_nominal_gb * 1e9 < card.gpu.memory <= card.gpu.memory_nominal_gb * GIB
    assert facts.flops and all(rate > 1e12 for rate in facts.flops.values())
    assert 50e9 < facts.bandwidth < 20e12
    assert facts.source and facts.confidence in ("high", "medium", "low")
    assert 2017 <= (facts.launched or 2017) <= 2026
    if facts.link:
        assert facts.link_bw and 50e9 <= facts.link_bw <= 2e12
    if "bf16" in facts.flops:
        assert facts.bf16 is True


@ALL
def test_precisions_follow_the_generation(facts: GpuFacts) -> None:
    """bf16 tensor cores came with Ampere (compute capability 8.0), FP8 with Ada and Hopper (8.9, 9.0)."""
    if facts.vendor != "NVIDIA":
        return
    capability = tuple(int(part) for part in facts.compute_capability.split("."))
    assert facts.bf16 is (capability >= (8, 0))
    assert facts.fp8 is (capability >= (8, 9))
    if "fp8" in facts.flops and "fp16" in facts.flops:
        assert facts.flops["fp8"] / facts.flops["fp16"] == pytest.approx(2, rel=0.02)


def test_figures_of_data_sheets() -> None:
    h100 = facts_of("h100-sxm-80")  # NVIDIA H100 data sheet, halved for dense
    assert h100.flops["bf16"] == pytest.approx(989e12, rel=0.001)
    assert h100.bandwidth == pytest.approx(3.35e12, rel=0.001)
    assert (h100.link, h100.link_bw) == ("NVLink4", 900e9)
    a100 = facts_of("a100-sxm-80")
    assert (a100.fp8, a100.flops["bf16"], a100.pcie) == (False, 312e12, "4.0x16")


def test_variants_are_rows_of_their_own() -> None:
    names = {facts.card.gpu.id for facts in variants(facts_of("rtx-4090"))}
    assert names == {"rtx-4090-d", "rtx-4090-48", "rtx-4090-laptop-16"}
    assert {facts.card.gpu.id for facts in variants(facts_of("rtx-3080-10"))} >= {"rtx-3080-laptop-16"}
    assert "rtx-3080-ti" not in {facts.card.gpu.id for facts in variants(facts_of("rtx-3080-10"))}


def test_an_id_that_does_not_exist() -> None:
    with pytest.raises(UnknownGpu):
        facts_of("rtx-9999")
