"""How `manage.py dev` shows a snapshot: tables in a terminal, one line elsewhere."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from sqlalchemy import Row

from services.cli.dev_replicas import ReplicaProcess
from services.cli.dev_snapshot import Snapshot
from services.cli.output import moment, until
from services.cli.scans import changes_in_words
from services.scanning.report_words import counted
from services.short_ids import ID_PREFIX

STYLES = {"success": "green", "skipped": "yellow", "missed": "yellow", "abandoned": "magenta"}
STALE_SECONDS = 15.0
WORDS = 60
# What is there besides rows: five titles with headings, the scans, the gaps, and the lines around the view.
FIXED_LINES = 24
FEWEST_ROWS = 3


def rows_that_fit(height: int, replicas: int) -> int:
    """For each of the three lists, the last of which takes twice as many."""
    return max(FEWEST_ROWS, (height - FIXED_LINES - replicas) // 4)


def live_view(snapshot: Snapshot, members: Sequence[ReplicaProcess], rows: int, requests: int) -> RenderableType:
    return Group(
        _replicas(snapshot, members),
        Text(),
        _running(snapshot.running[:rows]),
        Text(),
        _upcoming(snapshot.upcoming[:rows]),
        Text(),
        *_scans(snapshot.scans[: max(1, rows // 2)]),
        _ended(snapshot.ended[: 2 * rows]),
        Text(),
        Text(counters(snapshot, requests)),
    )


def progress_line(snapshot: Snapshot, members: Sequence[ReplicaProcess], requests: int) -> str:
    up = sum(member.is_alive and _own_row(snapshot, member) is not None for member in members)
    following = next((f"; next: {row.label} {until(row.next_run)}" for row in snapshot.upcoming), "")
    newest = next((f"; scan of {row.domain}: {findings(row)}" for row in snapshot.scans), "")
    return f"{up} of {len(members)} replicas up; {counters(snapshot, requests)}{following}{newest}"


def counters(snapshot: Snapshot, requests: int) -> str:
    counts = snapshot.minute
    parts = [f"{counts.success} success", f"{counts.failed} failed", f"{counts.skipped} skipped"]
    if counts.abandoned:
        parts.append(f"{counts.abandoned} abandoned")
    lateness = f", median lateness {_seconds(counts.lateness_seconds)}" if counts.lateness_seconds is not None else ""
    return (
        f"running {len(snapshot.running)}; last minute: {', '.join(parts)}, {counts.retries} retries{lateness}; "
        f"demo site: {requests} requests"
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)  # a row is one line, or the view would not fit
    return table


def _replicas(snapshot: Snapshot, members: Sequence[ReplicaProcess]) -> Table:
    table = _table(
        "replicas", "name", "state", "heartbeat", "running", "schedules", "revision", "clock", "redis", "metrics"
    )
    for member in members:
        row = _own_row(snapshot, member)
        table.add_row(member.name, _state(member, row), *_facts(row), f"http://127.0.0.1:{member.metrics_port}/metrics")
    names = {member.name for member in members}
    for row in (row for name, row in snapshot.replicas.items() if name not in names):
        table.add_row(row.instance_id, _state(None, row), *_facts(row), "")
    return table


def _own_row(snapshot: Snapshot, member: ReplicaProcess) -> Row[Any] | None:
    """What this very process wrote, not its former self."""
    row = snapshot.replicas.get(member.name)
    return row if row and member.process and row.pid == member.process.pid else None


def _state(member: ReplicaProcess | None, row: Row[Any] | None) -> Text:
    if member is not None and not member.is_alive:
        return Text("died, is started again", "red")
    if row is None:
        return Text("starting", "yellow")
    if row.heartbeat_seconds > STALE_SECONDS:
        return Text("silent", "red")
    up = "up" if member else "up, started elsewhere"
    return Text(up, "green") if row.claiming else Text("does not claim", "red")


def _facts(row: Row[Any] | None) -> list[str | Text]:
    if row is None:
        return ["-"] * 6
    redis = Text("degraded", "red") if row.redis_degraded else Text("ok", "green")
    heartbeat, skew = f"{max(0.0, row.heartbeat_seconds):.0f} s ago", f"{row.clock_skew_seconds * 1000:+.0f} ms"
    return [heartbeat, str(row.running), str(row.schedules), str(row.revision), skew, redis]


def _running(rows: Sequence[Row[Any]]) -> Table:
    table = _table("runs now", "schedule", "replica", "attempt", "for")
    for row in rows:
        table.add_row(Text(row.label), row.instance_id, str(row.attempt), _seconds(row.seconds) or "claimed")
    return table


def _upcoming(rows: Sequence[Row[Any]]) -> Table:
    table = _table("next fires", "schedule", "job", "when", "at")
    for row in rows:
        table.add_row(Text(row.label), row.job_type, until(row.next_run), moment(row.next_run, row.timezone))
    return table


def _ended(rows: Sequence[Row[Any]]) -> Table:
    table = _table("just ended", "at", "schedule", "status", "attempt", "took", "late", "replica", "")
    for row in rows:
        table.add_row(
            f"{row.completed_at:%H:%M:%S}",
            Text(row.label),
            Text(row.status, STYLES.get(row.status, "red")),
            str(row.attempt),
            _seconds(row.duration_seconds),
            _seconds(row.lateness_seconds),
            row.instance_id,
            Text(" ".join(row.words.split())[:WORDS]),
        )
    return table


def _scans(rows: Sequence[Row[Any]]) -> list[RenderableType]:
    """Nothing where nobody scans."""
    table = _table("newest scans (manage.py scans export ID report.html)", "at", "id", "domain", "engine", "found")
    for row in rows:
        scan_id = str(row.scan_id)[:ID_PREFIX]
        table.add_row(f"{row.finished_at:%H:%M:%S}", scan_id, Text(row.domain), row.engine, findings(row))
    return [table, Text()] if rows else []


def findings(row: Row[Any]) -> str:
    """`6 cookies, 6 before consent; 1 new, 1 gone`"""
    summary = row.summary
    before = summary.get("consent", {}).get("before", 0)
    changes = changes_in_words(summary, first=row.previous_scan_id is None)
    return f"{counted(summary.get('cookies', 0), 'cookie')}, {before} before consent; {changes}"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{max(0.0, seconds) * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
