"""database/triggers.sql shows the triggers that the migrations make."""

from sqlalchemy import Connection

from config import PROJECT_ROOT
from database.connection import DatabaseConnection

FILE = (PROJECT_ROOT / "database/triggers.sql").read_text()
FUNCTIONS = """
SELECT oid::regprocedure::text AS name, pg_get_functiondef(oid) AS definition
FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prokind = 'f'
"""
TRIGGERS = """
SELECT tgname || ' on ' || tgrelid::regclass AS name, tgenabled::text || pg_get_triggerdef(oid) AS definition
FROM pg_trigger WHERE NOT tgisinternal
"""


def definitions(connection: Connection) -> dict[str, str]:
    """Of every function and trigger, as Postgres spells it; how its lines are broken does not matter."""
    rows = [*connection.exec_driver_sql(FUNCTIONS), *connection.exec_driver_sql(TRIGGERS)]
    return {row.name: " ".join(row.definition.split()) for row in rows}


def test_the_file_makes_the_triggers_that_the_migrations_make(db: DatabaseConnection) -> None:
    with db.transaction() as connection:
        migrated = definitions(connection)
        for name in migrated:
            if name.endswith(")"):
                connection.exec_driver_sql(f"DROP FUNCTION {name} CASCADE")
        assert definitions(connection) == {}
        connection.exec_driver_sql(FILE)
        shown = definitions(connection)
    assert len(migrated) > 30
    assert sorted(shown) == sorted(migrated)
    for name, definition in migrated.items():
        assert shown[name] == definition
