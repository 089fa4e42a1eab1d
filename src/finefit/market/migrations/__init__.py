"""Alembic migrations of the price history."""
