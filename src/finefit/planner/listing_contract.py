"""Lists of offers and GPUs as the JSON contract (``finefit/offers/1``, ``finefit/gpus/1``); changes are additive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from finefit.planner.gpu_list import GPUS_SCHEMA, GpuList
from finefit.planner.offer_list import OFFERS_SCHEMA, OfferList, OfferRow
from finefit.planner.plain import exchange_rate, head, money, number, plain

if TYPE_CHECKING:
    from finefit.catalog.gpu_facts import GpuFacts


def offers_object(found: OfferList) -> dict[str, Any]:
    """``finefit offers --json``."""
    return {
        **head(OFFERS_SCHEMA, found.as_of, found.catalog_revision),
        "currency": found.currency,
        "exchange_rate": exchange_rate(found.rate),
        "offers": [_offer(row) for row in found.rows],
        "region_checks": {str(place): check for place, check in found.checks.items()},
        "skipped": [{"name": each.name, "rows": each.rows, "reason": each.reason} for each in found.skipped],
        "notes": list(found.notes),
    }


def _offer(row: OfferRow) -> dict[str, Any]:
    offer = row.offer
    return {
        "provider": offer.provider,
        "gpu": offer.gpu_id,
        "kind": str(offer.kind),
        "region": offer.region,
        "region_class": str(row.region),
        "min_gpus": offer.min_gpus,
        "quoted_per_gpu_hour": money(offer.price),
        "price_per_gpu_hour": money(row.price),
        "date": offer.date.isoformat(),
        "age_days": row.age_days,
        "stale": row.stale,
        "drift": {"low": plain(row.drift[0]), "high": plain(row.drift[1])},
        "confidence": offer.confidence,
        "source": offer.source,
        "licence": offer.licence,
        "note": offer.note,
    }


def gpus_object(found: GpuList) -> dict[str, Any]:
    """``finefit gpus --json``."""
    return {
        **head(GPUS_SCHEMA, found.as_of, found.catalog_revision),
        "gpus": [_gpu(facts) for facts in found.gpus],
        "variants": [facts.card.gpu.id for facts in found.variants],
        "notes": list(found.notes),
    }


def _gpu(facts: GpuFacts) -> dict[str, Any]:
    card = facts.card
    return {
        "id": card.gpu.id,
        "name": card.gpu.name,
        "aliases": list(card.aliases),
        "vendor": facts.vendor,
        "architecture": facts.arch,
        "compute_capability": facts.compute_capability or None,
        "nominal_gb": number(card.nominal_gb),
        "devices": card.devices,
        "memory_bytes": card.gpu.memory,
        "dense_flops": {name: number(rate) for name, rate in facts.flops.items()},
        "bf16": facts.bf16,
        "fp8": facts.fp8,
        "bandwidth_bytes_per_second": number(facts.bandwidth),
        "link": facts.link or None,
        "link_bytes_per_second": number(facts.link_bw),
        "pcie": facts.pcie or None,
        "watts": facts.watts,
        "launched": facts.launched,
        "confidence": facts.confidence,
        "source": facts.source,
    }
