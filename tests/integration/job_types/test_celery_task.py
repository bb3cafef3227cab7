"""The job type celery_task: a real worker of a user's app, and brokers that are away, silent, or refuse."""

import gc
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

from config import get_settings
from database.models import Cause, ExecutionStatus
from enhanced_scheduler import extras
from enhanced_scheduler.calling import call_handler
from services.embedded import Addresses
from services.errors import InvalidSchedule
from services.jobs import ExecutionContext, JobRegistry, JobResult, default_registry
from services.jobs.registry import BUILT_IN_MODULES, missing_extra
from services.ledger.needs import Abilities
from services.schedules.spec import parse_spec
from tests.support.celery_workers import ShopWorker
from tests.support.contexts import SCHEDULE_ID, a_context
from tests.support.redis_proxy import RedisProxy
from tests.support.schedules import VALID

FAILED, SUCCESS = ExecutionStatus.FAILED, ExecutionStatus.SUCCESS
SECONDS_OF_A_RETRY_LOOP = 30  # Celery's own `apply_async` tries a silent broker for longer


@pytest.fixture(scope="module")
def worker(servers: Addresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopWorker]:
    worker = ShopWorker.start(servers.redis_url, tmp_path_factory.mktemp("shop"))
    yield worker
    worker.end()


@pytest.fixture
def use_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def use(url: str, tasks: str = "shop.*") -> None:
        monkeypatch.setenv("ENV_FILE", "")
        monkeypatch.setenv("CELERY_BROKER_URL", "redis://nobody.invalid:1/0")  # Celery itself would obey it
        monkeypatch.setenv("CELERY_APPS_SHOP_BROKER_URL", url)
        monkeypatch.setenv("CELERY_APPS_SHOP_TASKS", tasks)
        get_settings.cache_clear()

    yield use
    get_settings.cache_clear()


def context_of(**config: Any) -> ExecutionContext:
    return a_context("celery_task", attempt=2, job_config={"app": "shop", "task": "shop.note", **config})


def call(context: ExecutionContext) -> JobResult:
    context.begin()
    return call_handler(default_registry.get("celery_task"), context)


def test_a_task_is_called_once_with_the_id_of_its_execution_and_what_tells_a_repetition(
    worker: ShopWorker, use_broker: Callable[[str], None]
) -> None:
    use_broker(worker.broker_url)
    context = context_of(queue=worker.queue, args=[1, "ü"], kwargs={"full": True}, expires_seconds=600, priority=3)
    result = call(context)
    assert result.status is SUCCESS, result
    assert result.details["result"]["task_id"] == str(context.execution_id)
    (seen,) = [each for each in worker.calls_before_now() if each["id"] == str(context.execution_id)]
    assert seen == {
        "id": str(context.execution_id),
        "args": [1, "ü"],
        "kwargs": {"full": True},
        "idempotency_key": f"{SCHEDULE_ID}/2026-03-01T02:00:00Z",
        "execution_id": str(context.execution_id),
        "schedule_id": str(SCHEDULE_ID),
        "scheduled_for": "2026-03-01T02:00:00Z",
        "attempt": 2,
        "fencing_token": 42,
    }


def test_a_message_that_expired_is_discarded_by_the_worker(
    worker: ShopWorker, use_broker: Callable[[str], None]
) -> None:
    use_broker(worker.broker_url)
    context = context_of(queue=worker.queue, expires_seconds=1e-6)
    assert call(context).status is SUCCESS
    assert str(context.execution_id) not in [each["id"] for each in worker.calls_before_now()]


@contextmanager
def silent_listener() -> Iterator[socket.socket]:
    """The kernel accepts its connections, and nobody ever answers, as with a frozen broker."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listener:
        yield listener


def connections_of(listener: socket.socket) -> int:
    listener.setblocking(False)
    count = 0
    with suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_broker_that_accepts_and_never_answers_is_asked_once_and_given_up_within_seconds(
    scheme: str, use_broker: Callable[[str], None]
) -> None:
    with silent_listener() as listener:
        port = listener.getsockname()[1]
        use_broker(f"{scheme}://user:s3cret@127.0.0.1:{port}/")
        begun_at = time.monotonic()
        result = call(context_of())
        assert time.monotonic() - begun_at < SECONDS_OF_A_RETRY_LOOP
        assert connections_of(listener) == 1
    assert (result.status, result.retryable) == (FAILED, True)
    assert result.error_details is not None
    assert result.error_details["may_be_sent"] is False  # it failed before the message was handed over
    assert f"the broker of Celery app 'shop' ({scheme}://user:***@127.0.0.1:{port}/)" in str(result.error_message)


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_broker_that_is_away_is_a_failure_that_may_be_retried_and_shows_no_secret(
    scheme: str, use_broker: Callable[[str], None]
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    use_broker(f"{scheme}://user:s3cret@127.0.0.1:{port}/")
    result = call(context_of())
    assert (result.status, result.retryable) == (FAILED, True)
    assert "refused" in str(result.error_message).lower()
    assert "s3cret" not in str(result)


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_broker_that_is_away_for_long_costs_no_open_files(scheme: str, use_broker: Callable[[str], None]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    use_broker(f"{scheme}://127.0.0.1:{port}/")
    call(context_of())
    gc.collect()
    gc.disable()  # in a replica it runs rarely
    try:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            assert call(context_of()).status is FAILED
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()


def test_a_message_whose_confirmation_was_lost_is_not_sent_again_by_this_attempt(
    worker: ShopWorker, servers: Addresses, use_broker: Callable[[str], None]
) -> None:
    with RedisProxy(servers.redis_url) as proxy:
        use_broker(proxy.url.removesuffix("0") + "5")
        proxy.lost_replies["LPUSH"] = 1
        context = context_of(queue=worker.queue)
        result = call(context)
    assert (result.status, result.retryable) == (FAILED, True)
    assert result.error_details is not None
    assert result.error_details["may_be_sent"] is True
    assert "may have been sent nevertheless" in str(result.error_message)
    assert [each["id"] for each in worker.calls_before_now()].count(str(context.execution_id)) == 1


def test_a_task_that_the_environment_does_not_allow_is_not_called(
    worker: ShopWorker, use_broker: Callable[..., None]
) -> None:
    use_broker(worker.broker_url, tasks="shop.tasks.*, billing.close")
    result = call(context_of(queue=worker.queue))
    assert (result.status, result.retryable) == (FAILED, False)
    assert result.error_message == "CELERY_APPS_SHOP_TASKS allows shop.tasks.*, billing.close only, not shop.note"
    assert worker.calls_before_now() == [each for each in worker.calls() if each["attempt"] is not None]


def test_an_app_that_this_replica_does_not_know_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENV_FILE", "")
    get_settings.cache_clear()
    result = call(context_of())
    assert (result.status, result.retryable) == (FAILED, False)
    assert result.error_message == "CELERY_APPS_SHOP_BROKER_URL is not set on this replica"
    get_settings.cache_clear()


def test_a_manual_run_has_a_key_of_its_own(worker: ShopWorker, use_broker: Callable[[str], None]) -> None:
    use_broker(worker.broker_url)
    config = {"app": "shop", "task": "shop.note", "queue": worker.queue}
    context = a_context("celery_task", cause=Cause.MANUAL, schedule_id=None, job_config=config)
    assert call(context).status is SUCCESS
    (seen,) = [each for each in worker.calls_before_now() if each["id"] == str(context.execution_id)]
    assert (seen["idempotency_key"], seen["schedule_id"]) == (str(context.execution_id), None)


# --- who may run it ---


def abilities() -> Abilities:
    registry = JobRegistry(modules=BUILT_IN_MODULES)
    default_registry.load_built_in()
    registry.register(default_registry.get("celery_task"))
    return Abilities.of_registry(registry)


def test_an_execution_waits_for_a_replica_whose_environment_has_its_app(use_broker: Callable[[str], None]) -> None:
    config = {"app": "shop", "task": "shop.note"}
    spec = parse_spec({**VALID, "job_type": "celery_task", "job_config": config}, default_registry)
    use_broker("redis://127.0.0.1:1/0")
    knows = abilities()
    needs = knows.needs_by(spec, None)
    assert needs == ("celery_app.shop", "job:celery_task")
    assert knows.able([needs], ["default"]) == [True]
    assert knows.able([("celery_app.other", "job:celery_task")], ["default"]) == [False]


def test_without_celery_the_job_type_is_unknown_and_saving_one_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(extras.MODULES, "celery", ("no_such_module",))
    without = JobRegistry(modules={name: place for name, place in BUILT_IN_MODULES.items() if not missing_extra(name)})
    assert "celery_task" not in without.handled()
    job = {"job_type": "celery_task", "job_config": {"app": "shop", "task": "shop.note"}}
    with pytest.raises(InvalidSchedule, match=r"pip install -r requirements-celery\.txt"):
        parse_spec({**VALID, **job}, without)


def test_a_process_that_calls_no_task_loads_no_celery() -> None:
    code = "\n".join(
        [
            "import sys",
            "from services.jobs import default_registry",
            "assert default_registry.get('celery_task').config_model is not None",
            "assert not {'celery', 'kombu'} & sys.modules.keys()",
        ]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
