"""Answers with figures chosen by hand, so that each can be looked for in a report."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from finefit.catalog.models import find
from finefit.catalog.offers import PriceSummary
from finefit.cost import Bill, BillItem, Limit, Span
from finefit.memory.peak import Peak
from finefit.planner.answer import Fits, Margin, MemoryAnswer
from finefit.planner.message import message
from finefit.planner.plan import (
    CardFit,
    FewerCards,
    LargestModel,
    LargestModels,
    MethodTable,
    OfferLine,
    Part,
    Plan,
    Remedy,
    Steps,
    TableCell,
    Verdict,
)
from finefit.speed import Run
from finefit.speed.interval import Interval
from finefit.speed.steptime import StepTime
from finefit.units import GIB, MIB, Money
from finefit.workload import Cluster, DType, Gpu, Lengths, Lora, Optimizer, Origin, Quant, Recipe, Source

DAY = dt.date(2026, 11, 30)
PRICED = dt.date(2026, 8, 22)  # 100 days before
GPU = Gpu("x-24", "Card X", "Ada", 23 * GIB, 24.0, 1e12, 1e14, 1e14, "PCIe4", 6e10, 450, "a test", "high")
CLUSTER = Cluster(GPU, 2)
MODEL = find("llama-3-8b")
RECIPE = Recipe(
    "lora",
    DType.BF16,
    Optimizer("adamw"),
    2048,
    micro_batch=3,
    grad_accum=8,
    lora=Lora(16, 32, targets=("q_proj", "v_proj")),
    quant=Quant("nf4", double=True),
    autocast=DType.BF16,
    checkpointing="full",
    epochs=3.0,
)
LENGTHS = Lengths(mean=180.0, samples=52_000, tokens=9_360_000, source="--samples, --mean-length")
SOURCES = {
    "model": Source(Origin.STATED, "train.yaml:3"),
    "lora.rank": Source(Origin.STATED, "train.yaml:9"),
    "quant.double": Source(Origin.DEFAULT, "llamafactory@0.9.5"),
    "master_weights": Source(Origin.DERIVED, "only DeepSpeed keeps an extra fp32 copy"),
    "padded": Source(Origin.ASSUMED, "rows differ in length"),
    "lengths.samples": Source(Origin.STATED, "--samples"),
}
PEAK = Peak(
    allocated=13 * GIB,
    phase="backward",
    op="log_softmax",
    module="lm_head",
    parts={
        "weights": 5 * GIB,
        "adapters": GIB,
        "activations": 3 * GIB,
        "logits": 4 * GIB - 50 * MIB,
        "buffers": 50 * MIB,
    },
    phases={"load": 6 * GIB, "forward": 8 * GIB, "backward": 13 * GIB},
    required=14 * GIB,
    reserved=15 * GIB,
    device=16 * GIB,
)
MARGIN = Margin(23 * GIB, 14 * GIB, 16 * GIB)


def usd(amount: str) -> Money:
    """Dollars, priced on ``PRICED``."""
    return Money(Decimal(amount), "USD", PRICED)


def steps(margin: Margin | None = MARGIN) -> Steps:
    """The four steps."""
    return Steps(8_030_261_248, 41_943_040, 15 * GIB, 5 * GIB, 6 * GIB, 0.4, 7 * GIB, 4 * GIB, 6144, margin)


def run() -> Run:
    """Ten seconds a step, half of it matrix products."""
    interval = Interval("offload", 0.3, 0.9, 50, ("offload to host memory depends on the host",))
    step = StepTime(5.0, 1.0, 1.0, 0.5, 0.5, 1.0, 0.0, 0.5, 0.0, 0.5, 12_000, 2, interval)
    return Run(
        step,
        500,
        "lengths unknown: every row at 500 tokens",
        True,
        1.0,
        48,
        1084,
        3252,
        ("evaluation is not in the hours",),
    )


def bill() -> Bill:
    """GPU-hours known, egress not."""
    hours = BillItem(
        "GPU-hours", "GPU-hour", Span.of(10, 18, 25), usd("0.5"), usd("9"), usd("5"), usd("12.5"), "an offer"
    )
    egress = BillItem("egress", "GB", Span.of(1, 1, 1), None, None, None, None, "price unknown")
    return Bill((hours, egress), usd("9"), usd("5"), usd("12.5"), ("egress",))


def offer() -> OfferLine:
    """A community offer whose price may have drifted by a tenth."""
    return OfferLine(
        "runpod", GPU, "community", "EU", usd("0.5"), 2, PRICED, 100, (Decimal("0.9"), Decimal("1.1")),
        usd("1"), usd("0.05"), usd("9"), "high", "a list",
    )  # fmt: skip


def remedy() -> Remedy:
    """Saves 2 GiB for a quarter more time."""
    return Remedy(
        "micro_batch",
        message("micro-batch {before} to {after}", before=3, after=1),
        {"micro_batch": ("3", "1")},
        2 * GIB,
        0.25,
        usd("1.5"),
        1000,
        message("none known"),
        message("activations follow the rows of a micro-batch"),
        12 * GIB,
        Fits.YES,
        RECIPE,
    )


def plan(**changes: object) -> Plan:
    """A run that fits two cards although one is enough."""
    fields: dict[str, object] = {
        "model": MODEL,
        "model_text": "llama-3-8b",
        "recipe": RECIPE,
        "lengths": LENGTHS,
        "cluster": CLUSTER,
        "origin": "train.yaml",
        "sources": SOURCES,
        "as_of": DAY,
        "catalog_revision": "abc123",
        "peak": PEAK,
        "context": GIB,
        "steps": steps(),
        "verdict": Verdict.SINGLE_CARD_OK,
        "fits": Fits.YES,
        "fewer": FewerCards(2, 1, 2.0, 1.8),
        "prices": {"on-demand": {"USD": PriceSummary(usd("0.4"), usd("0.5"), usd("0.75"), 7, PRICED, PRICED)}},
        "price": usd("0.5"),
        "offers": (offer(),),
        "run": run(),
        "bill": bill(),
        "bill_per_1000": usd("0.06"),
        "budget": Limit("yes", "at most 12.50 USD"),
        "deadline": Limit("unknown", "between 6.3 and 11.7 h"),
        "assumptions": ("LoRA sits on every linear module: PEFT has no default for llama",),
        "warnings": ("train.yaml:4: the file ds.json is not here, so the ZeRO stage is unknown",),
    }
    return Plan(**{**fields, **changes})  # type: ignore[arg-type]


def too_large() -> Plan:
    """A run one card does not hold."""
    margin = Margin(12 * GIB, 14 * GIB, 16 * GIB)
    return plan(
        steps=steps(margin), verdict=Verdict.MUST_SHARD, fits=Fits.NO, too_large=Part.ACTIVATIONS, shard_count=2,
        fewer=None, remedies=(remedy(),),
    )  # fmt: skip


def without_gpu() -> Plan:
    """No GPU stated: cards that hold it."""
    card = CardFit(GPU, 1, Fits.YES, MARGIN, 0.5, usd("0.5"), usd("0.25"))
    bare = CardFit(GPU, 2, Fits.TIGHT, MARGIN, None, None, None)
    return plan(
        cluster=None, steps=steps(None), verdict=Verdict.UNDECIDED, fits=Fits.UNKNOWN, cards=(card, bare), fewer=None,
        run=None, bill=None, bill_per_1000=None, price=None, prices={}, offers=(), budget=None, deadline=None,
    )  # fmt: skip


def memory() -> MemoryAnswer:
    """Memory alone; the replay was not asked for the least capacity."""
    peak = Peak(13 * GIB, "backward", "mm", "", PEAK.parts, PEAK.phases, None, 15 * GIB, 16 * GIB, host=2 * GIB)
    return MemoryAnswer(
        MODEL, "llama-3-8b", RECIPE, CLUSTER, "flags", SOURCES, DAY, "abc123", peak, GIB, Fits.YES, MARGIN,
    )  # fmt: skip


def method_table(cluster: Cluster | None = None) -> MethodTable:
    """One cell a card holds and one that none does."""
    cells = (
        TableCell("QLoRA", 1024, 7 * GIB, 8 * GIB, Fits.YES if cluster else Fits.UNKNOWN, 12.0),
        TableCell("full", 4096, 140 * GIB, 150 * GIB, Fits.NO if cluster else Fits.UNKNOWN, None),
    )
    return MethodTable(MODEL, "llama-3-8b", 8_030_261_248, ("method",), cluster, cells, DAY, "abc123", ())


def largest_models() -> LargestModels:
    """One model."""
    found = LargestModel("QLoRA", "Qwen2.5-32B", 32_763_876_352, Fits.TIGHT, MARGIN)
    return LargestModels(Cluster(GPU), 2048, (found,), DAY, "abc123", ())
