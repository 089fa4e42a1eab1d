"""The GPUs of ``data/gpus.csv`` as :class:`~finefit.workload.Gpu` objects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from finefit.catalog._tables import read_rows
from finefit.errors import DataError, UnknownGpu
from finefit.units import GIB
from finefit.workload import Gpu

FILE = "gpus.csv"

# A size may differ from the nominal one by a tenth: people and shops write what their tools print ("T4 15GB",
# "A40 46GB", "B200 192GB", "B300 262GB"); cards of one name differ by more (RTX 3080 10/12, A100 40/80).
SIZE_TOLERANCE = 0.1

# Raw rate of one PCI Express lane, bytes a second one way: 8, 16, 32 GT/s with 128b/130b coding
# (PCI-SIG base specifications 3.0 to 5.0); 64 GT/s with 242/256 flit efficiency from 6.0 on.
_PCIE_LANE = {
    "3.0": 8e9 / 8 * 128 / 130,
    "4.0": 16e9 / 8 * 128 / 130,
    "5.0": 32e9 / 8 * 128 / 130,
    "6.0": 64e9 / 8 * 242 / 256,
}


@dataclass(frozen=True, slots=True)
class Card:
    """One row of the catalogue: the GPU and the names people use for it.

    Attributes:
        devices: devices torch sees a card as. ``gpu`` is one device: memory, rates and power are the card's
            divided by this number; the interconnect is the card's.
        aliases: further names, beside the id and the name.
        plain_reading: the card people mean by the bare name it shares with other sizes ("RTX 4090", "H20").
    """

    gpu: Gpu
    devices: int
    aliases: tuple[str, ...]
    plain_reading: bool

    @property
    def nominal_gb(self) -> float:
        """GB on the box of the whole card."""
        return self.gpu.memory_nominal_gb * self.devices

    def has_size(self, gb: float) -> bool:
        """Whether ``gb`` can be said of this card."""
        return abs(gb - self.nominal_gb) <= SIZE_TOLERANCE * self.nominal_gb

    @property
    def label(self) -> str:
        """The name with its memory: "GeForce RTX 4090 (24 GB)"."""
        size = f"{self.nominal_gb:g}"
        return self.gpu.name if f"{size}GB" in self.gpu.name else f"{self.gpu.name} ({size} GB)"


@cache
def cards() -> tuple[Card, ...]:
    """Every card of the catalogue, in file order. Read once, on the first call."""
    return tuple(_card(row) for row in read_rows(FILE))


@cache
def _by_id() -> dict[str, Card]:
    return {card.gpu.id: card for card in cards()}


def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU of the catalogue, in file order."""
    return tuple(card.gpu for card in cards())


def card_by_id(gpu_id: str) -> Card:
    """The card with exactly this catalogue id ("rtx-4090").

    Raises:
        UnknownGpu: no such id. Names as people write them go through :func:`finefit.catalog.gpus.find_gpu`.
    """
    try:
        return _by_id()[gpu_id]
    except KeyError:
        raise UnknownGpu(f"no GPU has the id {gpu_id!r}", where=FILE, fix="look the name up with find_gpu") from None


def _card(row: dict[str, str]) -> Card:
    try:
        devices = int(row["devices"])
        link, link_bw = _link(row)
        gpu = Gpu(
            id=row["id"],
            name=row["name"],
            arch=row["arch"],
            memory=round(float(row["mem_torch_gib"]) * GIB),
            memory_nominal_gb=float(row["mem_nominal_gb"]) / devices,
            bandwidth=float(row["mem_bw_gb_s"]) * 1e9 / devices,
            bf16_flops=_flops(row["bf16_tflops"], devices),
            fp16_flops=_flops(row["fp16_tflops"], devices),
            interconnect=link,
            interconnect_bw=link_bw,
            tdp_w=int(row["tdp_w"]) // devices if row["tdp_w"] else None,
            source=row["source"],
            confidence=row["confidence"],
        )
    except (KeyError, ValueError) as problem:
        raise DataError(f"bad value or column: {problem}", where=f"{FILE}, id {row.get('id')!r}") from problem
    aliases = tuple(filter(None, row["aliases"].split("|")))
    return Card(gpu, devices, aliases, row["plain_reading"] == "yes")


def _flops(tflops: str, devices: int) -> float | None:
    return float(tflops) * 1e12 / devices if tflops else None


def _link(row: dict[str, str]) -> tuple[str, float | None]:
    """Name and bytes a second (both directions) of the fastest link to a neighbouring GPU.

    Cards without a link of their own talk over PCI Express; unified-memory machines have no neighbour.
    """
    if row["interconnect"] != "none":
        return row["interconnect"], float(row["interconnect_gb_s"]) * 1e9
    generation, cross, lanes = row["pcie"].partition("x")
    if not cross:
        return "none", None
    return f"PCIe{generation[0]}", 2 * _PCIE_LANE[generation] * int(lanes)
