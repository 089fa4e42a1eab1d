"""What else ``data/gpus.csv`` knows of a card beside what an estimate reads: rates by precision, links, support."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from finefit.catalog._tables import read_rows
from finefit.catalog.gpu_table import FILE, Card, card_by_id

# Tensor cores take FP8 from compute capability 8.9 on (CUDA C++ Programming Guide, "Compute Capabilities"), AMD
# matrix cores from CDNA3 on (AMD CDNA 3 instruction set guide).
_FP8_CAPABILITY = (8, 9)
_FP8_CDNA = ("CDNA3", "CDNA4")


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One card of the catalogue, whole: of two devices together where torch sees two.

    Attributes:
        card: names, devices, and the memory torch reports on one device.
        compute_capability: CUDA's, or the name of the instruction set ("gfx942"); "" where there is none.
        flops: dense FLOP/s by precision ("tf32", "bf16", "fp16", "fp8", "fp4"), accumulated in fp32; absent: unknown
            or not supported.
        bf16, fp8: whether the matrix units take them; None unknown.
        bandwidth: bytes a second of device memory.
        link, link_bw: fastest link to a neighbour and its bytes a second in both directions; "" and None without.
        pcie: generation and lanes ("4.0x16"), "C2C" beside a Grace CPU, "" without.
        watts: power limit of the maker's board.
    """

    card: Card
    vendor: str
    arch: str
    compute_capability: str
    flops: dict[str, float]
    bf16: bool | None
    fp8: bool | None
    bandwidth: float
    link: str
    link_bw: float | None
    pcie: str
    watts: int | None
    launched: int | None
    source: str
    confidence: str


@cache
def all_facts() -> tuple[GpuFacts, ...]:
    """Every card, in file order. Read once, on the first call."""
    return tuple(_facts(row) for row in read_rows(FILE))


def facts_of(gpu_id: str) -> GpuFacts:
    """The facts of one card of the catalogue.

    Raises:
        UnknownGpu: no GPU has this id.
    """
    card_by_id(gpu_id)
    return next(facts for facts in all_facts() if facts.card.gpu.id == gpu_id)


def variants(facts: GpuFacts) -> tuple[GpuFacts, ...]:
    """Other cards whose ids begin alike ("rtx-4090-d" and "rtx-4090-laptop-16" beside "rtx-4090")."""
    stem = _stem(facts.card.gpu.id)
    return tuple(other for other in all_facts() if other is not facts and _stem(other.card.gpu.id) == stem)


def _stem(gpu_id: str) -> tuple[str, ...]:
    """The words up to the model number: ("rtx", "4090") of "rtx-4090-d", ("a100",) of "a100-sxm-80"."""
    words = gpu_id.split("-")
    numbered = next((index for index, word in enumerate(words) if any(char.isdigit() for char in word)), len(words))
    stem = words[: numbered + 1]
    return (*stem, *(word for word in words[numbered + 1 :] if word in ("ti", "super", "ada")))


def _facts(row: dict[str, str]) -> GpuFacts:
    linked = row["interconnect"] != "none"
    precisions = ("tf32", "bf16", "fp16", "fp8", "fp4")
    flops = {name: float(row[f"{name}_tflops"]) * 1e12 for name in precisions if row[f"{name}_tflops"]}
    capability = "" if row["compute_capability"] == "-" else row["compute_capability"]
    return GpuFacts(
        card=card_by_id(row["id"]),
        vendor=row["vendor"],
        arch=row["arch"],
        compute_capability=capability,
        flops=flops,
        bf16={"yes": True, "no": False}.get(row["bf16_hw"]),
        fp8=True if "fp8" in flops else _fp8(row["vendor"], row["arch"], capability),
        bandwidth=float(row["mem_bw_gb_s"]) * 1e9,
        link=row["interconnect"] if linked else "",
        link_bw=float(row["interconnect_gb_s"]) * 1e9 if linked else None,
        pcie="" if row["pcie"] == "-" else row["pcie"],
        watts=int(row["tdp_w"]) if row["tdp_w"] else None,
        launched=int(row["launch_year"]) if row["launch_year"] else None,
        source=row["source"],
        confidence=row["confidence"],
    )


def _fp8(vendor: str, arch: str, capability: str) -> bool | None:
    """By generation, where no rate is stated."""
    if vendor == "NVIDIA":
        major, _, minor = capability.partition(".")
        return (int(major), int(minor)) >= _FP8_CAPABILITY
    return arch in _FP8_CDNA if arch.startswith("CDNA") else None
