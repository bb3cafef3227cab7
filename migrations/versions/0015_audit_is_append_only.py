"""only a trigger writes the history of schedules

The trigger works with the rights of its owner. Who else may write rows (`scheduler_app`) loses INSERT and UPDATE on
`schedule_changes`, so that nobody can add or alter a change without making one. DELETE stays, for retention.
"""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    for_everybody_but_the_owner("INSERT", "REVOKE INSERT, UPDATE, TRUNCATE ON schedule_changes FROM")


def downgrade() -> None:
    for_everybody_but_the_owner("DELETE", "GRANT INSERT, UPDATE ON schedule_changes TO")


def for_everybody_but_the_owner(who_may: str, statement: str) -> None:
    """No percent sign, as `format()` would want one: Alembic doubles it in `--sql`."""
    op.execute(
        f"""
        DO $$
        DECLARE
            role text;
        BEGIN
            FOR role IN
                SELECT CASE right_.grantee WHEN 0 THEN 'PUBLIC' ELSE right_.grantee::regrole::text END
                FROM pg_class AS c, aclexplode(c.relacl) AS right_
                WHERE c.oid = 'schedule_changes'::regclass AND right_.grantee <> c.relowner
                  AND right_.privilege_type = '{who_may}'
            LOOP
                EXECUTE '{statement} ' || role;
            END LOOP;
        END $$
        """
    )
