"""who changed a limit, when, and what it was before

Written by a trigger, as the history of schedules is: a change by plain SQL is recorded, too, and nobody but the owner
of the schema can add or alter one. DELETE stays, for retention.
"""

from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE limit_changes (
            change_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name text,
            operation varchar(8) NOT NULL,
            changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            changed_by text NOT NULL,
            old jsonb,
            new jsonb
        )
        """
    )
    op.execute("CREATE INDEX limit_changes_name_idx ON limit_changes (name, change_id)")
    op.execute("CREATE INDEX limit_changes_changed_at_idx ON limit_changes (changed_at)")
    op.execute(
        """
        CREATE FUNCTION limits_log() RETURNS trigger LANGUAGE plpgsql
        SECURITY DEFINER SET search_path = public, pg_temp AS $$
            BEGIN
                CASE TG_OP
                    WHEN 'INSERT' THEN
                        INSERT INTO limit_changes (name, operation, changed_by, new)
                        VALUES (NEW.name, 'insert', schedules_actor(), to_jsonb(NEW));
                    WHEN 'UPDATE' THEN
                        INSERT INTO limit_changes (name, operation, changed_by, old, new)
                        VALUES (OLD.name, 'update', schedules_actor(), to_jsonb(OLD), to_jsonb(NEW));
                    WHEN 'DELETE' THEN
                        INSERT INTO limit_changes (name, operation, changed_by, old)
                        VALUES (OLD.name, 'delete', schedules_actor(), to_jsonb(OLD));
                    ELSE
                        INSERT INTO limit_changes (operation, changed_by) VALUES ('truncate', schedules_actor());
                END CASE;
                RETURN NULL;
            END $$
        """
    )
    op.execute(
        """
        CREATE TRIGGER limits_log AFTER INSERT OR DELETE ON limits FOR EACH ROW EXECUTE FUNCTION limits_log()
        """
    )
    op.execute(
        """
        CREATE TRIGGER limits_log_update AFTER UPDATE ON limits
        FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION limits_log()
        """
    )
    op.execute(
        """
        CREATE TRIGGER limits_log_truncate AFTER TRUNCATE ON limits
        FOR EACH STATEMENT EXECUTE FUNCTION limits_log()
        """
    )
    op.execute(
        """
        DO $$
        DECLARE
            role text;
        BEGIN
            FOR role IN
                SELECT CASE right_.grantee WHEN 0 THEN 'PUBLIC' ELSE right_.grantee::regrole::text END
                FROM pg_class AS c, aclexplode(c.relacl) AS right_
                WHERE c.oid = 'limit_changes'::regclass AND right_.grantee <> c.relowner
                  AND right_.privilege_type = 'INSERT'
            LOOP
                EXECUTE 'REVOKE INSERT, UPDATE, TRUNCATE ON limit_changes FROM ' || role;
            END LOOP;
        END $$
        """
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER limits_log ON limits")
    op.execute("DROP TRIGGER limits_log_update ON limits")
    op.execute("DROP TRIGGER limits_log_truncate ON limits")
    op.execute("DROP FUNCTION limits_log()")
    op.execute("DROP TABLE limit_changes")
