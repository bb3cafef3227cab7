"""Alembic's entry. `run_migrations.py` opens the connection, takes the lock and passes both in here."""

from alembic import context

from database.models import Base

options = context.config.attributes

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", target_metadata=Base.metadata, output_buffer=options["output"])
else:
    context.configure(
        connection=options["connection"],
        target_metadata=Base.metadata,
        on_version_apply=options["on_version_apply"],
    )

with context.begin_transaction():
    context.run_migrations()
