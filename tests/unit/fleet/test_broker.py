"""The broker's address, and which pools and queues a worker refuses."""

import importlib
from collections.abc import Iterator
from types import ModuleType

import pytest

from config import Settings, get_settings
from services.errors import ConfigurationError
from services.fleet.broker import broker_url, celery_app, sending_options

POSTGRES = "postgresql://nowhere/x"


def settings(**given: str) -> Settings:
    return Settings(_env_file=None, database_url=POSTGRES, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ours", "broker"),
    [
        ("redis://host", "redis://host/1"),
        ("redis://user:word@host:6380/3?protocol=3", "redis://user:word@host:6380/4?protocol=3"),
        ("rediss://host/0?ssl_cert_reqs=required", "rediss://host/1?ssl_cert_reqs=required"),
        ("redis://host?db=2", "redis://host/3"),
        ("unix:///run/redis.sock?db=0", "redis+socket:///run/redis.sock?virtual_host=1"),
    ],
)
def test_the_broker_is_our_redis_under_the_next_database_number(ours: str, broker: str) -> None:
    assert broker_url(settings(redis_url=ours)) == broker


def test_an_own_broker_is_taken_as_it_is() -> None:
    assert broker_url(settings(redis_url="redis://a", celery_broker_url="amqp://b//")) == "amqp://b//"


def test_sentinels_need_an_address_of_the_broker() -> None:
    with pytest.raises(ConfigurationError, match="CELERY_BROKER_URL is not set"):
        broker_url(settings(redis_url="redis+sentinel://host:26379/mymaster"))


@pytest.mark.parametrize("url", ["redis://h/1", "redis+socket:///s", "amqp://h//"])
def test_nothing_waits_longer_than_a_second_for_a_broker(url: str) -> None:
    options = sending_options(url)
    limits = [value for name, value in options["transport_options"].items() if name.endswith("timeout")]
    assert [options["connect_timeout"], *limits] == [1.0, 1.0, 1.0]


def test_celery_is_told_to_do_no_more_than_to_ring() -> None:
    conf = celery_app(settings(redis_url="redis://h", celery_queues="scan,browser"), is_worker=False).conf
    assert (conf.worker_prefetch_multiplier, conf.task_acks_late, conf.task_reject_on_worker_lost) == (1, True, False)
    assert (conf.accept_content, conf.task_serializer, conf.task_ignore_result) == (["json"], "json", True)
    assert conf.worker_enable_remote_control is False, "whoever reaches the broker could end workers"
    assert (conf.task_publish_retry, conf.task_time_limit, conf.result_backend) == (False, None, None)
    assert [queue.name for queue in conf.task_queues] == ["browser", "scan"]


@pytest.mark.parametrize(
    ("url", "options"),
    [("redis://h/1", {"ack_emulation": False}), ("sentinel://h:1", {"ack_emulation": False}), ("amqp://h//", {})],
)
def test_only_redis_is_told_to_keep_no_copies(url: str, options: dict[str, bool]) -> None:
    """What a transport does not know, its client may refuse."""
    app = celery_app(settings(redis_url="redis://h", celery_broker_url=url), is_worker=True)
    assert app.conf.broker_transport_options == options


@pytest.fixture
def app_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setenv("ENV_FILE", "")
    monkeypatch.setenv("DATABASE_URL", POSTGRES)
    monkeypatch.setenv("REDIS_URL", "redis://nowhere")
    get_settings.cache_clear()
    yield importlib.import_module("services.fleet.app")
    get_settings.cache_clear()


@pytest.mark.parametrize("pool", ["gevent", "eventlet", "celery.concurrency.gevent:TaskPool", "custom"])
def test_green_threads_are_refused_in_one_line(app_module: ModuleType, pool: str) -> None:
    with pytest.raises(SystemExit, match="is not supported: use prefork, threads or solo"):
        app_module.pool_of(pool)
