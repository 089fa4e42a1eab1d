"""Watches: a price under which somebody wants to be told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "watches",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("gpu_id", sa.String(60), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("micros", sa.BigInteger, nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("told_day", sa.Date, nullable=True),
        sa.Column("told_micros", sa.BigInteger, nullable=True),
        sa.UniqueConstraint("gpu_id", "kind", "micros", "currency", name="one_watch_each"),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("watches")
