"""Prices, looks at providers, watches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "prices",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("provider", sa.String(80), nullable=False),
        sa.Column("gpu_id", sa.String(60), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("region", sa.String(80), nullable=False),
        sa.Column("min_gpus", sa.Integer, nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("micros", sa.BigInteger, nullable=False),
        sa.Column("source", sa.String(300), nullable=False),
        sa.Column("licence", sa.String(120), nullable=False),
        sa.UniqueConstraint(
            "provider", "gpu_id", "kind", "region", "min_gpus", "currency", "day", name="one_price_a_day"
        ),
    )
    op.create_index("ix_prices_gpu_id", "prices", ["gpu_id"])
    op.create_table(
        "refreshes",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("provider", sa.String(80), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("rows", sa.Integer, nullable=False),
        sa.Column("skipped", sa.Integer, nullable=False),
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("refreshes")
    op.drop_table("prices")
