"""`manage.py dev` (`make run`): servers, schema, a demo site, several replicas, and a live view of their work."""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from config import HOME, get_settings
from database.connection import DedicatedConnection, get_db_connection
from run_migrations import upgrade
from services.cli.demo.site import DemoSite
from services.cli.dev_demo import prepare_demo
from services.cli.dev_fleet import ENVIRONMENT as FLEET
from services.cli.dev_fleet import Workers, lead_scans
from services.cli.dev_pipeline import is_demo, pipeline_environment, prepare_pipeline
from services.cli.dev_replicas import Replicas
from services.cli.dev_snapshot import take_snapshot
from services.cli.dev_view import live_view, progress_line
from services.cli.dev_web import WebProcess
from services.cli.output import FAILED, console
from services.embedded.files import try_lock
from services.errors import ConfigurationError, Unavailable
from services.fleet import require_celery
from services.redis_client import get_redis_client
from services.schedule_repository import get_schedule_repository

REFRESHES_PER_LINE = 3  # without a terminal
DRAIN_SLACK_SECONDS = 15.0


def dev(
    replicas: Annotated[int, typer.Option(min=1, max=20, help="Number of replica processes.")] = 3,
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Stop after this many seconds; default: at Ctrl-C.")
    ] = None,
    fleet: Annotated[bool, typer.Option("--fleet", help="Run the demo's scans on two Celery workers.")] = False,
) -> None:
    """Start everything on this machine and show it at work; Ctrl-C drains the replicas and exits.

    With DATABASE_URL and REDIS_URL unset, Postgres and Redis come from wheels. An empty database gets demo schedules.
    Exit code 1 if a replica is not running at the end of --seconds.

    Examples:

      manage.py dev

      manage.py dev --replicas 5 --seconds 60

      manage.py dev --fleet
    """
    out, directory = console(), HOME / get_settings().embedded_dir / "logs"
    with _alone(directory), _signals_like_ctrl_c(), DemoSite() as site:
        _prepare(out, site, fleet=fleet)
        environment = {**_environment(site), **(FLEET if fleet else {})}
        team, web = Replicas(replicas, directory, environment), WebProcess(directory / "web.log", environment)
        workers = Workers(directory, environment)
        until = time.monotonic() + seconds if seconds else None
        connection = get_db_connection().dedicated()
        try:
            team.start()
            web.start()
            if fleet:
                workers.start()
            out.print(f"{replicas} replicas are starting; logs: {directory}; Ctrl-C stops them")
            _watch(_Scene(out, team, web, workers, site, connection), until)
        except KeyboardInterrupt:
            pass
        finally:
            all_ran = len(team.alive) == replicas
            web.stop()
            workers.stop()
            _drain(out, team)
            connection.close()
    if until is not None and not all_ran:
        raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True)
class _Scene:
    out: Console
    team: Replicas
    web: WebProcess
    workers: Workers
    site: DemoSite
    connection: DedicatedConnection


def _prepare(out: Console, site: DemoSite, *, fleet: bool) -> None:
    started = time.monotonic()
    with out.status("starting Postgres and Redis …"):
        applied = upgrade(get_db_connection())
        get_redis_client().version()
    repository = get_schedule_repository()
    if fleet:
        require_celery()
    for line in [*applied, *prepare_demo(repository, site.url), *lead_scans(repository, to_fleet=fleet)]:
        out.print(line)
    if is_demo(repository):
        for line in prepare_pipeline(get_db_connection(), repository, get_settings()):
            out.print(line)
    out.print(f"Postgres and Redis are up, the schema is current ({time.monotonic() - started:.1f} s)")


def _environment(site: DemoSite) -> dict[str, str]:
    """Jobs of the demo may call this machine: the demo site runs on it, and so does the third party of its shop."""
    allowed = ",".join(filter(None, [get_settings().fetch_allowed_networks, "127.0.0.1", "::1"]))
    pipeline = pipeline_environment(site.url) if is_demo(get_schedule_repository()) else {}
    return {"FETCH_ALLOWED_NETWORKS": allowed, **pipeline}


def _watch(scene: _Scene, until: float | None) -> None:
    if scene.out.is_terminal:
        with Live(console=scene.out, auto_refresh=False, vertical_overflow="crop") as live:
            for _ in _seconds(until):
                _say_what_happened(scene)
                live.update(_view(scene), refresh=True)
    else:
        for second in _seconds(until):
            _say_what_happened(scene)
            if second % REFRESHES_PER_LINE == 0:
                scene.out.print(f"{second:4} s  {_line(scene)}")


def _seconds(until: float | None) -> Iterator[int]:
    """0, 1, 2, … as they pass."""
    begun = time.monotonic()
    for number in count():
        yield number
        now = time.monotonic()
        if until is not None and now >= until:
            return
        next_at = max(begun + number + 1, now + 0.1)
        time.sleep((next_at if until is None else min(next_at, until)) - now)


def _say_what_happened(scene: _Scene) -> None:
    for line in [*scene.team.tend(), *scene.workers.news()]:
        scene.out.print(Text(line, "red"))
    for line in scene.web.news():
        scene.out.print(Text(line, "bold"))


def _view(scene: _Scene) -> RenderableType:
    try:
        snapshot = take_snapshot(scene.connection, scene.out.height)
    except Unavailable as error:
        return Text(str(error), "red")
    return live_view(
        snapshot,
        scene.team.members,
        scene.web.way_in,
        width=scene.out.width,
        height=scene.out.height,
    )


def _line(scene: _Scene) -> str:
    try:
        return progress_line(take_snapshot(scene.connection, 20), scene.team.members, scene.site.requests)
    except Unavailable as error:
        return str(error)


def _drain(out: Console, team: Replicas) -> None:
    patience = get_settings().shutdown_grace_seconds + DRAIN_SLACK_SECONDS
    out.print("waiting for the replicas to finish their jobs …")
    with out.status("draining …") as status:
        killed = team.drain(
            patience, lambda names: status.update(f"draining: {', '.join(names)} (Ctrl-C again kills them)")
        )
    out.print(
        f"killed: {', '.join(killed)}; not finished within {patience:g} s" if killed else "all replicas have stopped"
    )


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One `dev` per directory: two would give their replicas the same names and write the same logs."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory / "dev.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not try_lock(lock, fcntl.LOCK_EX):
            raise ConfigurationError(
                f"`manage.py dev` is already running in {directory.parent}; stop it, or set EMBEDDED_DIR"
            )
        yield
    finally:
        os.close(lock)


@contextmanager
def _signals_like_ctrl_c() -> Iterator[None]:
    """SIGHUP (a closed terminal) and SIGTERM drain the replicas, too."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
