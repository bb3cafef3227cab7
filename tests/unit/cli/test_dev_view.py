"""The live view of `make run` in terminals of several sizes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from rich.console import Console

from services.cli.dev_replicas import ReplicaProcess
from services.cli.dev_snapshot import Snapshot
from services.cli.dev_view import live_view, progress_line

NOW = datetime.now(UTC)
WAY_IN = f"http://127.0.0.1:8000 token once_{'x' * 43}"


def row(**facts: Any) -> Any:
    return SimpleNamespace(**facts)


def busy_snapshot(replicas: int) -> Snapshot:
    """More of everything than fits."""
    summary = {"cookies": 6, "consent": {"before": 6}, "changes": {"added": 1, "removed": 1, "changed": 0}}
    return Snapshot(
        replicas={
            f"replica-{number}": row(
                instance_id=f"replica-{number}", pid=0, heartbeat_seconds=1.0, claiming=True, running=2, schedules=13,
                revision=1234, clock_skew_seconds=0.001, redis_degraded=False,
            )
            for number in range(1, replicas + 1)
        },
        running=[row(label="long export", instance_id="replica-1", attempt=1, seconds=3.2) for _ in range(40)],
        ended=[
            row(
                label="shop scan with a browser and more words", status="failed", completed_at=NOW, attempt=2,
                duration_seconds=12.5, lateness_seconds=0.012, instance_id="replica-1",
                words="GET http://127.0.0.1:34567/flaky answered 503, which may be over soon",
            )
            for _ in range(40)
        ],
        upcoming=[
            row(
                label="nightly report", job_type="http_request", timezone="Europe/Berlin",
                next_run=NOW + timedelta(hours=3),
            )
            for _ in range(40)
        ],
        scans=[
            row(
                scan_id=uuid4(), domain="shop.example", engine="http", finished_at=NOW, summary=summary,
                previous_scan_id=None,
            )
            for _ in range(3)
        ],
        minute=row(success=120, failed=11, skipped=13, abandoned=2, retries=11, lateness_seconds=0.012),
    )  # fmt: skip


@pytest.mark.parametrize(("width", "height", "replicas"), [(80, 24, 3), (80, 24, 20), (120, 40, 3), (200, 60, 5)])
def test_the_view_fits_the_terminal_with_address_and_token_in_its_first_line(
    width: int, height: int, replicas: int
) -> None:
    members = [ReplicaProcess(f"replica-{number}", 9107 + number, Path()) for number in range(1, replicas + 1)]
    screen = Console(width=width, height=height, force_terminal=True, color_system=None)
    with screen.capture() as shown:
        screen.print(live_view(busy_snapshot(replicas), members, WAY_IN, width=width, height=height))
    lines = shown.get().splitlines()
    assert lines[0].rstrip() == WAY_IN
    assert height - 4 <= len(lines) < height
    assert max(map(len, lines)) <= width
    for heading in ("replica ", "running ", "next fires", "newest scans", "just ended"):
        assert any(line.startswith(heading) for line in lines), heading
    assert "120 success, 11 failed" in lines[-1]


def test_a_narrow_terminal_still_says_why_something_failed() -> None:
    screen = Console(width=80, height=24, force_terminal=True, color_system=None)
    with screen.capture() as shown:
        screen.print(live_view(busy_snapshot(3), [], WAY_IN, width=80, height=24))
    assert "failed  12 s  12 ms  GET http" in shown.get()


def test_workers_of_a_fleet_are_shown_beside_the_replicas() -> None:
    workers = [
        row(name=f"worker-{number}", queues="scan", places=2, running=number - 1, heartbeat_seconds=1.0)
        for number in (1, 2)
    ]
    snapshot = replace(busy_snapshot(1), workers=workers)
    assert "; 2 workers serve scan, 1 of 4 places busy; " in progress_line(snapshot, [], 0)
    screen = Console(width=80, height=24, force_terminal=True, color_system=None)
    with screen.capture() as shown:
        screen.print(live_view(snapshot, [], WAY_IN, width=80, height=24))
    lines = [line.split() for line in shown.get().splitlines() if line.startswith("worker-")]
    assert lines == [
        ["worker-1", "serves", "scan", "1", "s", "ago", "0", "of", "2", "-", "-"],
        ["worker-2", "serves", "scan", "1", "s", "ago", "1", "of", "2", "-", "-"],
    ]
