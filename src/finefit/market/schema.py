"""Tables of the price history. Migrations make them (``market/migrations``); these are what queries are written on."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Date, DateTime, Integer, MetaData, String, Table, Text, UniqueConstraint

metadata = MetaData()

# One row for what was let, by whom, on which terms, and a day: a second look on the same day replaces the price.
KEY = ("provider", "gpu_id", "kind", "region", "min_gpus", "currency", "day")
prices = Table(
    "prices",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("provider", String(80), nullable=False),
    Column("gpu_id", String(60), nullable=False, index=True),
    Column("kind", String(20), nullable=False),
    Column("region", String(80), nullable=False),
    Column("min_gpus", Integer, nullable=False),
    Column("currency", String(3), nullable=False),
    Column("day", Date, nullable=False),
    Column("micros", BigInteger, nullable=False),
    Column("source", String(300), nullable=False),
    Column("licence", String(120), nullable=False),
    UniqueConstraint(*KEY, name="one_price_a_day"),
)

# Each look at a provider: its rows are in the same transaction, so that a finished look has all of them.
refreshes = Table(
    "refreshes",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("provider", String(80), nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("rows", Integer, nullable=False),
    Column("skipped", Integer, nullable=False),
)

watches = Table(
    "watches",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("gpu_id", String(60), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("micros", BigInteger, nullable=False),
    Column("currency", String(3), nullable=False),
    Column("text", Text, nullable=False),
    Column("told_day", Date, nullable=True),  # day of the price that was last told of
    Column("told_micros", BigInteger, nullable=True),
    UniqueConstraint("gpu_id", "kind", "micros", "currency", name="one_watch_each"),
)
