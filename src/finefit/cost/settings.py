"""What a user knows about a project beside the run itself. None is unknown, never zero."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from finefit.cost.owned import LIFE_YEARS, PUE, RESIDUAL, UPKEEP
from finefit.units import Money

ONE, HALF, ZERO = Decimal(1), Decimal("0.5"), Decimal(0)


@dataclass(frozen=True, slots=True)
class CostSettings:
    """Every money setting of a project. What has a default is assumed where nobody stated it.

    Attributes:
        runs: runs that succeed; runs_per_month: once or often, decides between renting by the hour, the month, buying.
        failed_attempts: runs that fail on top, over the project; failed_share: how far they get (half, if failures
            come at any time alike).
        queue_hours, debug_hours, idle_hours: hours in which the GPUs are paid and do not train: waiting in a queue,
            debugging, forgotten to release.
        engineer_hours, engineer_rate: people's time for debugging and upkeep.
        data_gb, image_gb: kept as long as checkpoints are hot.
        kept: checkpoints kept; hot_months on a disk, then cold_months in cool object storage.
        provider: whose storage and traffic are charged, the median of the known ones where None.
        upload_gb: into the provider; upload_price: of a GB (clouds mostly charge nothing, which is not assumed).
        download_gb: out of it, the result alone where None; egress_tier: "internet" or "inter-region";
            egress_before_gb: of the same month, which decides the price band.
        stopped_days: days the disk is kept while the machine is stopped; stopped_gb: its size, weights and
            checkpoints where None.
        minimum_charge: of a rental.
        gpu_price: of a GPU-hour of the stated card on the terms of the bill; setup_minutes: until the first step.
        storage_price, cold_price: of a GB kept for a month on a disk, and in cool storage; stopped_price: of a GB-month
            of a stopped machine's disk, ``storage_price`` where None; egress_price: of a GB taken out. They stand in
            for published prices.
        hours_between_interruptions: of the whole run, measured; restart_minutes, checkpoint_minutes: instead of
            what follows from sizes.
        spot_wait_hours: until the next spot machine, after each interruption.
        card_price: of one GPU with its share of the server; power_price: of a kWh; utilisation: share of hours
            in which owned hardware trains; watts: of one GPU and its share of the host.
    """

    runs: int = 1
    runs_per_month: Decimal | None = None
    failed_attempts: Decimal | None = None
    failed_share: Decimal = HALF
    queue_hours: Decimal | None = None
    debug_hours: Decimal | None = None
    idle_hours: Decimal | None = None
    engineer_hours: Decimal | None = None
    engineer_rate: Money | None = None
    data_gb: Decimal | None = None
    image_gb: Decimal | None = None
    kept: int = 1
    hot_months: Decimal = ONE
    cold_months: Decimal | None = None
    provider: str | None = None
    upload_gb: Decimal | None = None
    upload_price: Money | None = None
    download_gb: Decimal | None = None
    egress_tier: str = "internet"
    egress_before_gb: Decimal = ZERO
    stopped_days: Decimal | None = None
    stopped_gb: Decimal | None = None
    minimum_charge: Money | None = None
    gpu_price: Money | None = None
    setup_minutes: Decimal | None = None
    storage_price: Money | None = None
    cold_price: Money | None = None
    stopped_price: Money | None = None
    egress_price: Money | None = None
    hours_between_interruptions: Decimal | None = None
    checkpoint_minutes: Decimal | None = None
    restart_minutes: Decimal | None = None
    spot_wait_hours: Decimal | None = None
    card_price: Money | None = None
    power_price: Money | None = None
    utilisation: Decimal | None = None
    watts: Decimal | None = None
    life_years: Decimal = LIFE_YEARS
    residual: Decimal = RESIDUAL
    upkeep: Decimal = UPKEEP
    pue: Decimal = PUE
