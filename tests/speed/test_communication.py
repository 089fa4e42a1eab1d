"""Bytes on the links against the ring formulas, and the links' speed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speed_cases import A100, A800, H100, LLAMA_3_8B, LLAMA_7B, RTX_4090, full, gpu, lora, on, qlora, sharded

from finefit.errors import NotModelled
from finefit.speed.communication import bus_rate, network_of, pcie_bandwidth, traffic
from finefit.speed.steptime import step_time
from finefit.speed.work import work
from finefit.workload import Cluster, DType, Sharding
from finefit.workload.recipe import Parallel

P = 6_738_415_616  # parameters of LLaMA-7B
LORA_QV8 = 4_194_304


def sent(recipe, ranks, model=LLAMA_7B, recomputed=0.0, shards=0):
    return traffic(work(model, recipe), model, recipe, ranks, recomputed, shards)


def test_one_gpu_sends_nothing():
    for kind in ("none", "ddp", "zero1", "zero2", "zero3", "fsdp"):
        got = sent(sharded(full(), kind, 1), 1)
        assert (got.per_micro_batch, got.per_step) == (0, 0)


def test_ddp_reduces_gradients_once_a_step():
    got = sent(sharded(full(), "ddp", 4), 4)
    assert got.per_step == pytest.approx(2 * 3 / 4 * P * 2)
    assert got.per_micro_batch == 0


def test_ddp_of_fp32_weights_reduces_fp32():
    got = sent(sharded(full(weight_dtype=DType.FP32, autocast=DType.BF16), "ddp", 4), 4)
    assert got.per_step == pytest.approx(2 * 3 / 4 * P * 4)


def test_ddp_of_adapters_sends_adapters_only():
    got = sent(sharded(lora(targets=("q_proj", "v_proj")), "ddp", 2), 2)
    assert got.per_step == pytest.approx(2 * 1 / 2 * LORA_QV8 * 4)


def test_zero2_scatters_every_micro_batch_and_gathers_once():
    got = sent(sharded(full(), "zero2", 8), 8)
    assert got.per_micro_batch == pytest.approx(7 / 8 * P * 2)
    assert got.per_step == pytest.approx(7 / 8 * P * 2)


@pytest.mark.parametrize("kind", ["zero3", "fsdp"])
def test_zero3_gathers_twice_and_scatters_once(kind):
    got = sent(sharded(full(), kind, 8), 8)
    assert got.per_micro_batch == pytest.approx(7 / 8 * 3 * P * 2)  # ZeRO, 1910.02054, section 7.2.2: 3Ψ


def test_sharded_qlora_gathers_four_bit_blocks():
    """NF4 with double quantisation is 4.127 bits a weight (QLoRA, section 3); the rest stays 16-bit."""
    got = sent(sharded(qlora(), "fsdp", 2), 2)
    linear, adapters = 6_476_005_376, work(LLAMA_7B, qlora()).trained
    want = 2 * (linear * 4.127 / 8 + (P - linear) * 2) + adapters * 4
    assert got.per_micro_batch == pytest.approx(want / 2, rel=1e-3)


def test_offloaded_weights_come_from_the_host_twice():
    recipe = full(sharding=Sharding("zero3", 2, offload_params=True))
    assert sent(recipe, 2).from_host == pytest.approx(P * 2)
    slow = step_time(LLAMA_7B, recipe, on(RTX_4090, 2))
    assert slow.communication > step_time(LLAMA_7B, sharded(full(), "zero3", 2), on(RTX_4090, 2)).communication


def test_unknown_sharding_is_refused():
    with pytest.raises(NotModelled):
        sent(sharded(full(), "pipeline", 2), 2)


@pytest.mark.parametrize(
    ("card", "count", "gb_s"),
    [
        (A100, 8, 200),
        (H100, 8, 350),
        (A800, 8, 133.3),  # NVLink cut to two thirds
        (gpu("rtx-5090", "Blackwell", 209.5, 1792, "PCIe5", 126), 4, 28),
        (gpu("a100-pcie-80", "Ampere", 312, 1935, "NVLink bridge", 600), 4, 21),
        (gpu("a100-pcie-80", "Ampere", 312, 1935, "NVLink bridge", 600), 8, 12.5),
        (gpu("t4", "Turing", 65, 320, "PCIe3"), 2, 10.5),
    ],
)
def test_bus_bandwidth(card, count, gb_s):
    assert bus_rate(on(card, count)).value / 1e9 == pytest.approx(gb_s, rel=0.01)


@pytest.mark.parametrize("link", ["none", "", "NVLink bridge", "PCIe", "Infinity Fabric"])
def test_every_card_has_a_pcie_link(link):
    assert pcie_bandwidth(gpu("rtx-a6000", "Ampere", 154.8, 768, link)) == 21e9


def test_eight_lanes_carry_half():
    wide, narrow = (
        gpu("rtx-4070", "Ada", 58.3, 504, "PCIe4", 63),
        gpu("rtx-4060-ti-16", "Ada", 44.1, 288, "PCIe4", 31.5),
    )
    assert pcie_bandwidth(narrow) == pytest.approx(pcie_bandwidth(wide) / 2, rel=1e-3)


def test_tensor_ranks_all_reduce_four_times_a_layer():
    """Megatron-LM, 1909.08053, section 3: two all-reduces of b·s·h forward and two backward; recomputation adds two."""
    recipe = full(4096, 1, parallel=Parallel(tensor=4))
    state = 4096 * 4096 * 2
    assert sent(recipe, 2).activations == pytest.approx(32 * 4 * 2 * 3 / 4 * state)
    assert sent(recipe, 2, recomputed=1.0).activations == pytest.approx(32 * 6 * 2 * 3 / 4 * state)


def test_context_ranks_pass_keys_and_values_round():
    """Ring attention: the other ranks' keys and values, once forward and twice backward."""
    recipe = full(8192, 1, parallel=Parallel(context=2))
    got = sent(recipe, 2, LLAMA_3_8B).per_micro_batch
    assert got == pytest.approx(32 * 3 * 4096 * 2 * 1024 * 2)  # layers, passes, a rank's tokens, two of width 1024


def test_pipeline_stages_pass_hidden_states():
    recipe = full(4096, 1, parallel=Parallel(pipeline=2))
    assert sent(recipe, 2).activations == pytest.approx(2 * 4096 * 4096 * 2)


def test_hybrid_shards_gather_inside_a_machine_and_reduce_across():
    """HSDP over 2 x 8: gathers among 8, gradients of an eighth all-reduced between 2."""
    got = sent(sharded(full(), "fsdp", 16), 16, shards=8)
    assert got.per_micro_batch == pytest.approx(7 / 8 * 3 * P * 2)
    assert got.per_step == pytest.approx(2 * 1 / 2 * P * 2 / 8)


@pytest.mark.parametrize(
    ("card", "gbit"),
    [(H100, 8 * 400), (A100, 8 * 200), (RTX_4090, 100)],  # NVIDIA DGX H100 and DGX A100 user guides
)
def test_networks_that_are_not_stated(card, gbit):
    assert network_of(Cluster(card, 16, 2)) == (gbit * 1e9 / 8, False)
    assert network_of(Cluster(card, 16, 2, 50e9)) == (50e9, True)


@given(st.sampled_from([1e9, 5e9, 12.5e9, 50e9, 200e9]))
def test_a_faster_network_is_never_slower(network):
    recipe = sharded(full(4096), "zero3", 16)
    slow = step_time(LLAMA_7B, recipe, Cluster(A100, 16, 2, network)).seconds
    assert step_time(LLAMA_7B, recipe, Cluster(A100, 16, 2, 2 * network)).seconds <= slow
    assert slow >= step_time(LLAMA_7B, recipe, Cluster(A100, 16, 1)).seconds


def test_slow_links_show_in_the_step():
    """2x RTX 4090, LoRA: sharding costs more than replicas (fsdp_qlora: +10 % and more)."""
    replicas = step_time(LLAMA_7B, sharded(lora(2048), "ddp", 2), on(RTX_4090, 2)).seconds
    assert step_time(LLAMA_7B, sharded(lora(2048), "fsdp", 2), on(RTX_4090, 2)).seconds > 1.1 * replicas


@given(st.integers(2, 64), st.sampled_from(["ddp", "zero1", "zero2", "zero3"]))
def test_bytes_grow_with_ranks_towards_the_ring_limit(n, kind):
    few, more = sent(sharded(full(), kind, n), n), sent(sharded(full(), kind, n + 1), n + 1)
    assert more.per_step + more.per_micro_batch > few.per_step + few.per_micro_batch
    assert more.per_step + more.per_micro_batch <= 3 * P * 2
