"""What alembic runs: migrations on the connection that ``market.store`` has opened and locked."""

from __future__ import annotations

from alembic import context

from finefit.market.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
