"""the two tables of the first scheduler; an existing database is adopted unchanged"""

from alembic import op
from alembic.util.exc import CommandError

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute(REFUSE_FOREIGN_TABLES)
    op.execute("CREATE TABLE IF NOT EXISTS scan_profiles (profile_id uuid PRIMARY KEY)")
    op.execute(
        """
        CREATE TABLE IF NOT EXISTS schedules (
            schedule_id UUID PRIMARY KEY,
            domain_config_id UUID NOT NULL,
            domain VARCHAR(255) NOT NULL,
            profile_id UUID REFERENCES scan_profiles(profile_id),
            frequency VARCHAR(50) NOT NULL,
            time_config JSONB NOT NULL,
            enabled BOOLEAN DEFAULT TRUE,
            next_run TIMESTAMP,
            last_run TIMESTAMP,
            last_status VARCHAR(50),
            created_at TIMESTAMP DEFAULT NOW(),
            updated_at TIMESTAMP DEFAULT NOW()
        )
        """
    )
    op.execute(
        """
        CREATE TABLE IF NOT EXISTS job_executions (
            execution_id UUID PRIMARY KEY,
            schedule_id UUID REFERENCES schedules(schedule_id),
            job_id VARCHAR(255) NOT NULL,
            domain VARCHAR(255) NOT NULL,
            domain_config_id UUID NOT NULL,
            status VARCHAR(50) NOT NULL,
            started_at TIMESTAMP NOT NULL,
            completed_at TIMESTAMP,
            duration_seconds FLOAT,
            scan_id UUID,
            error_message TEXT,
            error_details JSONB,
            metadata JSONB,
            created_at TIMESTAMP DEFAULT NOW()
        )
        """
    )


def downgrade() -> None:
    raise CommandError(
        "revision 0001 is the tables themselves, perhaps adopted from an earlier system: they are never dropped by a "
        "migration. Drop the database yourself if that is what you want."
    )


# A table of the same name that belongs to another program must not be altered by the next revision.
# (No percent sign in any of this SQL: Alembic doubles it when it prints the SQL instead of running it.)
REFUSE_FOREIGN_TABLES = """
DO $$
DECLARE missing text;
BEGIN
    SELECT string_agg(wanted.t || '.' || wanted.c, ', ') INTO missing
    FROM (VALUES
        ('scan_profiles', 'profile_id'),
        ('schedules', 'schedule_id'), ('schedules', 'domain_config_id'), ('schedules', 'domain'),
        ('schedules', 'profile_id'), ('schedules', 'frequency'), ('schedules', 'time_config'), ('schedules', 'enabled'),
        ('schedules', 'next_run'), ('schedules', 'last_run'), ('schedules', 'last_status'),
        ('schedules', 'created_at'), ('schedules', 'updated_at'),
        ('job_executions', 'execution_id'), ('job_executions', 'schedule_id'), ('job_executions', 'job_id'),
        ('job_executions', 'domain'), ('job_executions', 'domain_config_id'), ('job_executions', 'status'),
        ('job_executions', 'started_at'), ('job_executions', 'completed_at'), ('job_executions', 'duration_seconds'),
        ('job_executions', 'scan_id'), ('job_executions', 'error_message'), ('job_executions', 'error_details'),
        ('job_executions', 'metadata'), ('job_executions', 'created_at')
    ) AS wanted (t, c)
    WHERE to_regclass(wanted.t) IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = to_regclass(wanted.t) AND attname = wanted.c AND attnum > 0 AND NOT attisdropped
    );
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION USING
            MESSAGE = 'this database has tables of the same names that are not the scheduler''s: no ' || missing,
            HINT = 'use another database';
    END IF;
END $$
"""
