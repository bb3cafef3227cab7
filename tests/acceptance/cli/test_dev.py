"""`manage.py dev` as somebody who tries the project meets it: everything starts, works, and ends."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg2
import pytest
import requests

from config import PROJECT_ROOT
from services.embedded import EmbeddedServers, stop_servers
from tests.support.waiting import eventually


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "embedded"
    stop_servers(tmp_path / "embedded")


def start(directory: Path, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "manage.py", "dev", *options],
        cwd=PROJECT_ROOT,
        env={"PATH": os.defpath, "ENV_FILE": "", "EMBEDDED_DIR": str(directory), "SCAN_BROWSER": "none"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def replicas(directory: Path) -> set[int]:
    """The process ids of this test's replicas: those of other runs on this machine have another directory."""
    return processes(directory, b"services/enhanced_scheduler.py")


def processes(directory: Path, command: bytes) -> set[int]:
    return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_ours(path, directory, command)}


def _is_ours(process: Path, directory: Path, command: bytes) -> bool:
    with suppress(OSError):  # it is gone, or another user's
        ours = f"EMBEDDED_DIR={directory}".encode() in (process / "environ").read_bytes().split(b"\0")
        return ours and command in (process / "cmdline").read_bytes()
    return False


def query(directory: Path, sql: str) -> list[tuple[Any, ...]]:
    with EmbeddedServers(directory) as servers:
        connection = psycopg2.connect(servers.addresses.database_url)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        finally:
            connection.close()


def test_dev_runs_the_demo_schedules_and_leaves_nothing_behind(directory: Path) -> None:
    process = start(directory, "--seconds", "15", "--replicas", "2")
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    assert "2 of 2 replicas up" in output
    assert "all replicas have stopped" in output
    assert not replicas(directory)
    statuses = dict(query(directory, "SELECT status, count(*) FROM job_executions GROUP BY status"))
    assert statuses["success"] >= 2, output
    assert not {"claimed", "running", "abandoned"} & set(statuses)
    assert query(directory, "SELECT count(*) FROM scheduler_instances") == [(0,)]


def test_dev_shows_scans_with_findings_and_what_changed_between_two_of_them(directory: Path) -> None:
    process = start(directory, "--replicas", "1")
    with_changes = "SELECT count(*) FROM scans WHERE changes <> '[]' AND previous_scan_id IS NOT NULL"
    eventually(lambda: (directory / "logs" / "replica-1.log").exists(), 60)
    eventually(lambda: query(directory, with_changes) != [(0,)], 120)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    assert "scans run without a browser: there is no browser" in output
    ((summary,),) = query(directory, "SELECT summary FROM scans ORDER BY finished_at LIMIT 1")
    assert (summary["parties"]["first"] > 2, summary["parties"]["third"]) == (True, 1)
    assert "scan of shop.example: " in output


def test_dev_says_where_the_dashboard_is_and_how_to_log_in(directory: Path) -> None:
    process = start(directory, "--replicas", "1")
    assert process.stdout is not None
    said = ""
    while "log in with" not in said:
        line = process.stdout.readline()
        said += line
        assert line, said
        assert "there is no dashboard" not in line
    address, token = re.findall(r"dashboard: (\S+)|log in with (\S+)", said)
    me = requests.get(f"{address[0]}/api/v3/schedules", headers={"Authorization": f"Bearer {token[1]}"}, timeout=30)
    assert me.status_code == 200
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=180)
    assert not processes(directory, b"manage.py\0web")


def test_a_replica_that_dies_is_started_again_and_a_kill_drains(directory: Path) -> None:
    process = start(directory, "--replicas", "1")
    (first,) = eventually(lambda: replicas(directory), 60)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: replicas(directory) - {first}, 15)
    eventually(lambda: "event=started" in (directory / "logs" / "replica-1.log").read_text(), 30)
    refused = start(directory)
    assert "`manage.py dev` is already running" in refused.communicate(timeout=180)[0]
    assert refused.returncode == 1
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    assert "replica-1 was killed by SIGKILL; restart in 2 s" in output
    assert not replicas(directory)


def test_replicas_end_with_a_dev_that_was_killed(directory: Path) -> None:
    process = start(directory, "--replicas", "1")
    eventually(lambda: replicas(directory), 60)
    eventually(lambda: "event=started" in (directory / "logs" / "replica-1.log").read_text(), 30)
    process.kill()
    process.communicate(timeout=180)
    eventually(lambda: not replicas(directory), 30)


def test_dev_shows_contacts_at_the_end_of_the_pipeline(directory: Path) -> None:
    process = start(directory, "--replicas", "2")
    eventually(lambda: (directory / "logs" / "replica-1.log").exists(), 60)
    eventually(lambda: query(directory, "SELECT count(*) FROM contacts") == [(7,)], 120, 1.0)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "6 places of the demo directory are queued for their deep scan" in output
