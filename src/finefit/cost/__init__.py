"""Money: the bill of a run, what it stores, and whether it stays within a budget and a deadline."""

from finefit.cost.bill import (
    Bill,
    BillItem,
    Price,
    Span,
    Tariff,
    bill,
    egress_item,
    gpu_item,
    setup_item,
    storage_item,
)
from finefit.cost.checkpoints import checkpoint_bytes, result_bytes
from finefit.cost.limits import Limit, within_budget, within_deadline

__all__ = [
    "Bill",
    "BillItem",
    "Limit",
    "Price",
    "Span",
    "Tariff",
    "bill",
    "checkpoint_bytes",
    "egress_item",
    "gpu_item",
    "result_bytes",
    "setup_item",
    "storage_item",
    "within_budget",
    "within_deadline",
]
