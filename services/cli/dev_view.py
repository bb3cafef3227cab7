"""The view of `manage.py dev`: tables in a terminal, one line elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from sqlalchemy import Row

from services.cli.dev_replicas import ReplicaProcess
from services.cli.dev_snapshot import Snapshot
from services.cli.output import moment, until
from services.cli.scans import changes_in_words
from services.wording.counts import counted
from services.wording.durations import duration
from services.wording.short_ids import ID_PREFIX

STYLES = {"success": "green", "skipped": "yellow", "missed": "yellow", "abandoned": "magenta"}
STALE_SECONDS = 15.0
WORDS = 60
LABEL = 24  # characters of a schedule's name in a narrow terminal
WIDE, TALL = 120, 36  # terminals from this size on get more columns, and blank lines between the lists
FIXED_LINES = 8  # the first line, the counters, a heading for each of five lists, and the line of the cursor


@dataclass(frozen=True, slots=True)
class Room:
    """Lines per list, so that all lists fit the terminal."""

    width: int
    height: int
    replicas: int
    scans: int

    @classmethod
    def of(cls, width: int, height: int, replicas: int, scans: int) -> "Room":
        most_replicas, most_scans = max(3, (height - FIXED_LINES) // 3), 3 if height >= TALL else 1
        return cls(width, height, min(replicas, most_replicas), min(scans, most_scans))

    @property
    def is_wide(self) -> bool:
        return self.width >= WIDE

    @property
    def gap(self) -> list[RenderableType]:
        return [Text()] if self.height >= TALL else []

    @property
    def running(self) -> int:
        return max(1, self._left // 5)

    @property
    def upcoming(self) -> int:
        return max(1, self._left // 4)

    @property
    def ended(self) -> int:
        return max(1, self._left - self.running - self.upcoming)

    @property
    def _left(self) -> int:
        return self.height - FIXED_LINES - self.replicas - self.scans - 6 * len(self.gap)


def live_view(
    snapshot: Snapshot,
    members: Sequence[ReplicaProcess],
    way_in: str,
    *,
    width: int,
    height: int,
) -> RenderableType:
    """The first line has the dashboard's address and its token."""
    seen = len({*snapshot.replicas, *(member.name for member in members)}) + len(snapshot.workers)
    room = Room.of(width, height, seen, len(snapshot.scans))
    return Group(
        Text(way_in, "bold", no_wrap=True),
        *room.gap,
        _replicas(snapshot, members, room),
        *room.gap,
        _running(snapshot.running[: room.running]),
        *room.gap,
        _upcoming(snapshot.upcoming[: room.upcoming]),
        *room.gap,
        *_scans(snapshot.scans[: room.scans], room),
        _ended(snapshot.ended[: room.ended], room),
        *room.gap,
        Text(counters(snapshot), no_wrap=True, overflow="ellipsis"),
    )


def progress_line(snapshot: Snapshot, members: Sequence[ReplicaProcess], requests: int) -> str:
    up = sum(member.is_alive and _own_row(snapshot, member) is not None for member in members)
    following = next((f"; next: {row.label} {until(row.next_run)}" for row in snapshot.upcoming), "")
    newest = next((f"; scan of {row.domain}: {findings(row)}" for row in snapshot.scans), "")
    team = f"{up} of {len(members)} replicas up{workers(snapshot)}"
    return f"{team}; {counters(snapshot)}; site: {requests}{following}{newest}"


def counters(snapshot: Snapshot) -> str:
    """Counts of the last minute, short enough for a narrow terminal."""
    counts = snapshot.minute
    parts = [f"{counts.success} success", f"{counts.failed} failed", f"{counts.skipped} skipped"]
    if counts.abandoned:
        parts.append(f"{counts.abandoned} abandoned")
    parts.append(f"{counts.retries} retries")
    if counts.lateness_seconds is not None:
        parts.append(f"{_took(counts.lateness_seconds)} late")
    return f"{len(snapshot.running)} running; last minute: {', '.join(parts)}"


def workers(snapshot: Snapshot) -> str:
    """`; 2 workers serve scan, 1 of 4 places busy`, and nothing without a fleet."""
    if not snapshot.workers:
        return ""
    queues = ", ".join(dict.fromkeys(row.queues for row in snapshot.workers))
    serving = "1 worker serves" if len(snapshot.workers) == 1 else f"{len(snapshot.workers)} workers serve"
    busy, places = (sum(getattr(row, name) for row in snapshot.workers) for name in ("running", "places"))
    return f"; {serving} {queues}, {busy} of {places} places busy"


def _table(title: str, *columns: str, last: str | None = None) -> Table:
    """The title is the heading of the first column; the column `last` takes the rest of the line."""
    table = Table(header_style="dim", box=None, pad_edge=False, expand=last is not None)
    table.add_column(Text(title, "bold"), no_wrap=True, max_width=LABEL)  # one line per row
    for column in columns:
        table.add_column(column, no_wrap=True)
    if last is not None:
        table.add_column(last, no_wrap=True, overflow="ellipsis", ratio=1)
    return table


def _replicas(snapshot: Snapshot, members: Sequence[ReplicaProcess], room: Room) -> Table:
    more = ["revision", "clock", "metrics"] if room.is_wide else []
    table = _table("replica", "state", "heartbeat", "running", "schedules", "redis", *more)
    rows = []
    for member in members:
        row = _own_row(snapshot, member)
        metrics = f"http://127.0.0.1:{member.metrics_port}/metrics"
        rows.append([member.name, _state(member, row), *_facts(row, metrics)])
    names = {member.name for member in members}
    for row in (row for name, row in snapshot.replicas.items() if name not in names):
        rows.append([row.instance_id, _state(None, row), *_facts(row, "")])
    for worker in snapshot.workers:
        heartbeat, busy = f"{max(0.0, worker.heartbeat_seconds):.0f} s ago", f"{worker.running} of {worker.places}"
        rows.append([worker.name, Text(f"serves {worker.queues}", "green"), heartbeat, busy, *["-"] * 5])
    for cells in rows[: room.replicas]:
        table.add_row(*cells[: 6 + len(more)])
    return table


def _own_row(snapshot: Snapshot, member: ReplicaProcess) -> Row[Any] | None:
    """The row of this process, not of its predecessor with the same name."""
    row = snapshot.replicas.get(member.name)
    return row if row and member.process and row.pid == member.process.pid else None


def _state(member: ReplicaProcess | None, row: Row[Any] | None) -> Text:
    if member is not None and not member.is_alive:
        return Text("died, restarting", "red")
    if row is None:
        return Text("starting", "yellow")
    if row.heartbeat_seconds > STALE_SECONDS:
        return Text("silent", "red")
    up = "up" if member else "up, started elsewhere"
    return Text(up, "green") if row.claiming else Text("not claiming", "red")


def _facts(row: Row[Any] | None, metrics: str) -> list[str | Text]:
    if row is None:
        return [*["-"] * 6, metrics]
    redis = Text("degraded", "red") if row.redis_degraded else Text("ok", "green")
    heartbeat, skew = f"{max(0.0, row.heartbeat_seconds):.0f} s ago", f"{row.clock_skew_seconds * 1000:+.0f} ms"
    return [heartbeat, str(row.running), str(row.schedules), redis, str(row.revision), skew, metrics]


def _running(rows: Sequence[Row[Any]]) -> Table:
    table = _table("running", "replica", "attempt", "for")
    for row in rows:
        table.add_row(Text(row.label), row.instance_id, str(row.attempt), _took(row.seconds) or "claimed")
    return table


def _upcoming(rows: Sequence[Row[Any]]) -> Table:
    table = _table("next fires", "job", "when", "at")
    for row in rows:
        table.add_row(Text(row.label), row.job_type, until(row.next_run), moment(row.next_run, row.timezone))
    return table


def _ended(rows: Sequence[Row[Any]], room: Room) -> Table:
    more = ["attempt", "replica"] if room.is_wide else []
    table = _table("just ended", "at", "status", "took", "late", *more, last="")
    for row in rows:
        table.add_row(
            Text(row.label),
            f"{row.completed_at:%H:%M:%S}",
            Text(row.status, STYLES.get(row.status, "red")),
            _took(row.duration_seconds),
            _took(row.lateness_seconds),
            *([str(row.attempt), row.instance_id] if room.is_wide else []),
            Text(" ".join(row.words.split())[:WORDS]),
        )
    return table


def _scans(rows: Sequence[Row[Any]], room: Room) -> list[RenderableType]:
    """Empty without scans."""
    table = _table("newest scans", "at", "id", "engine", last="found (manage.py scans export ID report.html)")
    for row in rows:
        scan_id = str(row.scan_id)[:ID_PREFIX]
        table.add_row(Text(row.domain), f"{row.finished_at:%H:%M:%S}", scan_id, row.engine, findings(row))
    return [table, *room.gap] if rows else []


def findings(row: Row[Any]) -> str:
    """`6 cookies, 6 before consent; 1 new, 1 gone`"""
    summary = row.summary
    before = summary.get("consent", {}).get("before", 0)
    changes = changes_in_words(summary, first=row.previous_scan_id is None)
    return f"{counted(summary.get('cookies', 0), 'cookie')}, {before} before consent; {changes}"


def _took(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)
