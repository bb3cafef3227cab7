"""The files under deploy/: exactly those rights suffice, and each name in them exists."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import prometheus_client
import promql_parser
import psycopg2
import pytest
import yaml
from psycopg2.errors import InsufficientPrivilege
from sqlalchemy import make_url
from sqlalchemy.exc import ProgrammingError

from config import PROJECT_ROOT, knobs
from database.connection import DatabaseConnection
from run_migrations import upgrade
from services.distributed_lock import Answer, Coordinator, DistributedLock
from services.embedded.programs import find_binaries
from services.job_history import JobHistory
from services.redis_client import RedisClient
from services.schedule_repository import ScheduleRepository
from services.schedules.limits import Limits
from services.telemetry import metrics as metrics  # registers every collector
from tests.integration.test_redis_client import free_port, start
from tests.support.replicas import QUICK, Cluster
from tests.support.schedules import VALID
from tests.support.waiting import eventually

DEPLOY = PROJECT_ROOT / "deploy"
ALERTS = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((DEPLOY / "grafana/dashboards/scheduler.json").read_text())
COMPOSE = yaml.safe_load((PROJECT_ROOT / "docker-compose.yml").read_text())
OF_PROMETHEUS = {"up"}
OURS = ("migrate", "scheduler", "web")


# --- rights ---


@pytest.fixture
def roles(empty_database_url: str) -> Iterator[Callable[[str], str]]:
    """Runs roles.sql with names of the test's own; gives the URL of a database seen by one of its roles."""
    own = uuid4().hex[:8]
    sql = (DEPLOY / "postgres/roles.sql").read_text().replace("scheduler_", f"test_{own}_")
    with closing(psycopg2.connect(_plain(empty_database_url))) as admin:
        with admin, admin.cursor() as cursor:
            cursor.execute(sql)
        yield lambda name: make_url(empty_database_url).set(username=f"test_{own}_{name}").render_as_string(False)
        with admin, admin.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE %s", (f"%{own}%",)
            )
            for name in ("app", "owner"):
                cursor.execute(f"DROP OWNED BY test_{own}_{name} CASCADE; DROP ROLE test_{own}_{name}")


def _plain(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def test_a_replica_works_with_the_rights_of_roles_sql(
    roles: Callable[[str], str], servers: Any, tmp_path: Path
) -> None:
    owner, app = DatabaseConnection(roles("owner")), DatabaseConnection(roles("app"))
    upgrade(owner)
    cluster = Cluster(app, {**QUICK, "DATABASE_URL": roles("app"), "REDIS_URL": servers.redis_url}, tmp_path)
    try:
        cluster.start(1)
        cluster.run(
            """INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config)
               VALUES (gen_random_uuid(), 'job', 'noop', 'interval', '{"seconds": 1}')"""
        )
        eventually(lambda: cluster.rows("SELECT count(*) FROM job_executions WHERE status = 'success'")[0][0] >= 2, 30)
        ScheduleRepository(app).delete_schedule(cluster.rows("SELECT schedule_id FROM schedules")[0][0])
    finally:
        cluster.end()
        app.close()
        owner.close()


@pytest.mark.parametrize("statement", ["DROP TABLE job_executions", "ALTER TABLE schedules DISABLE TRIGGER USER"])
def test_the_application_role_cannot_change_tables(roles: Callable[[str], str], statement: str) -> None:
    owner = DatabaseConnection(roles("owner"))
    upgrade(owner)
    owner.close()
    with (
        closing(psycopg2.connect(_plain(roles("app")))) as connection,
        connection.cursor() as cursor,
        pytest.raises(InsufficientPrivilege),
    ):
        cursor.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO schedule_changes (revision, operation, changed_by) VALUES (1, 'update', 'somebody else')",
        "UPDATE schedule_changes SET changed_by = 'somebody else'",
        "INSERT INTO limit_changes (name, operation, changed_by) VALUES ('a', 'update', 'somebody else')",
        "UPDATE limit_changes SET changed_by = 'somebody else'",
    ],
)
def test_the_application_role_cannot_forge_history(roles: Callable[[str], str], statement: str) -> None:
    owner = DatabaseConnection(roles("owner"))
    upgrade(owner)
    owner.close()
    app = DatabaseConnection(roles("app"))
    try:
        schedule_id = ScheduleRepository(app).create_schedule(**VALID, actor="test")
        ScheduleRepository(app).delete_schedule(schedule_id, actor="test")
        Limits(app).add({"name": "a", "max_running": 1}, "test")
        with pytest.raises(ProgrammingError, match="permission denied"), app.transaction() as connection:
            connection.exec_driver_sql(statement)
        changes = ScheduleRepository(app).get_changes(schedule_id)
        assert [change.operation for change in changes] == ["delete", "insert"]
        assert JobHistory(app).cleanup_old_changes(2) == 0  # retention may delete; nothing is old yet
    finally:
        app.close()


@pytest.fixture
def restricted_redis(tmp_path: Path) -> Iterator[RedisClient]:
    port = free_port()
    rights = ["--aclfile", str(DEPLOY / "redis/users.acl")]
    process: subprocess.Popen[bytes] = start(
        "--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path), "--save", "", *rights
    )
    client = RedisClient(f"redis://scheduler:change-this-password@127.0.0.1:{port}/0")
    eventually(client.ping)
    yield client
    client.close()
    process.terminate()
    process.wait(10)


def test_the_rights_of_users_acl_suffice_for_marks_leases_locks_and_the_doctor(restricted_redis: RedisClient) -> None:
    coordinator = Coordinator(restricted_redis, owner="me", lease_seconds=60, mark_seconds=60)
    schedule_id = uuid4()
    assert coordinator.mark_fires([(schedule_id, datetime.now(UTC))]) == [Answer.WON]
    leases: dict[UUID, int] = {schedule_id: 1}
    coordinator.take_leases(leases)
    coordinator.renew()
    coordinator.release_leases(leases)
    coordinator.check()
    assert coordinator.stats().failures == 0
    lock = DistributedLock(restricted_redis, "me")
    assert lock.acquire("schedule:x")
    assert lock.extend("schedule:x")
    assert lock.release("schedule:x")
    assert restricted_redis.version()
    assert restricted_redis.time_seconds()


@pytest.mark.parametrize("command", [("FLUSHALL",), ("GET", "somebody-elses"), ("CONFIG", "GET", "*"), ("KEYS", "*")])
def test_the_user_of_users_acl_can_do_nothing_else(restricted_redis: RedisClient, command: tuple[str, ...]) -> None:
    with pytest.raises(Exception, match=r"(?i)no permissions"):
        restricted_redis.commands.execute_command(*command)  # type: ignore[no-untyped-call]


# --- names ---


def _metrics_in(expression: str) -> set[str]:
    """Every metric that an expression asks for; raises when it is not PromQL."""
    promql_parser.parse(expression)
    words = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(by|without)\s*\([^)]*\)', " ", expression)
    return {
        word
        for word in re.findall(r"[a-z_][a-z0-9_]*", words)
        if word.startswith(("scheduler_", "process_")) or word == "up"
    }


def _exposed() -> set[str]:
    names = set(OF_PROMETHEUS)
    for family in prometheus_client.REGISTRY.collect():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        names |= {family.name + suffix for suffix in suffixes}
    return names


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_metrics_that_exist_and_has_a_page_in_the_runbook(rule: dict[str, Any]) -> None:
    asked = _metrics_in(rule["expr"])
    assert asked
    assert asked <= _exposed()
    runbook = (PROJECT_ROOT / "docs/operations.md").read_text()
    assert f"### {rule['alert']}\n" in runbook
    assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"


@pytest.mark.parametrize("panel", DASHBOARD["panels"], ids=lambda panel: str(panel["title"]))
def test_a_panel_asks_for_metrics_that_exist(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        asked = _metrics_in(target["expr"].replace("$__rate_interval", "5m"))
        assert asked
        assert asked <= _exposed()


def test_a_metric_that_does_not_exist_would_be_noticed() -> None:
    assert not _metrics_in("rate(scheduler_made_up_total[5m])") <= _exposed()


@pytest.mark.parametrize("service", ["migrate", "scheduler", "web"])
def test_compose_sets_only_variables_that_are_settings(service: str) -> None:
    given = COMPOSE["services"][service]["environment"]
    assert given.keys() <= knobs().keys()


@pytest.mark.parametrize("service", ["scheduler", "web"])
def test_in_compose_users_can_set_what_is_theirs_alone(service: str) -> None:
    """What the API and the handlers need, and in a file of its own every other setting and the jobs' secrets."""
    given = COMPOSE["services"][service]
    assert {"API_URL", "API_TOKEN", "JOB_MODULES"} <= given["environment"].keys()
    assert given["env_file"] == [{"path": "scheduler.env", "required": False}]
    assert ("WEB_TRUSTED_PROXIES" in given["environment"]) == (service == "web")


def test_in_compose_each_program_has_the_rights_that_it_needs() -> None:
    """Only the migrations change tables, only web checks tokens, and Postgres makes the roles before they log in."""
    services = COMPOSE["services"]
    logins = {name: services[name]["environment"]["DATABASE_URL"].split("/")[2] for name in OURS}
    assert {name: login.partition(":")[0] for name, login in logins.items()} == {
        "migrate": "scheduler_owner",
        "scheduler": "scheduler_app",
        "web": "scheduler_app",
    }
    assert [name for name in OURS if "JWT_SECRET_KEY" in services[name]["environment"]] == ["web"]
    assert all(
        services[name]["environment"]["REDIS_URL"].startswith("redis://scheduler:") for name in ("scheduler", "web")
    )
    first, second = (mount.split(":") for mount in services["postgres"]["volumes"][1:])
    assert [(PROJECT_ROOT / file).is_file() for file, *_ in (first, second)] == [True, True]
    assert first[0].endswith("roles.sql")
    assert first[1] < second[1]  # the entry point runs them in the order of their names


def test_in_compose_nothing_may_take_all_of_the_memory() -> None:
    assert [name for name, service in COMPOSE["services"].items() if "mem_limit" not in service] == []


def test_the_passwords_of_compose_are_those_of_the_roles() -> None:
    """\\getenv is psql's; the names are those that the container has."""
    asked = re.findall(r"^\\getenv (\w+) (\w+)$", (DEPLOY / "postgres/passwords.sql").read_text(), re.MULTILINE)
    assert asked == [("owner", "POSTGRES_OWNER_PASSWORD"), ("app", "POSTGRES_APP_PASSWORD")]
    given = COMPOSE["services"]["postgres"]["environment"]
    for role, variable in asked:
        assert (
            given[variable]
            in COMPOSE["services"]["migrate" if role == "owner" else "web"]["environment"]["DATABASE_URL"]
        )


def test_redis_of_compose_knows_the_user_of_users_acl_with_the_password_of_the_environment(tmp_path: Path) -> None:
    port, password = free_port(), "p/a&s'swörd"
    shell = COMPOSE["services"]["redis"]["command"][2].replace("$$", "$")
    shell = shell.replace("/tmp/users.acl", f"{tmp_path}/users.acl")
    shell = shell.replace("/etc/scheduler/users.acl", str(DEPLOY / "redis/users.acl"))
    shell = shell.replace("redis-server", f"{find_binaries().redis} --port {port} --bind 127.0.0.1 --dir {tmp_path}", 1)
    process = subprocess.Popen(["sh", "-c", shell], env={"PATH": os.defpath, "REDIS_PASSWORD": password})
    client = RedisClient(f"redis://scheduler:{quote(password, safe='')}@127.0.0.1:{port}/0")
    stranger = RedisClient(f"redis://scheduler:change-this-password@127.0.0.1:{port}/0")
    try:
        eventually(client.ping)
        assert not stranger.ping()
    finally:
        client.close()
        stranger.close()
        process.terminate()
        process.wait(10)


def test_alerts_reach_an_alertmanager_that_has_somebody_to_tell() -> None:
    prometheus = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    (manager,) = prometheus["alerting"]["alertmanagers"]
    ((host, port),) = [target.split(":") for group in manager["static_configs"] for target in group["targets"]]
    assert COMPOSE["services"][host]["ports"] == [f"127.0.0.1:{port}:{port}"]
    configuration = yaml.safe_load((DEPLOY / "alertmanager/alertmanager.yml").read_text())
    routes = [configuration["route"], *configuration["route"]["routes"]]
    assert {route["receiver"] for route in routes} <= {receiver["name"] for receiver in configuration["receivers"]}
    named = re.findall(r'alertname="(\w+)"', str(configuration["inhibit_rules"]))
    assert set(named) <= {rule["alert"] for rule in ALERTS}


@pytest.mark.parametrize("url", ["https://hooks.example/T/s$cret&x='1'", "none"])
def test_alertmanager_posts_to_the_address_of_the_environment(tmp_path: Path, url: str) -> None:
    """A secret in the address is in no argument and in no log."""
    service = COMPOSE["services"]["alertmanager"]
    shell = service["command"][0].replace("$$", "$").replace("/tmp/", f"{tmp_path}/")
    assert "exec /bin/alertmanager" in shell
    shell = shell.replace("exec /bin/alertmanager", "exec echo")
    shell = shell.replace("/etc/alertmanager", str(DEPLOY / "alertmanager"))
    environment = {"PATH": os.defpath, "ALERT_WEBHOOK_URL": url}
    done = subprocess.run([*service["entrypoint"], shell], env=environment, capture_output=True, text=True, check=True)
    (receiver,) = yaml.safe_load((tmp_path / "alertmanager.yml").read_text())["receivers"]
    if url == "none":
        assert receiver == {"name": "operators"}
        assert "nobody is told" in done.stderr
    else:
        assert receiver["webhook_configs"] == [{"url_file": "/tmp/webhook.url", "send_resolved": True}]
        assert (tmp_path / "webhook.url").read_text() == url
        assert url not in done.stdout + done.stderr


def test_compose_asks_for_each_variable_that_its_example_names() -> None:
    text = (PROJECT_ROOT / "docker-compose.yml").read_text()
    example = (DEPLOY / "compose.env.example").read_text()
    asked = set(re.findall(r"\$\{([A-Z_]+)", text))
    assert asked == set(re.findall(r"^(?:# )?([A-Z_]+)=", example, re.MULTILINE))


def test_the_image_contains_every_package_that_the_programs_import() -> None:
    copied = set(re.findall(r"^COPY .*?(\w+) \./\w+$", (PROJECT_ROOT / "Dockerfile").read_text(), re.MULTILINE))
    packages = {path.parent.name for path in PROJECT_ROOT.glob("*/__init__.py")} - {"tests", "benchmarks"}
    assert packages <= copied
    assert {"migrations"} <= copied


# --- as the tools see it, where they can be had ---


def _run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    command = [program, *map(str, arguments)]
    return subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=120, check=False)


def _compose(*arguments: object) -> subprocess.CompletedProcess[str]:
    """As a program of its own, or as a part of docker."""
    if shutil.which("docker-compose") is None and _run("docker", "compose", "version").returncode == 0:
        return _run("docker", "compose", *arguments)
    return _run("docker-compose", *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", DEPLOY / "prometheus/prometheus.yml"),
        ("test", "rules", PROJECT_ROOT / "tests/integration/alert_cases.yml"),
    ],
    ids=["configuration", "alerts"],
)
def test_promtool_agrees(arguments: tuple[object, ...]) -> None:
    done = _run("promtool", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def test_docker_compose_reads_the_file_with_the_example_filled_in(tmp_path: Path) -> None:
    example = (DEPLOY / "compose.env.example").read_text()
    (tmp_path / "env").write_text(re.sub(r"^([A-Z_]+)=$", rf"\1={'x' * 32}", example, flags=re.MULTILINE))
    done = _compose("--env-file", tmp_path / "env", "config")
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert services["scheduler"]["deploy"]["replicas"] == 3
    assert services.keys() == COMPOSE["services"].keys()


def test_docker_compose_refuses_to_start_without_passwords() -> None:
    done = _compose("--env-file", DEPLOY / "compose.env.example", "config")
    assert done.returncode != 0
    assert "set POSTGRES_PASSWORD in .env" in done.stderr
