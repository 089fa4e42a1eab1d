"""Owned hardware by the hour: depreciation, upkeep, power.

    hourly = (price · (1 - residual) / life + price · upkeep / year) / utilisation + kW · PUE · tariff

Depreciation and upkeep run on while nothing trains, so each used hour carries its share of the idle ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from finefit.cost.terms import HOURS_A_YEAR
from finefit.errors import InputError
from finefit.units import Money

# Assumed where nothing is stated, and shown as assumed: years until the hardware is written off, the share of its price
# left then, a share of the price a year for hands, space and spares, and power drawn for each kWh computed (an
# air-cooled data centre; 1.1 with liquid cooling, 1.5 in a server room).
LIFE_YEARS = Decimal(4)
RESIDUAL = Decimal("0.2")
UPKEEP = Decimal("0.05")
PUE = Decimal("1.3")
# A DGX H100 takes 10.2 kW with eight 700 W cards (its data sheet): 4.6 kW go to the host, 0.575 kW beside each card.
HOST_KILOWATTS = Decimal("0.575")


@dataclass(frozen=True, slots=True)
class Owned:
    """Hardware that was or would be bought.

    Attributes:
        price: of one GPU with its share of the server.
        kilowatts: one GPU's and its share of the server's draw, at full load.
        tariff: of a kWh.
        utilisation: share of its life in which it trains; None unknown.
    """

    price: Money
    kilowatts: Decimal
    tariff: Money
    life_years: Decimal = LIFE_YEARS
    residual: Decimal = RESIDUAL
    upkeep: Decimal = UPKEEP
    pue: Decimal = PUE
    utilisation: Decimal | None = None

    def __post_init__(self) -> None:
        if self.price.currency != self.tariff.currency:
            raise InputError(
                f"the card is priced in {self.price.currency}, power in {self.tariff.currency}",
                where="--power-price",
                fix="state both in one currency",
            )

    @property
    def standing(self) -> Decimal:
        """What an hour costs whether or not it is used: depreciation and upkeep."""
        capital = self.price.amount
        wear = capital * (1 - self.residual) / (self.life_years * HOURS_A_YEAR)
        return wear + capital * self.upkeep / HOURS_A_YEAR

    @property
    def power(self) -> Decimal:
        """What the power of a used hour costs."""
        return self.kilowatts * self.pue * self.tariff.amount

    @property
    def hourly(self) -> Money | None:
        """A used GPU-hour; None while the utilisation is unknown."""
        if not self.utilisation:
            return None
        return Money(self.standing / self.utilisation + self.power, self.price.currency, self.price.as_of)

    def break_even_utilisation(self, rent: Money) -> Decimal | None:
        """Share of the hours from which buying is cheaper than ``rent`` a GPU-hour; None: power alone costs more.

        Above 1 it never is.

        Raises:
            InputError: another currency.
        """
        if rent.currency != self.price.currency:
            raise InputError(f"rent in {rent.currency}, price in {self.price.currency}", fix="convert one of them")
        margin = rent.amount - self.power
        return self.standing / margin if margin > 0 else None
