"""gpuhunt (dstack, MPL-2.0) as one provider: the extra ``finefit[live]``.

Its ``CatalogItem`` has the price of the whole machine in USD, the number and name of its GPUs, a location and a spot
flag (gpuhunt 0.1.34, ``_internal/models.py``).
"""

from __future__ import annotations

import datetime as dt
import logging
import os
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from finefit.errors import InputError, SourceUnreachable
from finefit.market.prices import Observed, observed

# What gpuhunt calls a cloud, where the catalogue's offers call it otherwise.
_CLOUDS = {"lambdalabs": "lambda", "vastai": "vast-ai"}


class GpuHunt:
    """All clouds whose prices gpuhunt publishes without credentials."""

    name = "gpuhunt"

    def fetch(self, timeout: float, today: dt.date) -> Iterator[Observed | None]:
        """Today's prices of every cloud; ``timeout`` is kept by the caller, gpuhunt has none of its own."""
        for item in self._items():
            if not item.gpu_count or not item.gpu_name or not item.price:
                continue
            size = f" {item.gpu_memory:g}GB" if item.gpu_memory else ""
            try:
                yield observed(
                    provider=_CLOUDS.get(item.provider, item.provider),
                    gpu=f"{item.gpu_name}{size}",
                    price=Decimal(str(item.price)) / item.gpu_count,
                    kind="spot" if item.spot else "on-demand",
                    day=today,
                    region=item.location or "",
                    min_gpus=item.gpu_count,
                    source=f"gpuhunt: {item.instance_name}",
                    licence="as the cloud publishes it",
                    where=f"{item.provider} {item.instance_name}",
                )
            except InputError:  # one odd machine type does not spoil the rest
                yield None

    def _items(self) -> list[Any]:
        try:
            import gpuhunt
        except ImportError:
            raise SourceUnreachable(
                "gpuhunt is not installed", where=self.name, fix='pip install "finefit[live]"'
            ) from None
        logger = logging.getLogger("gpuhunt")  # its modules' loggers inherit the level
        level = logger.level
        logger.setLevel(logging.CRITICAL + 1)  # it logs a traceback for each cloud that does not answer
        try:
            catalog = gpuhunt.Catalog(balance_resources=False, auto_reload=False)
            folder = os.environ.get("GPUHUNT_CATALOG_DIR")
            if folder is None:
                catalog.load()
                return list(catalog.query())
            clouds = sorted(name.removesuffix(".csv") for name in os.listdir(folder) if name.endswith(".csv"))  # noqa: PTH208
            return list(catalog.query(provider=clouds))
        except Exception as problem:  # of another library: whatever it is, its prices are not here
            raise SourceUnreachable(
                f"gpuhunt gave no prices: {type(problem).__name__}: {problem}"[:300],
                where=self.name,
                fix="try again later; the prices of before are kept",
            ) from problem
        finally:
            logger.setLevel(level)
