"""The tables of the scheduler, as SQLAlchemy models.

The migrations define the schema; a test keeps these models equal to them. Triggers exist in the migrations only: they
write `revision`, `updated_at`, `effective_from` and `schedule_changes`, also for edits made by plain SQL.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    Sequence,
    SmallInteger,
    String,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import UserDefinedType

from enhanced_scheduler.statuses import Cause as Cause
from enhanced_scheduler.statuses import ExecutionStatus as ExecutionStatus


class Source(StrEnum):
    """The owner of a schedule."""

    MANUAL = "manual"
    API = "api"
    SYSTEM = "system"


class Catchup(StrEnum):
    """The policy for fires that became due while no replica ran."""

    NONE = "none"
    ONE = "one"
    ALL = "all"


def _one_of(column: str, values: type[StrEnum]) -> str:
    return f"{column} IN ({', '.join(repr(value.value) for value in values)})"


def _readable(column: str, depth: int, limit: str) -> CheckConstraint:
    return CheckConstraint(
        f"pg_column_size({column}) <= 524288 AND NOT jsonb_path_exists({column}, '$.**{{{depth + 1}}}') AND NOT "
        f"jsonb_path_exists({column}, '$.** ? (@.type() == \"number\" && (@ >= {limit} || @ <= -{limit}))')",
        f"{column}_readable",
    )


def _in_our_era(column: str) -> CheckConstraint:
    return CheckConstraint(f"{column} >= '1970-01-01 00:00+00' AND {column} < '10000-01-01 00:00+00'", column)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "pk": "%(table_name)s_pkey",
            "fk": "%(table_name)s_%(column_0_name)s_fkey",
            "ck": "%(table_name)s_%(constraint_name)s_check",
            "uq": "%(table_name)s_%(column_0_N_name)s_key",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own declaration
        datetime: TIMESTAMP(timezone=True),
        dict[str, Any]: JSONB,
        list[str]: ARRAY(Text),
        float: Double,
        str: Text,
    }


class TransactionId(UserDefinedType[int]):
    """Postgres' xid8: a transaction id that never wraps around."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid8"


REVISIONS = Sequence("schedule_revision_seq", metadata=Base.metadata)
FENCING_TOKENS = Sequence("fencing_token_seq", metadata=Base.metadata)
LABEL = "[a-z0-9][a-z0-9_.-]{0,62}"
KEY_CHARACTER = "[^[:space:][:cntrl:],*]"
WENT_WRONG = text("status IN ('failed', 'timed_out', 'cancelled', 'abandoned', 'skipped', 'missed')")
NEW_UUID, NOW, CLOCK = text("gen_random_uuid()"), text("now()"), text("clock_timestamp()")


class ScanProfile(Base):
    """Cookie scan settings shared by several schedules."""

    __tablename__ = "scan_profiles"

    profile_id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_UUID)
    name: Mapped[str | None] = mapped_column(String(255))
    config: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (
        Index("scan_profiles_one_per_name_key", "name", unique=True, postgresql_where=text("name IS NOT NULL")),
    )


class Schedule(Base):
    """Which job runs when. NULL in a policy column falls back to the setting."""

    __tablename__ = "schedules"

    schedule_id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_UUID)
    domain_config_id: Mapped[UUID]
    domain: Mapped[str] = mapped_column(String(255))
    profile_id: Mapped[UUID | None] = mapped_column(ForeignKey("scan_profiles.profile_id"))
    frequency: Mapped[str] = mapped_column(String(50))
    time_config: Mapped[dict[str, Any]]
    enabled: Mapped[bool] = mapped_column(server_default=text("true"))
    next_run: Mapped[datetime | None]
    last_run: Mapped[datetime | None]
    last_status: Mapped[str | None] = mapped_column(String(50))
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)

    name: Mapped[str | None] = mapped_column(String(255))
    timezone: Mapped[str] = mapped_column(String(64), server_default=text("'UTC'"))
    job_type: Mapped[str] = mapped_column(String(64), server_default=text("'cookie_scan'"))
    job_config: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    priority: Mapped[int] = mapped_column(server_default=text("0"))
    tags: Mapped[list[str]] = mapped_column(server_default=text("'{}'::text[]"))
    start_at: Mapped[datetime | None]
    end_at: Mapped[datetime | None]
    spread_seconds: Mapped[int] = mapped_column(server_default=text("0"))
    source: Mapped[str] = mapped_column(String(16), server_default=text("'manual'"))
    external_id: Mapped[str | None] = mapped_column(String(255))
    invalid_reason: Mapped[str | None]

    max_instances: Mapped[int | None]
    coalesce: Mapped[bool | None]
    misfire_grace_seconds: Mapped[int | None]
    timeout_seconds: Mapped[int | None]
    max_retries: Mapped[int | None]
    retry_backoff_seconds: Mapped[int | None]
    catchup: Mapped[str | None] = mapped_column(String(16))

    revision: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    effective_from: Mapped[datetime] = mapped_column(server_default=CLOCK)
    disabled_note: Mapped[str | None]
    requires: Mapped[list[str]] = mapped_column(server_default=text("'{}'::text[]"))
    queue: Mapped[str | None]
    limit_keys: Mapped[list[str]] = mapped_column(server_default=text("'{}'::text[]"))

    pause_after_failures: Mapped[int | None]
    backoff_after_failures: Mapped[int | None]
    ping_url: Mapped[str | None]
    failures_in_a_row: Mapped[int] = mapped_column(server_default=text("0"))  # derived from the history
    last_failed_for: Mapped[datetime | None]  # the newest fire among them
    backoff_until: Mapped[datetime | None]  # fires before it are skipped

    __table_args__ = (
        CheckConstraint("jsonb_typeof(time_config) = 'object'", "time_config_object"),
        CheckConstraint("jsonb_typeof(job_config) = 'object'", "job_config_object"),
        CheckConstraint(
            """NOT jsonb_path_exists(time_config, '$.* ? (@.type() == "number" && @ < 0)')""",
            "time_config_not_negative",
        ),
        _readable("time_config", 8, "1e12"),
        _readable("job_config", 64, "1e309"),
        CheckConstraint("array_ndims(tags) = 1 AND array_position(tags, NULL) IS NULL", "tags"),
        *(_in_our_era(column) for column in ("start_at", "end_at", "next_run", "last_run", "created_at", "updated_at")),
        CheckConstraint("end_at > start_at", "ends_after_start"),
        CheckConstraint("length(disabled_note) <= 500", "disabled_note"),
        CheckConstraint(
            f"""array_ndims(requires) = 1 AND array_position(requires, NULL) IS NULL AND cardinality(requires) <= 10
                AND array_to_string(requires, ',') ~ '^({LABEL}(,{LABEL})*)?$'""",
            "requires",
        ),
        CheckConstraint(f"queue ~ '^{LABEL}$'", "queue"),
        CheckConstraint(
            f"""array_ndims(limit_keys) = 1 AND array_position(limit_keys, NULL) IS NULL
                AND cardinality(limit_keys) <= 8
                AND cardinality(limit_keys) = cardinality(string_to_array(array_to_string(limit_keys, ','), ','))
                AND array_to_string(limit_keys, ',') ~ '^({KEY_CHARACTER}{{1,200}}(,{KEY_CHARACTER}{{1,200}})*)?$'""",
            "limit_keys",
        ),
        CheckConstraint("disabled_note IS NULL OR NOT enabled", "disabled_note_while_on"),
        CheckConstraint("spread_seconds BETWEEN 0 AND 86400", "spread_seconds"),
        CheckConstraint("max_instances >= 1", "max_instances"),
        CheckConstraint("misfire_grace_seconds >= 1", "misfire_grace_seconds"),
        CheckConstraint("timeout_seconds >= 1", "timeout_seconds"),
        CheckConstraint("max_retries BETWEEN 0 AND 100", "max_retries"),
        CheckConstraint("retry_backoff_seconds >= 0", "retry_backoff_seconds"),
        CheckConstraint("pause_after_failures BETWEEN 1 AND 1000", "pause_after_failures"),
        CheckConstraint("backoff_after_failures BETWEEN 1 AND 1000", "backoff_after_failures"),
        CheckConstraint("length(ping_url) <= 2000 AND ping_url ~* '^https?://'", "ping_url"),
        CheckConstraint(_one_of("catchup", Catchup), "catchup"),
        CheckConstraint(_one_of("source", Source), "source"),
        Index(
            "schedules_api_domain_config_id_key",
            "domain_config_id",
            unique=True,
            postgresql_where=text("source = 'api'"),
        ),
        Index("schedules_name_key", "name", unique=True, postgresql_where=text("name IS NOT NULL")),
        Index("schedules_domain_idx", "domain"),
        Index("schedules_domain_config_id_idx", "domain_config_id"),
        Index("schedules_revision_idx", "revision"),
        Index("schedules_parked_idx", "updated_at", postgresql_where=text("invalid_reason IS NOT NULL")),
        Index("schedules_failing_idx", "schedule_id", postgresql_where=text("failures_in_a_row > 0")),
        Index("schedules_workflow_idx", "schedule_id", postgresql_where=text("job_type = 'workflow'")),
        Index(
            "schedules_bucket_idx",
            text("(uuid_hash_extended(schedule_id, 0::bigint) & 1023)"),
            postgresql_include=["schedule_id"],
        ),
    )


class ScheduleChange(Base):
    """The audit log of schedules: actor, time, old and new values. Written by triggers only."""

    __tablename__ = "schedule_changes"

    change_id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    schedule_id: Mapped[UUID | None]  # NULL: the whole table was truncated
    revision: Mapped[int | None] = mapped_column(BigInteger)
    operation: Mapped[str] = mapped_column(String(8))
    changed_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    changed_by: Mapped[str]
    old: Mapped[dict[str, Any] | None]
    new: Mapped[dict[str, Any] | None]
    txid: Mapped[int] = mapped_column(TransactionId, server_default=text("pg_current_xact_id()"))

    __table_args__ = (
        Index("schedule_changes_txid_idx", "txid"),
        Index("schedule_changes_schedule_id_idx", "schedule_id", "change_id"),
        Index("schedule_changes_changed_at_idx", "changed_at"),
        *(
            Index(
                f"schedule_changes_deleted_{field}_idx",
                text(f"(old ->> '{field}')"),
                "change_id",
                postgresql_where=text("operation = 'delete'"),
            )
            for field in ("name", "domain")
        ),
    )


class JobExecution(Base):
    """One execution of a fire. `schedule_id` has no foreign key: history outlives its schedule."""

    __tablename__ = "job_executions"

    execution_id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_UUID)
    schedule_id: Mapped[UUID | None]
    job_id: Mapped[str] = mapped_column(String(255))
    domain: Mapped[str] = mapped_column(String(255))
    domain_config_id: Mapped[UUID]
    status: Mapped[str] = mapped_column(String(50))
    started_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    duration_seconds: Mapped[float | None]
    scan_id: Mapped[UUID | None]
    error_message: Mapped[str | None]
    error_details: Mapped[dict[str, Any] | None]
    details: Mapped[dict[str, Any] | None] = mapped_column("metadata")
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)

    scheduled_for: Mapped[datetime] = mapped_column(server_default=CLOCK)
    attempt: Mapped[int] = mapped_column(server_default=text("1"))
    cause: Mapped[str] = mapped_column(String(16), server_default=text("'schedule'"))
    due_at: Mapped[datetime | None]
    claimed_at: Mapped[datetime | None]
    instance_id: Mapped[str | None] = mapped_column(String(63))
    incarnation: Mapped[UUID | None]
    fencing_token: Mapped[int | None] = mapped_column(BigInteger)
    cancel_requested_at: Mapped[datetime | None]
    reason: Mapped[str | None]
    # Of a row that waits: copies that say where to look for it (empty: nobody has looked at it yet), and when to look.
    queue: Mapped[str] = mapped_column(Text, server_default=text("''"))
    needs: Mapped[list[str]] = mapped_column(server_default=text("'{}'::text[]"))
    priority: Mapped[int] = mapped_column(server_default=text("0"))
    settle_at: Mapped[datetime | None]
    published_at: Mapped[datetime | None]  # when its queue was last announced to the broker of the fleet
    publish_at: Mapped[datetime | None]  # when it is announced next, unless a worker takes it; NULL: when it is due
    limit_keys: Mapped[list[str]] = mapped_column(server_default=text("'{}'::text[]"))  # counted while it runs

    __table_args__ = (
        UniqueConstraint("schedule_id", "scheduled_for", "attempt"),
        CheckConstraint(_one_of("status", ExecutionStatus), "status"),
        CheckConstraint(_one_of("cause", Cause), "cause"),
        CheckConstraint("attempt >= 1", "attempt"),
        Index("job_executions_created_at_idx", "created_at"),
        Index("job_executions_domain_idx", "domain", "created_at"),
        Index("job_executions_cause_idx", "cause", "created_at", postgresql_where=text("cause <> 'schedule'")),
        Index("job_executions_live_idx", "schedule_id", postgresql_where=text("status IN ('claimed', 'running')")),
        Index("job_executions_pending_idx", "due_at", postgresql_where=text("status = 'pending'")),
        Index(
            "job_executions_waiting_idx",
            "queue",
            "needs",
            text("priority DESC"),
            "due_at",
            postgresql_where=text("coalesce(status, 'w') = 'pending' AND reason IS NULL"),
        ),
        Index(
            "job_executions_limited_idx",
            "reason",
            "queue",
            "needs",
            text("priority DESC"),
            "due_at",
            postgresql_where=text("coalesce(status, 'l') = 'pending' AND reason IS NOT NULL"),
        ),
        Index(
            "job_executions_settle_idx",
            text("coalesce(settle_at, due_at)"),
            postgresql_where=text("coalesce(status, 's') = 'pending'"),
        ),
        Index(
            "job_executions_standing_idx",
            "schedule_id",
            postgresql_where=text("coalesce(status, 't') = 'pending'"),
        ),
        Index(
            "job_executions_outbox_idx",
            "queue",
            text("coalesce(publish_at, due_at)"),
            postgresql_where=text("coalesce(status, 'o') = 'pending' AND queue <> ''"),
        ),
        Index(
            "job_executions_failed_idx",
            "completed_at",
            "execution_id",
            postgresql_where=text("coalesce(status, 'f') IN ('failed', 'timed_out', 'abandoned')"),
        ),
        Index("job_executions_troubled_idx", "status", "created_at", postgresql_where=WENT_WRONG),
        Index("job_executions_troubled_at_idx", "created_at", "status", postgresql_where=WENT_WRONG),
        Index("job_executions_troubled_domain_idx", "domain", "created_at", postgresql_where=WENT_WRONG),
        Index(
            "job_executions_troubled_fire_idx", "schedule_id", "scheduled_for", "attempt", postgresql_where=WENT_WRONG
        ),
        Index(
            "job_executions_summary_idx",
            "schedule_id",
            "scheduled_for",
            postgresql_where=text("reason = 'catchup_cap'"),
        ),
        Index(
            "job_executions_ended_idx",
            "completed_at",
            "execution_id",
            postgresql_where=text("completed_at IS NOT NULL"),
        ),
    )


class ExecutionLogLine(Base):
    """A line that a handler logged. Only ever inserted; one writer, the replica that called the handler."""

    __tablename__ = "execution_logs"

    execution_id: Mapped[UUID] = mapped_column(primary_key=True)
    fencing_token: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    line: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    at: Mapped[datetime]  # by the replica's clock: the order is that of `line`
    level: Mapped[str] = mapped_column(Text)
    text: Mapped[str] = mapped_column(Text)


class ExecutionProgress(Base):
    """One row per call of a handler that logged or reported progress: how far it is, and whether its log is whole."""

    __tablename__ = "execution_progress"

    execution_id: Mapped[UUID] = mapped_column(primary_key=True)
    fencing_token: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    done: Mapped[float | None]
    total: Mapped[float | None]
    is_complete: Mapped[bool] = mapped_column(server_default=text("false"))
    began_at: Mapped[datetime] = mapped_column(server_default=CLOCK)

    __table_args__ = (Index("execution_progress_began_at_idx", "began_at"),)


class Limit(Base):
    """How many executions of a key run at once. A name with `*` at its end is for all keys that begin so."""

    __tablename__ = "limits"

    name: Mapped[str] = mapped_column(primary_key=True)
    max_running: Mapped[int]
    enabled: Mapped[bool] = mapped_column(server_default=text("true"))
    note: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    updated_at: Mapped[datetime] = mapped_column(server_default=CLOCK)  # by a trigger

    __table_args__ = (
        CheckConstraint(f"name ~ '^({KEY_CHARACTER}{{1,200}}|{KEY_CHARACTER}{{0,199}}[*])$'", "name"),
        CheckConstraint("max_running >= 0 AND max_running <= 100000", "max_running"),
        Index("limits_patterns_idx", "name", postgresql_where=text("\"right\"(name, 1) = '*'")),
    )


class LimitChange(Base):
    """The audit log of limits: actor, time, old and new values. Written by a trigger only."""

    __tablename__ = "limit_changes"

    change_id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    name: Mapped[str | None]  # NULL: the whole table was truncated
    operation: Mapped[str] = mapped_column(String(8))
    changed_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    changed_by: Mapped[str]
    old: Mapped[dict[str, Any] | None]
    new: Mapped[dict[str, Any] | None]

    __table_args__ = (
        Index("limit_changes_name_idx", "name", "change_id"),
        Index("limit_changes_changed_at_idx", "changed_at"),
    )


class LimitStripe(Base):
    """A claim locks the stripes of its limited keys before it counts what runs; nothing else touches them."""

    __tablename__ = "limit_stripes"

    stripe: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    kept: Mapped[dict[str, Any] | None]  # key -> the place that is kept for an execution: services/ledger/limits.py


class ExecutionHour(Base):
    """Totals of the executions of one past hour. The row at -infinity is a marker: services/ledger/tallies_sql.py."""

    __tablename__ = "execution_hours"

    hour: Mapped[datetime] = mapped_column(primary_key=True)
    outcomes: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))  # status -> executions
    duration_count: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    duration_sum: Mapped[float] = mapped_column(server_default=text("0"))
    duration_min: Mapped[float | None]
    duration_max: Mapped[float | None]
    duration_places: Mapped[list[int]] = mapped_column(ARRAY(Integer), server_default=text("'{}'::integer[]"))
    duration_counts: Mapped[list[int]] = mapped_column(ARRAY(Integer), server_default=text("'{}'::integer[]"))
    lateness_places: Mapped[list[int]] = mapped_column(ARRAY(Integer), server_default=text("'{}'::integer[]"))
    lateness_counts: Mapped[list[int]] = mapped_column(ARRAY(Integer), server_default=text("'{}'::integer[]"))
    counted_at: Mapped[datetime] = mapped_column(server_default=NOW)
    horizon: Mapped[int] = mapped_column(TransactionId, server_default=text("pg_current_xact_id()"))


class SchedulerInstance(Base):
    """A replica that is alive or died recently. A restarted process is a new incarnation of the same instance."""

    __tablename__ = "scheduler_instances"

    instance_id: Mapped[str] = mapped_column(String(63), primary_key=True)
    incarnation: Mapped[UUID] = mapped_column(primary_key=True)
    started_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    heartbeat_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    revision: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))  # newest change it has applied
    schedules: Mapped[int] = mapped_column(server_default=text("0"))
    running: Mapped[int] = mapped_column(server_default=text("0"))
    clock_skew_seconds: Mapped[float] = mapped_column(server_default=text("0"))
    claiming: Mapped[bool] = mapped_column(server_default=text("true"))
    facts: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    alive_since: Mapped[datetime] = mapped_column(server_default=CLOCK)  # without a gap between heartbeats
    heartbeat_interval_seconds: Mapped[float | None]
    session_name: Mapped[str | None] = mapped_column(Text)  # NULL: its sessions say nothing about the process
    kind: Mapped[str] = mapped_column(String(16), server_default=text("'replica'"))
    abilities: Mapped[list[str] | None]  # NULL: of a version that does not say it
    queues: Mapped[list[str] | None]
    host: Mapped[str | None] = mapped_column(Text)
    holds: Mapped[bytes | None]  # the buckets that it has loaded, lowest bit first; NULL: of a version before, so all
    on_duty: Mapped[bool] = mapped_column(server_default=text("false"))  # it claims, and not only since a moment ago
    free_slots: Mapped[int | None]  # workers that nothing waits for

    __table_args__ = (CheckConstraint("kind IN ('replica', 'worker')", "kind"),)


class FiresWatched(Base):
    """One row: gap scans have verified that every fire due in (since, until] has an execution."""

    __tablename__ = "fires_watched"

    only_row: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    since: Mapped[datetime]
    until: Mapped[datetime]

    __table_args__ = (CheckConstraint("only_row", "only_row"),)


class FiresWatchedByBucket(Base):
    """The same for each bucket of schedules, whose gap scan is one replica's; NULL: no scan has ended yet."""

    __tablename__ = "fires_watched_by_bucket"

    bucket: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    since: Mapped[datetime | None]
    until: Mapped[datetime | None]
    tried_at: Mapped[datetime | None]  # when a replica last scanned it because nobody seemed to

    __table_args__ = (CheckConstraint("bucket >= 0 AND bucket <= 1023", "bucket"),)


class AuditedHour(Base):
    """What the hourly audit found about the fires due in one hour; `audited_at` is NULL while a replica is at it."""

    __tablename__ = "audited_hours"

    since: Mapped[datetime] = mapped_column(primary_key=True)
    claimed_until: Mapped[datetime]
    instance_id: Mapped[str]
    audited_at: Mapped[datetime | None]
    schedules: Mapped[int] = mapped_column(server_default=text("0"))
    expected: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    accounted: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    duplicates: Mapped[int] = mapped_column(server_default=text("0"))
    unexplained: Mapped[int] = mapped_column(server_default=text("0"))
    extra: Mapped[int] = mapped_column(server_default=text("0"))
    contradicted: Mapped[int] = mapped_column(server_default=text("0"))
    seconds: Mapped[float] = mapped_column(server_default=text("0"))


class NotificationChannel(Base):
    """Where notifications go. `resume_at`: after failures in a row nothing is sent before this moment."""

    __tablename__ = "notification_channels"

    channel_id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_UUID)
    name: Mapped[str]
    kind: Mapped[str]
    config: Mapped[dict[str, Any]]  # with secrets: never shown as it is
    enabled: Mapped[bool] = mapped_column(server_default=text("true"))
    note: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    created_by: Mapped[str] = mapped_column(server_default=text("SESSION_USER"))
    updated_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    updated_by: Mapped[str] = mapped_column(server_default=text("SESSION_USER"))
    failures: Mapped[int] = mapped_column(server_default=text("0"))  # in a row
    failing_since: Mapped[datetime | None]
    resume_at: Mapped[datetime | None]
    last_error: Mapped[str | None]
    last_sent_at: Mapped[datetime | None]

    __table_args__ = (
        UniqueConstraint("name"),
        CheckConstraint("name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$'", "name"),
        CheckConstraint("kind IN ('webhook', 'email', 'apprise')", "kind"),
        CheckConstraint("jsonb_typeof(config) = 'object' AND pg_column_size(config) <= 65536", "config"),
    )


class NotificationDelivery(Base):
    """One message for one channel. While a replica sends it, `next_at` is when its claim expires."""

    __tablename__ = "notification_deliveries"

    delivery_id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_UUID)
    channel_id: Mapped[UUID]  # no foreign key: the history outlives the channel
    rule_id: Mapped[UUID | None]  # NULL: a test
    event: Mapped[str]
    subject: Mapped[str]
    message: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    due_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    state: Mapped[str] = mapped_column(server_default=text("'waiting'"))
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    failures: Mapped[int] = mapped_column(server_default=text("0"))  # since it was written or repeated
    tried_since: Mapped[datetime | None]  # the first of them
    next_at: Mapped[datetime | None]
    claim_token: Mapped[UUID | None]
    claim_owner: Mapped[str | None]
    ended_at: Mapped[datetime | None]
    last_error: Mapped[str | None]
    repeated_by: Mapped[str | None]

    __table_args__ = (
        UniqueConstraint("rule_id", "event", "subject"),
        CheckConstraint("jsonb_typeof(message) = 'object'", "message"),
        CheckConstraint("state IN ('waiting', 'sent', 'failed', 'cancelled')", "state"),
        Index(
            "notification_deliveries_due_idx",
            "channel_id",
            text("coalesce(next_at, due_at)"),
            postgresql_where=text("state = 'waiting'"),
        ),
        Index("notification_deliveries_failed_idx", "ended_at", postgresql_where=text("state = 'failed'")),
        Index("notification_deliveries_created_at_idx", "created_at", "delivery_id"),
        Index("notification_deliveries_channel_id_idx", "channel_id", "created_at", "delivery_id"),
    )


class NotificationAttempt(Base):
    """One attempt to send a delivery; without an outcome it is on its way, or its process died."""

    __tablename__ = "notification_attempts"

    delivery_id: Mapped[UUID] = mapped_column(
        ForeignKey("notification_deliveries.delivery_id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    claim_token: Mapped[UUID]
    instance_id: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    ended_at: Mapped[datetime | None]
    outcome: Mapped[str | None]
    answer: Mapped[str | None]

    __table_args__ = (CheckConstraint("outcome IN ('sent', 'failed', 'lost')", "outcome"),)


class NotificationRule(Base):
    """Which events are sent to which channels. NULL in a parameter: its event is not sent, or has its default."""

    __tablename__ = "notification_rules"

    rule_id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_UUID)
    name: Mapped[str]
    channel_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid))
    events: Mapped[list[str]]
    schedule_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid), server_default=text("'{}'::uuid[]"))
    tags: Mapped[list[str]] = mapped_column(server_default=text("'{}'::text[]"))
    job_types: Mapped[list[str]] = mapped_column(server_default=text("'{}'::text[]"))
    queues: Mapped[list[str]] = mapped_column(server_default=text("'{}'::text[]"))
    after_failures: Mapped[int | None]
    late_seconds: Mapped[int | None]
    slower_than_seconds: Mapped[int | None]
    slower_than_usual: Mapped[float | None]  # times the 95th percentile of the schedule's durations
    no_success_seconds: Mapped[int | None]
    quiet_from: Mapped[str | None]  # HH:MM
    quiet_to: Mapped[str | None]
    quiet_timezone: Mapped[str] = mapped_column(server_default=text("'UTC'"))
    quiet_errors_pass: Mapped[bool] = mapped_column(server_default=text("false"))
    digest: Mapped[str] = mapped_column(server_default=text("'none'"))
    digest_at: Mapped[str] = mapped_column(server_default=text("'08:00'"))
    digest_day: Mapped[str] = mapped_column(server_default=text("'monday'"))
    digest_timezone: Mapped[str] = mapped_column(server_default=text("'UTC'"))
    enabled: Mapped[bool] = mapped_column(server_default=text("true"))
    note: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    created_by: Mapped[str] = mapped_column(server_default=text("SESSION_USER"))
    updated_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    updated_by: Mapped[str] = mapped_column(server_default=text("SESSION_USER"))

    __table_args__ = (
        UniqueConstraint("name"),
        CheckConstraint("name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$'", "name"),
        CheckConstraint("cardinality(channel_ids) BETWEEN 1 AND 10", "channel_ids"),
        CheckConstraint(
            """cardinality(events) >= 1 AND events <@ ARRAY['failed', 'failing', 'recovered', 'late', 'slow',
               'no_success', 'missed', 'parked', 'nobody_able', 'replica_lost', 'queue_open', 'scan_changed',
               'audit_failed']""",
            "events",
        ),
        CheckConstraint("digest IN ('none', 'daily', 'weekly')", "digest"),
        CheckConstraint("(quiet_from IS NULL) = (quiet_to IS NULL)", "quiet"),
        CheckConstraint("length(note) <= 500", "note"),
    )


class NotificationIncident(Base):
    """What a rule knows of one subject: one row from when something begins until some time after it is over.

    `fire_at` and `attempt`: the newest fire that was judged. `flush_at`: when what was gathered is told. `storm`: the
    incident that tells this one along with others.
    """

    __tablename__ = "notification_incidents"

    rule_id: Mapped[UUID] = mapped_column(
        ForeignKey("notification_rules.rule_id", ondelete="CASCADE"), primary_key=True
    )
    event: Mapped[str] = mapped_column(primary_key=True)
    subject: Mapped[str] = mapped_column(primary_key=True)
    phase: Mapped[str]
    began_at: Mapped[datetime]
    key: Mapped[str]  # tells this incident of the subject from earlier ones
    pattern: Mapped[str] = mapped_column(server_default=text("''"))
    streak: Mapped[int] = mapped_column(server_default=text("1"))
    fire_at: Mapped[datetime | None]
    attempt: Mapped[int | None]
    flush_at: Mapped[datetime | None]
    storm: Mapped[str | None]
    content: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    updated_at: Mapped[datetime] = mapped_column(server_default=CLOCK)

    __table_args__ = (
        CheckConstraint("phase IN ('counting', 'gathering', 'told', 'ending', 'over')", "phase"),
        Index("notification_incidents_subject_idx", "subject"),
        Index("notification_incidents_flush_idx", "flush_at", postgresql_where=text("flush_at IS NOT NULL")),
        Index("notification_incidents_storm_idx", "rule_id", "storm", postgresql_where=text("storm IS NOT NULL")),
        Index("notification_incidents_over_idx", "updated_at", postgresql_where=text("phase = 'over'")),
        Index("notification_incidents_open_idx", "event", "subject", postgresql_where=text("phase <> 'over'")),
    )


class NotifierState(Base):
    """One row: which replica walks, and how far it has walked. Every write of the walk compares `token`."""

    __tablename__ = "notifier"

    only_row: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    token: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    holder: Mapped[str | None]
    held_until: Mapped[datetime] = mapped_column(server_default=text("'-infinity'::timestamptz"))
    position: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    walked_at: Mapped[datetime] = mapped_column(server_default=CLOCK)

    __table_args__ = (CheckConstraint("only_row", "only_row"),)


class SchemaCompatibility(Base):
    """One row: the oldest program, identified by its newest migration, that works with this schema."""

    __tablename__ = "schema_compatibility"

    only_row: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    oldest_program: Mapped[str]

    __table_args__ = (CheckConstraint("only_row", "only_row"),)


class ApiSyncState(Base):
    """One row: the lease of the running sync, the result of the last one, and the validators for the next request."""

    __tablename__ = "api_sync_state"

    only_row: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    lease_token: Mapped[UUID | None]  # set: a sync is running, or its process died
    lease_owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    not_before: Mapped[datetime | None]  # the API asked for no request before this time
    rules: Mapped[
        str | None
    ]  # the rules under which the last answer was applied; changed rules need the whole answer again
    etag: Mapped[str | None]
    last_modified: Mapped[str | None]
    synced_at: Mapped[datetime | None]  # the last success, including one that found nothing new
    last: Mapped[dict[str, Any] | None]  # the report of the last sync
    applied: Mapped[dict[str, Any] | None]  # the report of the last sync that received a whole answer

    __table_args__ = (CheckConstraint("only_row", "only_row"),)


class ApiSyncItem(Base):
    """The values that the sync last wrote into a schedule; any difference is a local edit."""

    __tablename__ = "api_sync_items"

    schedule_id: Mapped[UUID] = mapped_column(primary_key=True)
    revision: Mapped[int] = mapped_column(BigInteger)  # of the schedule, as the sync left it
    digest: Mapped[str | None]  # of the item as the API sent it
    synced: Mapped[dict[str, Any] | None]  # the API's fields in canonical form; NULL: the API never provided any
    kept: Mapped[list[str]] = mapped_column(server_default=text("'{}'::text[]"))  # fields whose local edit is kept
    vanished_at: Mapped[datetime | None]  # no longer in the API
    disabled_revision: Mapped[int | None] = mapped_column(
        BigInteger
    )  # the sync disabled it, and no one enabled it since


class ScanRow(Base):
    """One finished cookie scan. No foreign keys: its execution, schedule and predecessor may have been deleted."""

    __tablename__ = "scans"

    scan_id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_UUID)
    execution_id: Mapped[UUID | None]
    schedule_id: Mapped[UUID | None]
    domain: Mapped[str] = mapped_column(String(255))
    engine: Mapped[str] = mapped_column(String(16))
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    previous_scan_id: Mapped[UUID | None]
    config: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    summary: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    changes: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"))

    __table_args__ = (
        CheckConstraint("engine IN ('http', 'browser')", "engine"),
        Index("scans_domain_idx", "domain", "engine", "finished_at"),
        Index("scans_finished_at_idx", "finished_at"),
        Index("scans_schedule_id_idx", "schedule_id", "finished_at"),
        Index("scans_execution_id_idx", "execution_id"),
    )


class ScanPageRow(Base):
    __tablename__ = "scan_pages"

    scan_id: Mapped[UUID] = mapped_column(ForeignKey("scans.scan_id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    url: Mapped[str]
    final_url: Mapped[str | None]
    depth: Mapped[int]
    attempts: Mapped[int]
    status_code: Mapped[int | None]
    error: Mapped[str | None]
    elapsed_ms: Mapped[int] = mapped_column(server_default=text("0"))
    notes: Mapped[list[str]] = mapped_column(server_default=text("'{}'::text[]"))


class ScanCookieRow(Base):
    """A cookie without its value, which may identify a person."""

    __tablename__ = "scan_cookies"

    scan_id: Mapped[UUID] = mapped_column(ForeignKey("scans.scan_id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str]
    domain: Mapped[str]
    path: Mapped[str]
    storage: Mapped[str] = mapped_column(String(16))
    host_only: Mapped[bool]
    expires_at: Mapped[datetime | None]
    lifetime_seconds: Mapped[int | None] = mapped_column(BigInteger)
    secure: Mapped[bool]
    http_only: Mapped[bool]
    same_site: Mapped[str | None] = mapped_column(String(16))
    party: Mapped[str] = mapped_column(String(8))
    consent: Mapped[str] = mapped_column(String(8))
    category: Mapped[str] = mapped_column(String(16))
    category_rule: Mapped[str | None]
    page_url: Mapped[str]
    request_url: Mapped[str]
    pages_seen: Mapped[int] = mapped_column(server_default=text("1"))


class ApiToken(Base):
    """A named token of the HTTP API. Only a digest of the secret is stored."""

    __tablename__ = "api_tokens"

    token_id: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(String(100))
    role: Mapped[str] = mapped_column(String(16))
    digest: Mapped[bytes]
    created_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    created_by: Mapped[str]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    revoked_by: Mapped[str | None]
    last_used_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint("role IN ('viewer', 'operator', 'admin')", "role"),
        CheckConstraint("octet_length(digest) = 32", "digest"),
        Index("api_tokens_name_key", "name", unique=True, postgresql_where=text("revoked_at IS NULL")),
    )


class IdempotencyKey(Base):
    """The response to a POST with an Idempotency-Key; without a status code the request is still in progress."""

    __tablename__ = "idempotency_keys"

    caller: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    digest: Mapped[bytes]
    started_at: Mapped[datetime] = mapped_column(server_default=CLOCK)
    status_code: Mapped[int | None]
    headers: Mapped[dict[str, Any] | None]
    body: Mapped[bytes | None]

    __table_args__ = (Index("idempotency_keys_started_at_idx", "started_at"),)
