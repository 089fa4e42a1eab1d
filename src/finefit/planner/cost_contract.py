"""The answer of ``finefit cost`` as the JSON contract (``finefit/cost/1``); changes are additive."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from finefit.planner.contract import bill_object, cluster_object, limit_object, run_object
from finefit.planner.cost_answer import COST_SCHEMA, CostAnswer, setting_sources
from finefit.planner.plain import exchange_rate, head, money, number, plain
from finefit.units import Money

if TYPE_CHECKING:
    from finefit.cost.bill import Span
    from finefit.cost.terms import BreakEven
    from finefit.planner.comparisons import ClusterLine, ManagedLine
    from finefit.planner.project import Project
    from finefit.planner.term_lines import TermLine


def cost_object(answer: CostAnswer) -> dict[str, Any]:
    """``finefit cost --json``."""
    return {
        **head(COST_SCHEMA, answer.as_of, answer.catalog_revision),
        "inputs": {
            name: {"value": _value(value), "source": source}
            for name, (value, source) in setting_sources(answer).items()
        },
        "gpus": cluster_object(answer.cluster),
        "fits_as_configured": answer.fits.value,
        "currency": answer.currency,
        "exchange_rate": exchange_rate(answer.rate),
        "run": run_object(answer.run, None if answer.run_unknown is None else str(answer.run_unknown)),
        "step_explained": [part.to_dict() for part in answer.step_explained],
        "tokens": answer.tokens,
        "per_million_tokens": money(answer.per_million),
        **_project(answer.project),
        "terms": [_term(line) for line in answer.terms],
        "clusters": [_cluster(line) for line in answer.clusters],
        "managed": [_managed(line) for line in answer.managed],
        "budget": limit_object(answer.budget),
        "deadline": limit_object(answer.deadline),
        "notes": [str(note) for note in answer.notes],
        "assumptions": list(answer.assumptions),
        "warnings": list(answer.warnings),
    }


def _project(made: Project) -> dict[str, Any]:
    lost = made.lost
    return {
        "kind": made.kind,
        "price": None if made.price is None else money(made.price.unit_price),
        "quoted_price": None if made.price is None else money(made.price.quoted),
        "bill": bill_object(made.run, None),
        "project": bill_object(made.whole, None),
        "interruptions": None
        if lost is None
        else {
            "hours_between": _span(lost.mean_hours),
            "checkpoint_hours": _span(lost.write_hours),
            "restart_hours": _span(lost.restart_hours),
            "best_interval_hours": number(lost.interval),
            "waste": _span(lost.waste),
            "source": lost.source,
        },
        "wall_hours": _span(made.wall),
    }


def _term(line: TermLine) -> dict[str, Any]:
    made = line.project
    return {
        "kind": line.kind,
        "name": line.name,
        "price_per_gpu_hour": None if line.price is None else money(line.price.unit_price),
        "quoted_per_gpu_hour": None if line.price is None else money(line.price.quoted),
        "run": None if made is None else money(made.run.total),
        "project": None if made is None else money(made.whole.total),
        "month": money(line.month),
        "break_even": _even(line.break_even),
        "deadline": limit_object(line.deadline),
        "refused": None if line.refused is None else str(line.refused),
        "unknown": None if line.unknown is None else str(line.unknown),
        "source": line.source,
        "note": line.note,
    }


def _even(even: BreakEven | None) -> dict[str, str | None] | None:
    if even is None:
        return None
    return {
        "hours_a_month": plain(even.hours),
        "utilisation": plain(even.utilisation),
        "runs_a_month": None if even.runs is None else plain(even.runs),
    }


def _cluster(line: ClusterLine) -> dict[str, Any]:
    return {
        "gpu": line.gpu.id,
        "count": line.count,
        "spread": line.spread,
        "fits": line.fits.value,
        "hours": number(line.hours),
        "hours_interval": None if line.interval is None else [number(each) for each in line.interval],
        "price_per_gpu_hour": money(line.price),
        "cost": money(line.cost),
        "quoted_cost": money(line.quoted),
        "per_million_tokens": money(line.per_million),
        "communication_share": number(line.communication),
        "communication_cost": money(line.lost),
        "times_one_gpu": number(line.against_one),
    }


def _managed(line: ManagedLine) -> dict[str, Any]:
    row = line.row
    return {
        "provider": row.provider,
        "models": row.models,
        "quoted_per_million_tokens": money(row.price),
        "per_million_tokens": money(line.price),
        "minimum": money(row.minimum),
        "cost": money(line.cost),
        "own_cheaper_per_token": line.own_cheaper,
        "break_even_tokens": None if line.break_even is None else int(line.break_even),
        "counts": row.counts,
        "evidence": row.evidence,
        "source": row.source,
        "link": row.link,
        "note": row.note,
    }


def _span(span: Span | None) -> dict[str, str] | None:
    if span is None:
        return None
    return {"low": plain(span.low), "likely": plain(span.likely), "high": plain(span.high)}


def _value(value: object) -> object:
    if isinstance(value, Money):
        return money(value)
    return str(value) if isinstance(value, Decimal) else value
