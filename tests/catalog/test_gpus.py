"""The GPU table row by row, and the names people write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.catalog.gpu_table import Card, cards
from finefit.catalog.gpus import all_gpus, find_gpu, parse_gpus
from finefit.errors import FinefitError, InputError, NotModelled, UnknownGpu
from finefit.units import GIB

CARDS = {card.gpu.id: card for card in cards()}


# ---- the table ---------------------------------------------------------------------------------------------------


def test_ids_and_names_are_unique() -> None:
    assert len(CARDS) == len(all_gpus()) == 105
    assert len({gpu.name for gpu in all_gpus()}) == 105


@pytest.mark.parametrize("card", cards(), ids=lambda card: card.gpu.id)
def test_row_is_plausible(card: Card) -> None:
    gpu = card.gpu
    assert gpu.source and gpu.confidence in {"high", "medium", "low"}
    assert card.devices in {1, 2}
    nominal = gpu.memory_nominal_gb
    assert 6 <= nominal <= 512
    # torch never reports more than the box says in GiB; unified memory keeps a quarter for the system
    assert 0.74 * nominal <= gpu.memory / GIB <= nominal + 0.05
    assert 192e9 <= gpu.bandwidth <= 8e12
    assert gpu.fp16_flops is not None and 1e13 <= gpu.fp16_flops <= 2.6e15
    assert gpu.bf16_flops is None or gpu.bf16_flops == gpu.fp16_flops
    # dense half-precision work for each byte moved: 30 to 400 FLOP on every card made since 2017, whatever its size;
    # a sparse rate taken for a dense one, or TB for GB, falls outside
    assert 30 <= gpu.fp16_flops / gpu.bandwidth <= 500
    assert gpu.tdp_w is None or 30 <= gpu.tdp_w <= 1500
    assert gpu.interconnect
    assert gpu.interconnect_bw is None or 15e9 <= gpu.interconnect_bw <= 1.9e12


@pytest.mark.parametrize("arch", ["Volta", "Turing"])
def test_no_bf16_units_before_ampere(arch: str) -> None:
    """NVIDIA Ampere whitepaper: bf16 tensor cores are new in GA100."""
    assert all(gpu.bf16_flops is None for gpu in all_gpus() if gpu.arch == arch)


@pytest.mark.parametrize(
    ("gpu_id", "low", "high"),
    [  # GiB that torch printed in public out-of-memory messages
        ("a100-sxm-80", 79.15, 79.35),
        ("h100-sxm-80", 79.10, 79.32),
        ("a100-sxm-40", 39.39, 39.59),
        ("v100-sxm2-32", 31.74, 31.75),
        ("rtx-3090", 23.5, 23.7),
        ("rtx-4090", 23.5, 23.65),
        ("rtx-a6000", 47.4, 47.5),
        ("t4", 14.56, 14.75),
        ("b200-sxm", 178.35, 178.4),
        ("h200-sxm", 139.7, 143771 / 1024),
    ],
)
def test_memory_is_what_torch_reports(gpu_id: str, low: float, high: float) -> None:
    assert low <= round(CARDS[gpu_id].gpu.memory / GIB, 2) <= high


@pytest.mark.parametrize(
    ("gpu_id", "tflops", "gb_s"),
    [  # maker's data sheets and architecture whitepapers: dense, fp32 accumulation
        ("v100-sxm2-32", 125, 900),
        ("a100-sxm-80", 312, 2039),
        ("h100-sxm-80", 989.4, 3352),
        ("l40s", 362, 864),
        ("rtx-3090", 71, 936),
        ("rtx-4090", 165.2, 1008),
        ("rtx-5090", 209.5, 1792),
        ("mi300x", 1307.4, 5325),
    ],
)
def test_rates_are_dense(gpu_id: str, tflops: float, gb_s: float) -> None:
    gpu = CARDS[gpu_id].gpu
    assert gpu.fp16_flops == pytest.approx(tflops * 1e12)
    assert gpu.bandwidth == pytest.approx(gb_s * 1e9)


def test_links() -> None:
    assert (CARDS["h100-sxm-80"].gpu.interconnect, CARDS["h100-sxm-80"].gpu.interconnect_bw) == ("NVLink4", 900e9)
    assert CARDS["h800-sxm-80"].gpu.interconnect_bw == 400e9
    # PCI Express 4.0 x16 is 31.5 GB/s one way (PCI-SIG)
    assert CARDS["rtx-4090"].gpu.interconnect == "PCIe4"
    assert CARDS["rtx-4090"].gpu.interconnect_bw == pytest.approx(2 * 31.5e9, rel=0.001)
    assert CARDS["rtx-4060-ti-16"].gpu.interconnect_bw == pytest.approx(31.5e9, rel=0.001)  # x8
    assert CARDS["apple-m4-max-128"].gpu.interconnect_bw is None


def test_a_card_of_two_dies_is_two_devices() -> None:
    """AMD MI250X data sheet: 383 TFLOPS, 128 GB and 3.2 TB/s a card; torch shows each die as a GPU of 64 GB."""
    gpu = CARDS["mi250x"].gpu
    assert gpu.fp16_flops == pytest.approx(383e12 / 2)
    assert gpu.memory_nominal_gb == 64
    assert gpu.memory / GIB == pytest.approx(63.98)


# ---- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("card", cards(), ids=lambda card: card.gpu.id)
def test_every_card_answers_to_its_id_name_and_label(card: Card) -> None:
    for name in (card.gpu.id, card.gpu.name, card.label, card.gpu.name.upper(), f"  {card.gpu.id} "):
        assert find_gpu(name).gpu is card.gpu


@pytest.mark.parametrize(
    ("text", "gpu_id"),
    [
        ("4090", "rtx-4090"),
        ("rtx4090", "rtx-4090"),
        ("RTX 4090 24G", "rtx-4090"),
        ("RTX 4090（24G）", "rtx-4090"),
        ("英伟达4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("RTX 4090 48GB", "rtx-4090-48"),
        ("4090 48G", "rtx-4090-48"),
        ("vGPU-48GB", "rtx-4090-48"),
        ("4090D", "rtx-4090-d"),
        ("RTX 4090 D", "rtx-4090-d"),
        ("4090 laptop", "rtx-4090-laptop-16"),
        ("4090m", "rtx-4090-laptop-16"),
        ("4090 笔记本", "rtx-4090-laptop-16"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop-16"),
        ("5090 D V2", "rtx-5090-d-v2"),
        ("A100 80GB", "a100-sxm-80"),
        ("A100-80G", "a100-sxm-80"),
        ("a100 80", "a100-sxm-80"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80"),
        ("A100-40GB", "a100-sxm-40"),
        ("A800 80G", "a800-sxm-80"),
        ("H100", "h100-sxm-80"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80"),
        ("h100-pcie", "h100-pcie-80"),
        ("H100 NVL", "h100-nvl-94"),
        ("H200", "h200-sxm"),
        ("H20", "h20-96"),
        ("H20 141GB", "h20-141"),
        ("NVIDIA GH200 480GB", "gh200-96"),
        ("V100-32GB", "v100-sxm2-32"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16"),
        ("A6000", "rtx-a6000"),
        ("RTX6000Ada", "rtx-6000-ada"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("RTXPRO6000", "rtx-pro-6000"),
        ("RTX 6000 96GB", "rtx-pro-6000"),
        ("RTX 6000D", "rtx-6000d"),
        ("RTX 8000", "quadro-rtx-8000"),
        ("T4 15GB", "t4"),
        ("A100-80GB (79.18 GiB)", "a100-sxm-80"),
        ("A40 46GB", "a40"),
        ("3090ti", "rtx-3090-ti"),
        ("4070 Ti SUPER", "rtx-4070-ti-super"),
        ("L40", "l40"),
        ("L40S", "l40s"),
        ("Titan RTX", "titan-rtx"),
        ("DGX Spark", "gb10"),
        ("Gaudi 3", "gaudi3"),
        ("昇腾 910C", "ascend-910c"),
        ("Ascend 910B 32GB", "ascend-910b4"),
    ],
)
def test_names_as_people_write_them(text: str, gpu_id: str) -> None:
    assert find_gpu(text).gpu.id == gpu_id


def test_rtx_4090_names_its_three_siblings_in_one_line() -> None:
    (note,) = find_gpu("RTX 4090").notes
    assert "\n" not in note
    for sibling in ("rtx-4090-48", "rtx-4090-d", "rtx-4090-laptop-16"):
        assert CARDS[sibling].label in note
    assert "Ti" not in note


def test_a_size_or_a_form_that_was_guessed_is_said() -> None:
    assert "A100 PCIe 80GB" in find_gpu("A100 80GB").notes[0]
    assert "H100 NVL 94GB" in find_gpu("H100").notes[0]
    assert "16GB" in find_gpu("4060 Ti").notes[0]  # an 8 GB one exists
    assert find_gpu("A100 PCIe 80GB").notes == ()
    assert find_gpu("T4").notes == ()


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("RTX 6000", ["quadro-rtx-6000", "rtx-a6000", "rtx-6000-ada", "rtx-pro-6000"]),
        ("RTX 6000 48GB", ["rtx-a6000", "rtx-6000-ada"]),
        ("A100", ["a100-pcie-40", "a100-sxm-40", "a100-pcie-80", "a100-sxm-80"]),
        ("V100", ["v100-sxm2-16", "v100-sxm2-32", "v100-pcie-16"]),
        ("910B", ["ascend-910b2", "ascend-910b3", "ascend-910b4"]),
        ("12G card", ["rtx-3060-12", "rtx-3080-ti", "rtx-4070", "rtx-5070"]),
        ("RTX 5000", ["rtx-5000-ada", "rtx-pro-5000"]),
    ],
)
def test_a_name_of_several_cards_is_asked_back(text: str, choices: list[str]) -> None:
    with pytest.raises(UnknownGpu, match="several cards") as caught:
        find_gpu(text)
    for gpu_id in choices:
        assert CARDS[gpu_id].label in str(caught.value.fix)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("RTX 5060", "rtx-5060-ti-16"),  # not the Ti
        ("RTX 3080 12GB", "rtx-3080-10"),  # a size the catalogue lacks is never dropped
        ("2080 Ti 22GB", "rtx-2080-ti"),
        ("4060 Ti 8GB", "rtx-4060-ti-16"),
        ("GeForce RTX 4099", "rtx-4090"),
        ("MI300", "mi300x"),
        ("Kaggle T4", "t4"),
        ("RTX 4090 (WSL2)", "rtx-4090"),
        ("two H100", "h100-sxm-80"),
    ],
)
def test_unknown_names_list_the_nearest(text: str, near: str) -> None:
    with pytest.raises(UnknownGpu, match="no GPU named") as caught:
        find_gpu(text, where="--gpu")
    assert CARDS[near].label in str(caught.value.fix)
    assert caught.value.where == "--gpu"


@given(st.text(max_size=30))
def test_any_text_gives_a_card_or_our_error(text: str) -> None:
    try:
        assert find_gpu(text).gpu.id in CARDS
    except UnknownGpu as refusal:
        assert refusal.fix


@given(st.sampled_from(cards()), st.sampled_from(["{}", "NVIDIA {}", "{} GPU"]), st.booleans(), st.sampled_from(" -_"))
def test_case_and_separators_do_not_matter(card: Card, frame: str, upper: bool, separator: str) -> None:
    text = frame.format(card.gpu.id.replace("-", separator))
    assert find_gpu(text.upper() if upper else text).gpu is card.gpu


# ---- counts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "gpu_id", "count", "nodes"),
    [
        ("RTX 4090", "rtx-4090", 1, 1),
        ("2x RTX 4090", "rtx-4090", 2, 1),
        ("2 x 4090", "rtx-4090", 2, 1),
        ("2 4090", "rtx-4090", 2, 1),
        ("4090 x2", "rtx-4090", 2, 1),
        ("4090*2", "rtx-4090", 2, 1),
        ("2 x 4090 48GB", "rtx-4090-48", 2, 1),
        ("2 x 4090 laptop", "rtx-4090-laptop-16", 2, 1),
        ("2080 Ti", "rtx-2080-ti", 1, 1),
        ("6000 Ada", "rtx-6000-ada", 1, 1),
        ("8*A100-80GB", "a100-sxm-80", 8, 1),
        ("A100-80GB:8", "a100-sxm-80", 8, 1),
        ("A100 80GB × 8", "a100-sxm-80", 8, 1),
        ("8卡A100 80G", "a100-sxm-80", 8, 1),
        ("2张 RTX 4090", "rtx-4090", 2, 1),
        ("H100:8", "h100-sxm-80", 8, 1),
        ("2 x 8 H100", "h100-sxm-80", 16, 2),
        ("2x8xH100", "h100-sxm-80", 16, 2),
        ("2 nodes x 8 H100", "h100-sxm-80", 16, 2),
        ("2x H100:8", "h100-sxm-80", 16, 2),
        ("2x8x4090", "rtx-4090", 16, 2),
        ("4x MI250X", "mi250x", 8, 1),
    ],
)
def test_counts(text: str, gpu_id: str, count: int, nodes: int) -> None:
    cluster, _ = parse_gpus(text)
    assert (cluster.gpu.id, cluster.count, cluster.nodes) == (gpu_id, count, nodes)


def test_more_than_a_board_in_one_machine_is_said() -> None:
    _, notes = parse_gpus("16x H100")
    assert any("2 x 8 H100" in note for note in notes)
    assert not any("machine" in note for note in parse_gpus("8x H100")[1])


@pytest.mark.parametrize("text", ["", "  ", "0x 4090", "H100:0", "0 x 8 H100", "-1x H100", "1.5x H100"])
def test_no_gpus_is_wrong_input(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_gpus(text)
    assert caught.value.where == "--gpu"
    assert not isinstance(caught.value, UnknownGpu)


@pytest.mark.parametrize("text", ["1x 3090 + 1x 4090", "3090,4090", "3090 and 4090"])
def test_mixed_cards_are_refused(text: str) -> None:
    with pytest.raises(NotModelled):
        parse_gpus(text)


@pytest.mark.parametrize("text", ["x", "2x", "8x80GB", "two H100", "NaNx H100", "8x", "9" * 5000 + "x H100"])
def test_nonsense_names_no_card(text: str) -> None:
    with pytest.raises(UnknownGpu):
        parse_gpus(text)


@given(st.text(alphabet="0123456789xX*: -hHaA100RTX4090GBnodes卡", max_size=24))
def test_any_count_text_gives_a_cluster_or_our_error(text: str) -> None:
    try:
        cluster, _ = parse_gpus(text)
    except FinefitError as refusal:
        assert refusal.fix
    else:
        assert cluster.count >= cluster.nodes >= 1


@given(st.integers(1, 64), st.integers(1, 16), st.sampled_from(cards()))
def test_nodes_times_gpus(nodes: int, per_node: int, card: Card) -> None:
    cluster, _ = parse_gpus(f"{nodes} x {per_node} x {card.gpu.id}")
    assert (cluster.gpu, cluster.count, cluster.nodes) == (card.gpu, nodes * per_node * card.devices, nodes)
