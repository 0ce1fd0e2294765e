"""Alembic runs the migrations of an office on the connection that `Database.upgrade` gives."""

from alembic import context

from dpeffects.services.office.database import METADATA

context.configure(context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
