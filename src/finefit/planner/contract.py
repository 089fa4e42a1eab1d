"""Answers as the JSON contract (``schema`` finefit/memory/1 and finefit/plan/1): plain dicts, lists, numbers, text.

Changes are additive. Bytes and counts are integers; money is text with its currency, so that no digit is
lost; times are rounded to nine significant digits, far below their own uncertainty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from finefit.memory.interval import LEVEL, intervals
from finefit.planner.answer import MemoryAnswer
from finefit.planner.inputs import inputs_of
from finefit.planner.plain import exchange_rate, head, money, number, plain

if TYPE_CHECKING:
    from finefit.catalog.offers import PriceSummary
    from finefit.cost import Bill, Limit
    from finefit.cost.bill import BillItem, Span
    from finefit.memory.peak import Peak
    from finefit.planner.answer import Margin
    from finefit.planner.plan import CardFit, LargestModels, MethodTable, OfferLine, Plan, Remedy, Steps
    from finefit.speed import Run
    from finefit.units import Money
    from finefit.workload.cluster import Cluster, Gpu

MEMORY_SCHEMA, PLAN_SCHEMA = "finefit/memory/1", "finefit/plan/1"


def memory_object(answer: MemoryAnswer) -> dict[str, Any]:
    """``finefit memory --json``."""
    return {
        **head(MEMORY_SCHEMA, answer.as_of, answer.catalog_revision),
        "inputs": inputs_of(answer),
        "gpus": cluster_object(answer.cluster),
        **_memory(answer.peak, answer.context, answer.cluster),
        "fits_as_configured": answer.fits.value,
        "margin": _margin(answer.margin),
        "exact": answer.exact,
        "explain": None if answer.explanation is None else answer.explanation.to_list(),
        "assumptions": list(answer.assumptions),
        "warnings": list(answer.warnings),
    }


def plan_object(plan: Plan) -> dict[str, Any]:
    """``finefit plan --json`` of a whole workload."""
    return {
        **head(PLAN_SCHEMA, plan.as_of, plan.catalog_revision),
        "kind": "plan",
        "inputs": inputs_of(plan),
        "gpus": cluster_object(plan.cluster),
        "verdict": plan.verdict.value,
        "fits_as_configured": plan.fits.value,
        "too_large": None if plan.too_large is None else plan.too_large.value,
        "shard_count": plan.shard_count,
        **_memory(plan.peak, plan.context, plan.cluster),
        "steps": _steps(plan.steps),
        "fewer_cards": None
        if plan.fewer is None
        else {
            "count": plan.fewer.count,
            "needed": plan.fewer.needed,
            "times_pay": number(plan.fewer.times_pay),
            "times_speed": number(plan.fewer.times_speed),
        },
        "remedies": [_remedy(remedy) for remedy in plan.remedies],
        "cards": [_card(card) for card in plan.cards],
        "prices": {
            kind: {currency: _summary(found) for currency, found in by_currency.items()}
            for kind, by_currency in plan.prices.items()
        },
        "price": money(plan.price),
        "price_quoted": money(plan.price_quoted),
        "price_source": plan.price_source,
        "exchange_rate": exchange_rate(plan.rate),
        "offers": [_offer(line) for line in plan.offers],
        "run": run_object(plan.run, None if plan.run_unknown is None else str(plan.run_unknown)),
        "step_explained": [part.to_dict() for part in plan.step_explained],
        "bill": bill_object(plan.bill, plan.bill_per_1000),
        "budget": limit_object(plan.budget),
        "deadline": limit_object(plan.deadline),
        "notes": [str(note) for note in plan.notes],
        "assumptions": list(plan.assumptions),
        "warnings": list(plan.warnings),
    }


def table_object(table: MethodTable) -> dict[str, Any]:
    """``finefit plan MODEL --json`` without a method or a length."""
    return {
        **head(PLAN_SCHEMA, table.as_of, table.catalog_revision),
        "kind": "methods",
        "inputs": {"model": {"value": table.model.name, "source": f"stated ({table.model_text})"}},
        "missing": list(table.missing),
        "gpus": cluster_object(table.cluster),
        "verdict": "undecided",
        "fits_as_configured": "unknown",
        "parameters": table.parameters,
        "methods": [
            {
                "method": cell.method,
                "seq_len": cell.seq_len,
                "low_bytes": cell.low,
                "high_bytes": cell.high,
                "fits": cell.fits.value,
                "smallest_card_gb": cell.smallest_gb,
            }
            for cell in table.cells
        ],
        "remedies": [],
        "offers": [],
        "assumptions": list(table.assumptions),
        "warnings": list(table.warnings),
    }


def largest_object(answer: LargestModels) -> dict[str, Any]:
    """``finefit plan --gpu GPU --json`` without a model."""
    return {
        **head(PLAN_SCHEMA, answer.as_of, answer.catalog_revision),
        "kind": "largest_models",
        "inputs": {},
        "gpus": cluster_object(answer.cluster),
        "verdict": "undecided",
        "fits_as_configured": "unknown",
        "seq_len": answer.seq_len,
        "models": [
            {
                "method": row.method,
                "model": row.name,
                "parameters": row.parameters,
                "fits": row.fits.value,
                "margin": _margin(row.margin),
            }
            for row in answer.models
        ],
        "remedies": [],
        "offers": [],
        "assumptions": list(answer.assumptions),
        "warnings": list(answer.warnings),
    }


def _memory(peak: Peak, context: int, cluster: Cluster | None) -> dict[str, Any]:
    four = {
        "allocated_bytes": peak.allocated,
        "required_bytes": peak.required,
        "reserved_bytes": peak.reserved,
        "device_bytes": peak.device,
    }
    return {
        "peak": {**four, "phase": peak.phase, "op": peak.op, "module": peak.module},
        "interval": _interval(peak, cluster),
        "parts": {**peak.parts, "context": context},
        "phases": [{"phase": phase, "allocated_bytes": nbytes} for phase, nbytes in peak.phases.items()],
        "per_gpu": [{"gpus": "all", **four, "host_bytes": peak.host}],
    }


def _interval(peak: Peak, cluster: Cluster | None) -> dict[str, Any] | None:
    """The interval of the allocated bytes, and those of the other numbers that are known."""
    found = intervals(peak, cluster.count if cluster else 1)
    if "allocated" not in found:
        return None
    ends = {
        name: {"low_bytes": one.low, "high_bytes": one.high, "rows": one.rows, "sources": one.sources}
        for name, one in found.items()
    }
    return {"level": LEVEL, **ends.pop("allocated"), **ends}


def cluster_object(cluster: Cluster | None) -> dict[str, Any] | None:
    """The stated GPUs."""
    if cluster is None:
        return None
    return {**_gpu(cluster.gpu), "count": cluster.count, "nodes": cluster.nodes}


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {"id": gpu.id, "name": gpu.name, "memory_bytes": gpu.memory}


def _margin(margin: Margin | None) -> dict[str, Any] | None:
    if margin is None:
        return None
    return {
        "usable_bytes": margin.usable,
        "low_bytes": margin.low,
        "high_bytes": margin.high,
        "margin_bytes": margin.bytes,
    }


def _steps(steps: Steps) -> dict[str, Any]:
    return {
        "parameters": steps.parameters,
        "trained_parameters": steps.trained,
        "weights_16bit_bytes": steps.weights_16bit,
        "weights_bytes": steps.weights,
        "states_bytes": steps.states,
        "states_multiplier": number(steps.multiplier),
        "activations_bytes": steps.activations,
        "logits_bytes": steps.logits,
        "tokens": steps.tokens,
        "margin": _margin(steps.margin),
    }


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "kind": remedy.kind,
        "change": str(remedy.change),
        "settings": {name: {"before": old, "after": new} for name, (old, new) in remedy.settings.items()},
        "saved_bytes": remedy.saved_bytes,
        "slowdown": number(remedy.slowdown),
        "money": money(remedy.money),
        "money_samples": remedy.money_samples,
        "risk": None if remedy.risk is None else str(remedy.risk),
        "rule": str(remedy.rule),
        "peak_bytes": remedy.peak_bytes,
        "fits": remedy.fits.value,
    }


def _card(card: CardFit) -> dict[str, Any]:
    return {
        "gpu": _gpu(card.gpu),
        "count": card.count,
        "fits": card.fits.value,
        "margin": _margin(card.margin),
        "hours_per_1000_samples": number(card.hours_per_1000),
        "price_per_gpu_hour": money(card.price),
        "cost_per_1000_samples": money(card.cost_per_1000),
    }


def _summary(found: PriceSummary) -> dict[str, Any]:
    return {
        "low": money(found.low),
        "median": money(found.median),
        "high": money(found.high),
        "offers": found.offers,
        "oldest": found.oldest.isoformat(),
        "newest": found.newest.isoformat(),
    }


def _offer(line: OfferLine) -> dict[str, Any]:
    return {
        "provider": line.provider,
        "gpu": line.gpu.id,
        "kind": line.kind,
        "region": line.region,
        "price_per_gpu_hour": money(line.price),
        "gpus_billed": line.gpus_billed,
        "hourly": money(line.hourly),
        "cost_per_1000_samples": money(line.per_1000),
        "total": money(line.total),
        "converted": money(line.converted),
        "date": line.date.isoformat(),
        "age_days": line.age_days,
        "drift": {"low": plain(line.drift[0]), "high": plain(line.drift[1])},
        "confidence": line.confidence,
        "source": line.source,
    }


def run_object(run: Run | None, unknown: str | None) -> dict[str, Any]:
    """Every figure is null where the time is unknown; ``unknown`` says why."""
    interval = None if run is None else run.hours_interval
    return {
        "step_seconds": None if run is None else number(run.step_seconds),
        "tokens_per_second": None if run is None else number(run.tokens_per_second),
        "hours": None if run is None else number(run.hours),
        "hours_interval": None if interval is None else [number(end) for end in interval],
        "hours_per_1000_samples": None if run is None else number(run.hours_per_1000_samples),
        "steps": None if run is None else run.steps,
        "row_tokens": None if run is None else run.row_tokens,
        "row_rule": None if run is None else run.row_rule,
        "upper_bound": None if run is None else run.upper_bound,
        "step_parts_seconds": None if run is None else {name: number(s) for name, s in run.step.parts.items()},
        "spread": None if run is None else number(run.step.spread),
        "interval_kind": None if run is None else run.step.interval.kind,
        "interval_coverage": None if run is None else run.step.interval.coverage,
        "interval_runs": None if run is None else run.step.interval.runs,
        "evaluation_hours": None if run is None else number(run.evaluation_seconds / 3600),
        "checkpoint_hours": None if run is None else number(run.checkpoint_seconds / 3600),
        "reasons": [] if run is None else list(run.step.reasons),
        "notes": [] if run is None else list(run.notes),
        "unknown": unknown,
    }


def bill_object(bill: Bill | None, per_1000: Money | None) -> dict[str, Any]:
    """Items and sums; ``per_1000`` of 1,000 samples."""
    return {
        "items": [] if bill is None else [_item(item) for item in bill.items],
        "total": None if bill is None else money(bill.total),
        "low": None if bill is None else money(bill.low),
        "high": None if bill is None else money(bill.high),
        "unknown": [] if bill is None else list(bill.unknown),
        "per_1000_samples": money(per_1000),
    }


def _item(item: BillItem) -> dict[str, Any]:
    return {
        "name": item.name,
        "unit": item.unit,
        "quantity": _span(item.quantity),
        "unit_price": money(item.unit_price),
        "amount": money(item.amount),
        "low": money(item.low),
        "high": money(item.high),
        "source": item.source,
    }


def _span(span: Span | None) -> dict[str, str] | None:
    if span is None:
        return None
    return {"low": plain(span.low), "likely": plain(span.likely), "high": plain(span.high)}


def limit_object(limit: Limit | None) -> dict[str, Any] | None:
    """A budget or deadline."""
    if limit is None:
        return None
    hours = limit.affordable_hours
    return {
        "meets": limit.meets,
        "reason": limit.reason,
        "affordable_hours": None if hours is None else plain(hours),
    }
