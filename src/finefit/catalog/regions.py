"""Where an offer's machines stand, as far as it decides which rules to look up."""

from __future__ import annotations

import re
from enum import StrEnum

from finefit.catalog.offers import Kind, Offer, is_marketplace


class RegionClass(StrEnum):
    """Jurisdictions with rules of their own for services and for data that cross a border."""

    MAINLAND = "mainland"
    HONG_KONG = "hong-kong"
    OVERSEAS = "overseas"
    UNKNOWN = "unknown"  # a host of a marketplace may stand anywhere


# Names of regions by their clouds' documentation: AWS ap-east-1, GCP asia-east2 and Azure eastasia are Hong Kong,
# Alibaba Cloud and Tencent Cloud write cn-hongkong and ap-hongkong.
_HONG_KONG = re.compile(r"^(hk|hkg|ap-east-1[a-c]?|asia-east2(-[a-c])?|eastasia)$|hong[ _-]?kong|香港", re.I)
_MAINLAND = re.compile(
    r"^(cn|chn|china)$|^cn-|^china(north|east)\d?$|^ap-(beijing|shanghai|guangzhou|nanjing|chengdu|chongqing)\b|中国|大陆",
    re.I,
)

# What to look up in each, in force at the end of 2026; which of it applies depends on the data and the service.
# Generative AI: Interim Measures for the Management of Generative AI Services (2023-08-15), article 17. Data: Personal
# Information Protection Law (2021-11-01), articles 38-40; Provisions on Facilitating and Regulating Cross-border Data
# Flows (2024-03-22); Greater Bay Area standard contract between mainland and Hong Kong (2023-12-13).
CHECKS = {
    RegionClass.MAINLAND: (
        "mainland China: check ICP filing and the filing of generative AI services for what will be offered to the "
        "public, and the rules for data that enter from or return abroad"
    ),
    RegionClass.HONG_KONG: (
        "Hong Kong: data sent there from mainland China cross a border; check the rules on exporting personal and "
        "important data"
    ),
    RegionClass.OVERSEAS: (
        "overseas: data sent there from mainland China cross a border; check the rules on exporting personal and "
        "important data"
    ),
    RegionClass.UNKNOWN: "region not named: ask the provider where the machine stands before data go there",
}


def region_class(offer: Offer) -> RegionClass:
    """Where the machine of an offer stands.

    Without a named region a price in USD is one of a global list: clouds serve mainland China through separate
    companies with lists of their own in CNY (AWS China by Sinnet and NWCD, Azure China by 21Vianet). A marketplace's
    host may stand anywhere.
    """
    region = offer.region.strip()
    if region:
        if _HONG_KONG.search(region):
            return RegionClass.HONG_KONG
        return RegionClass.MAINLAND if _MAINLAND.search(region) else RegionClass.OVERSEAS
    if offer.kind is Kind.COMMUNITY or is_marketplace(offer.provider) or offer.price.currency != "USD":
        return RegionClass.UNKNOWN
    return RegionClass.OVERSEAS
