"""`manage.py doctor`: checks servers, versions, schema, clocks, replicas, schedules and settings."""

import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from textwrap import shorten

import typer
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from config import get_settings, unknown_variables
from database.connection import get_db_connection
from enhanced_scheduler.extras import how_to_install, is_installed
from run_migrations import schema_state
from services.cli.output import FAILED, AsJson, console, print_json
from services.errors import ConfigurationError, SchedulerError, Unavailable
from services.fleet import messages_for
from services.insight.limits import STOPPED_WORDS, LimitUses
from services.insight.replicas import WorkerRecord, list_replicas
from services.insight.unhandled_jobs import unhandled_jobs, unmet_needs
from services.jobs import default_registry
from services.jobs.users import load_users_jobs
from services.notifications.channel_rows import MOST_CHANNELS, ChannelKind, Channels
from services.queues.former_variables import former_variable_warnings
from services.redis_client import get_redis_client
from services.scanning.cookies.categories import CategoryRules
from services.scanning.engines.browser.process import find_browser
from services.scanning.engines.browser_engine import browser_engine_from
from services.triggers import tzdata_version
from services.wording.counts import counted
from services.wording.refusals import refusal

if is_installed("workflows"):
    import services.workflows  # noqa: F401 - registers the queues

OLDEST_POSTGRES, OLDEST_REDIS = 13, (6, 2)
REPLICA = "start one: python services/enhanced_scheduler.py"
NAMED = 3
LIST_PARKED = "list them: python manage.py schedule list --status invalid; fix one: schedule edit REF --when …"
COUNTS = """SELECT count(*), count(*) FILTER (WHERE enabled), count(*) FILTER (WHERE invalid_reason IS NOT NULL)
            FROM schedules"""
PARKED = """SELECT coalesce(name, domain) AS label, invalid_reason FROM schedules
            WHERE invalid_reason IS NOT NULL ORDER BY updated_at DESC LIMIT :limit"""


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    verdict: Verdict
    fact: str
    way_out: str = ""


def doctor(as_json: AsJson = False) -> None:
    """Check servers, versions, schema, clocks, replicas, schedules and settings, and say how to fix what is wrong.

    Exit code 0 when everything is in order (warnings allowed), 1 otherwise.

    Examples:

      manage.py doctor

      manage.py doctor --json
    """
    findings = list(_safely(_settings))
    if all(finding.verdict is not Verdict.FAILED for finding in findings):  # without settings no check can run
        findings += [finding for check in CHECKS for finding in _safely(check)]
    if as_json:
        print_json(findings)
    else:
        for finding in _each_cause_once(findings):
            _print(finding)
    if any(finding.verdict is Verdict.FAILED for finding in findings):
        raise typer.Exit(FAILED)


def _safely(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """A check that raises is a finding and does not stop the other checks."""
    try:
        yield from check()
    except Unavailable as error:
        yield Finding(_name(check), Verdict.FAILED, str(error), "start the server, or correct its address or password")
    except SchedulerError as error:
        yield Finding(_name(check), Verdict.FAILED, str(error))  # the message says what to do
    except DBAPIError as error:
        reason = refusal(error)
        if reason is None:
            raise
        yield Finding(_name(check), Verdict.FAILED, reason)


def _each_cause_once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """A server that is away fails most checks with the same words."""
    told: dict[tuple[str, str], str] = {}
    for finding in findings:
        cause = (finding.fact, finding.way_out)
        first = told.setdefault(cause, finding.check)
        repeated = finding.verdict is Verdict.FAILED and first != finding.check
        yield replace(finding, fact=f"the same as {first}", way_out="") if repeated else finding


def _name(check: Callable[[], Iterator[Finding]]) -> str:
    return check.__name__.strip("_").replace("_", " ")


def _settings() -> Iterator[Finding]:
    for name, meant in unknown_variables().items():
        hint = f"did you mean {meant}?" if meant else "remove it, or ignore this if another program reads it"
        yield Finding("settings", Verdict.WARNING, f"{name} in the .env file is not a setting of this project", hint)
    settings = get_settings()
    for warning in settings.warnings:
        yield Finding("settings", Verdict.WARNING, warning)
    kind = "given addresses" if settings.database_url else "embedded servers"
    yield Finding("settings", Verdict.OK, f"valid; {kind}; this process is {settings.instance_id}")


def _postgres() -> Iterator[Finding]:
    db = get_db_connection()
    with db.transaction() as connection:
        number, version = connection.execute(
            text("SELECT current_setting('server_version_num')::int, current_setting('server_version')")
        ).one()
    if number < OLDEST_POSTGRES * 10_000:
        yield Finding("postgres", Verdict.FAILED, f"version {version} at {db.where}", f"use {OLDEST_POSTGRES} or newer")
    else:
        yield Finding("postgres", Verdict.OK, f"version {version} at {db.where}")


def _schema() -> Iterator[Finding]:
    state = schema_state(get_db_connection())
    if state.is_newer:
        fact = f"at revision {state.current}, newer than this program's {state.newest}, which works with it"
        yield Finding("schema", Verdict.WARNING, fact, "normal during an upgrade; finish it")
    elif state.is_current:
        yield Finding("schema", Verdict.OK, f"at revision {state.current}, the newest")
    else:
        fact = f"at revision {state.current or 'none'}, newest is {state.newest}"
        yield Finding("schema", Verdict.FAILED, fact, "run: python run_migrations.py")


def _redis() -> Iterator[Finding]:
    redis = get_redis_client()
    version = redis.version()
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        yield Finding("redis", Verdict.FAILED, f"version {version} at {redis.where}", "use 6.2 or newer")
    else:
        yield Finding("redis", Verdict.OK, f"version {version} at {redis.where}")


def _clocks() -> Iterator[Finding]:
    limit = get_settings().max_clock_skew_seconds
    for name, clock in (("Postgres", _postgres_clock), ("Redis", get_redis_client().time_seconds)):
        skew, uncertainty = _skew(clock)
        fact = f"this machine is {abs(skew) * 1000:.0f} ms {'ahead of' if skew > 0 else 'behind'} {name}"
        if abs(skew) - uncertainty > limit:
            way_out = f"run NTP on both machines; beyond {limit:g} s (MAX_CLOCK_SKEW_SECONDS) a replica stops claiming"
            yield Finding("clocks", Verdict.FAILED, fact, way_out)
        elif abs(skew) - uncertainty > limit / 5:
            yield Finding("clocks", Verdict.WARNING, fact, "run NTP on both machines")
        else:
            yield Finding("clocks", Verdict.OK, fact)


def _replicas() -> Iterator[Finding]:
    replicas = list_replicas(get_db_connection(), get_settings().heartbeat_timeout_seconds)
    live = replicas.live
    if not live:
        yield Finding("replicas", Verdict.WARNING, "none is live: nothing runs", REPLICA)
        return
    if stale := [replica.instance_id for replica in live if not replica.is_converged]:
        fact = f"{', '.join(stale)} had not applied the newest change at the last heartbeat"
        yield Finding(
            "replicas",
            Verdict.WARNING,
            fact,
            "run doctor again in a few seconds; if it persists, see the replica's log and /healthz",
        )
    if idle := [replica.instance_id for replica in live if not replica.claiming]:
        yield Finding("replicas", Verdict.WARNING, f"{', '.join(idle)}: claims nothing", "its /readyz says why")
    if degraded := [replica.instance_id for replica in live if replica.redis_degraded]:
        yield Finding("replicas", Verdict.WARNING, f"{', '.join(degraded)}: runs without Redis", "its log says why")
    if len(zones := {replica.tzdata for replica in live}) > 1:
        fact = f"tzdata differs: {', '.join(sorted(map(str, zones)))}"
        yield Finding("replicas", Verdict.WARNING, fact, "install the same requirements.txt everywhere")
    yield from _fleet(replicas.workers)
    for jobs in unhandled_jobs(get_db_connection(), get_settings().heartbeat_timeout_seconds):
        verdict = Verdict.WARNING if jobs.known_to else Verdict.FAILED
        way_out = "load the module that registers it on all replicas (JOB_MODULES), and restart them"
        yield Finding("jobs", verdict, f"job type {jobs.job_type!r}: {jobs.words}", way_out)
    for unmet in unmet_needs(get_db_connection(), get_settings().heartbeat_timeout_seconds):
        yield Finding(
            "jobs",
            Verdict.FAILED,
            unmet.words,
            f"give a replica what is missing: ABILITIES, QUEUES (for the label `browser`: {how_to_install('browser')})",
        )
    if not (stale or idle or degraded):
        yield Finding("replicas", Verdict.OK, f"{len(live)} live; all claim and have the newest change")


def _fleet(workers: list[WorkerRecord]) -> Iterator[Finding]:
    """Who serves each queue, how busy they are, and whether the broker can wake them."""
    queues = get_settings().fleet_queues
    for queue in sorted(queues | {queue for worker in workers for queue in worker.queues}):
        serving = [worker for worker in workers if queue in worker.queues]
        busy, places = sum(each.running for each in serving), sum(each.max_workers or 0 for each in serving)
        if serving:
            noun = "process" if len(serving) == 1 else "processes"
            yield Finding("fleet", Verdict.OK, f"{queue}: {busy} of {places} places busy in {len(serving)} {noun}")
        else:
            way_out = f"celery --app services.fleet.app worker --queues {queue}"
            yield Finding("fleet", Verdict.WARNING, f"{queue}: no worker is live; its executions wait", way_out)
    if queues:
        yield _broker(queues)


def _broker(queues: frozenset[str]) -> Finding:
    try:
        with closing(messages_for(get_settings())) as messages:
            lying = sum(messages.depth(queue) for queue in queues)
    except SchedulerError as error:
        return Finding("fleet", Verdict.FAILED, str(error), "start the broker, or correct CELERY_BROKER_URL")
    return Finding("fleet", Verdict.OK, f"the broker at {messages.where} answers; {lying:,} messages wait in it")


def _schedules() -> Iterator[Finding]:
    with get_db_connection().transaction() as connection:
        total, enabled, parked = connection.execute(text(COUNTS)).one()
        named = connection.execute(text(PARKED), {"limit": NAMED}).all()
    yield Finding("schedules", Verdict.OK, f"{enabled:,} of {total:,} enabled")
    if parked:
        names = "; ".join(f"{row.label} ({shorten(row.invalid_reason, 80, placeholder=' …')})" for row in named)
        more = f"; and {parked - len(named):,} more" if parked > len(named) else ""
        yield Finding("schedules", Verdict.WARNING, f"{parked:,} parked (invalid, not run): {names}{more}", LIST_PARKED)


def _limits() -> Iterator[Finding]:
    uses = LimitUses(get_db_connection())
    for stopped in uses.stopped(NAMED):
        way_out = f"manage.py limit edit {shlex.quote(stopped.name)} --max 1, when it shall go on"
        yield Finding("limits", Verdict.WARNING, f"{stopped.name} {STOPPED_WORDS}", way_out)
    for held in uses.held(limit=NAMED):
        way_out = f"see manage.py limit show {shlex.quote(held.limit or held.key)}; a fire waits for a day at most"
        yield Finding("limits", Verdict.WARNING, held.words, way_out)


def _notifications() -> Iterator[Finding]:
    channels = Channels(get_db_connection()).page(limit=MOST_CHANNELS).items
    failing = [channel for channel in channels if channel.state == "failing"]
    for channel in failing[:NAMED]:
        fact = f"channel {channel.name} is failing: {channel.last_error}; {channel.waiting_words} waiting"
        yield Finding("notifications", Verdict.WARNING, fact, f"try it: manage.py channel test {channel.name}")
    if not is_installed("apprise") and any(channel.kind == ChannelKind.APPRISE for channel in channels):
        fact = "a channel of kind apprise cannot send from here, because apprise is not installed"
        yield Finding("notifications", Verdict.WARNING, fact, how_to_install("apprise"))
    if channels and not failing:
        yield Finding("notifications", Verdict.OK, f"{counted(len(channels), 'channel')}, none of them failing")


def _queues() -> Iterator[Finding]:
    for warning in former_variable_warnings(get_db_connection(), get_settings()):
        yield Finding("queues", Verdict.WARNING, warning)


def _jobs() -> Iterator[Finding]:
    load_users_jobs(get_settings())
    yield Finding("jobs", Verdict.OK, f"known: {', '.join(sorted(default_registry.job_types()))}")
    if get_settings().celery_apps and not is_installed("celery"):
        apps = ", ".join(sorted(get_settings().celery_apps))
        fact = f"celery_task cannot run here because Celery is not installed (apps of the environment: {apps})"
        yield Finding("jobs", Verdict.WARNING, fact, how_to_install("celery"))


def _time_zones() -> Iterator[Finding]:
    yield Finding("time zones", Verdict.OK, f"tzdata {tzdata_version()} (must be the same on every replica)")


def _cookie_rules() -> Iterator[Finding]:
    rules = CategoryRules.load(get_settings().scan_cookie_rules_file).rules
    yield Finding("cookie rules", Verdict.OK, f"{len(rules)} rules for the purposes of cookies")


def _browser() -> Iterator[Finding]:
    named = get_settings().scan_browser
    try:
        browser_engine_from(get_settings()).close()
        yield Finding("browser", Verdict.OK, f"{find_browser(named)}, for scans with engine: browser")
    except ConfigurationError as error:
        verdict = Verdict.WARNING if named else Verdict.OK  # only browser scans need one
        yield Finding("browser", verdict, "none found; only scans with engine: browser need one", str(error))


CHECKS = (
    _postgres,
    _schema,
    _redis,
    _clocks,
    _replicas,
    _schedules,
    _limits,
    _notifications,
    _queues,
    _jobs,
    _time_zones,
    _cookie_rules,
    _browser,
)


def _postgres_clock() -> float:
    with get_db_connection().transaction() as connection:
        return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())


def _skew(clock: Callable[[], float]) -> tuple[float, float]:
    """Our clock minus theirs, and its uncertainty: half of the round trip."""
    clock()  # warm-up: the first call may have to connect
    before = time.time()
    theirs = clock()
    after = time.time()
    return (before + after) / 2 - theirs, (after - before) / 2


SIGN_COLUMNS, CHECK_COLUMNS = 6, len("notifications")  # the longest name


def _print(finding: Finding) -> None:
    sign, style = {
        Verdict.OK: ("ok  ", "green"),
        Verdict.WARNING: ("warn", "yellow"),
        Verdict.FAILED: ("FAIL", "red bold"),
    }[finding.verdict]
    console().print(sign, style=style, end="  ")
    console().print(f"{finding.check:<{CHECK_COLUMNS}} {finding.fact}")
    if finding.way_out:
        console().print(f"{'':{SIGN_COLUMNS + CHECK_COLUMNS + 1}}-> {finding.way_out}")
