"""The client that users import, against the real API."""

import asyncio

import pytest

from enhanced_scheduler.client import AsyncClient, Changed, Client
from enhanced_scheduler.client.shapes import NewSchedule
from tests.support.web import Web

NIGHTLY: NewSchedule = {
    "name": "nightly",
    "domain": "a report",
    "frequency": "daily",
    "time_config": {"hour": 3, "minute": 0},
    "job_type": "http_request",
    "job_config": {"url": "https://example.com/run"},
}


def test_a_schedule_lives_through_the_client(web: Web) -> None:
    client = Client(web.url, web.tokens["admin"])
    made = client.create_schedule(NIGHTLY, idempotency_key="once")
    assert client.create_schedule(NIGHTLY, idempotency_key="once") == made
    changed = client.change_schedule("nightly", {"max_retries": 2}, revision=made["revision"])
    with pytest.raises(Changed):
        client.change_schedule("nightly", {"max_retries": 3}, revision=made["revision"])
    assert [each["max_retries"] for each in client.list_schedules(search="report")] == [2]
    assert len(client.preview_schedule("nightly", n=3)["fires"]) == 3
    assert client.explain_schedule("nightly")["sentences"]

    execution = client.run_schedule("nightly")["execution_id"]
    assert client.cancel_execution(execution)["execution_id"] == execution
    assert client.read_execution(execution)["status"] == "cancelled"
    assert [each["execution_id"] for each in client.list_executions(schedule="nightly", limit=1)] == [execution]
    assert client.read_replicas()["items"] == []
    client.delete_schedule("nightly", revision=changed["revision"])
    assert list(client.list_schedules()) == []


def test_asyncio_has_the_same_client(web: Web) -> None:
    async def story() -> list[str]:
        client = AsyncClient(web.url, web.tokens["operator"])
        names = [f"nightly-{number}" for number in range(3)]
        await asyncio.gather(*(client.create_schedule({**NIGHTLY, "name": name}) for name in names))
        await client.run_schedule("nightly-1")
        return sorted([str(each["name"]) async for each in client.list_schedules(limit=2)])

    assert asyncio.run(story()) == ["nightly-0", "nightly-1", "nightly-2"]


def test_limits_rules_channels_queues_and_many_at_once_are_managed_through_the_client(web: Web) -> None:
    client = Client(web.url, web.tokens["admin"])
    client.add_limit({"name": "customer:42", "max_running": 2}, idempotency_key="limit")
    client.change_limit("customer:42", {"max_running": 3})
    assert [(each["name"], each["max_running"]) for each in client.list_limits(limit=1)] == [("customer:42", 3)]

    client.add_channel({"name": "ops", "kind": "webhook", "config": {"url": "https://example.com/hook"}})
    client.add_rule({"name": "failures", "events": ["failed"], "channels": ["ops"]})
    assert [each["name"] for each in client.list_rules()] == ["failures"]
    assert client.try_rule("failures", hours=1)
    client.delete_rule("failures")
    client.delete_channel("ops")
    client.delete_limit("customer:42")

    queue = client.list_queues()["items"][0]["name"]
    assert client.pause_queue(queue, {"reason": "the directory is down"})["paused_reason"] == "the directory is down"
    assert client.resume_queue(queue)["paused_reason"] is None

    names = [f"nightly-{number}" for number in range(3)]
    for name in names:
        client.create_schedule({**NIGHTLY, "name": name})
    done = client.change_many_schedules({"action": "disable", "filter": {"search": "report"}, "note": "holidays"})
    assert len(done["changed"]) == 3
    assert [each["enabled"] for each in client.list_schedules()] == [False] * 3
    client.run_schedule("nightly-0")
    assert client.read_log(next(client.list_executions())["execution_id"])["lines"] == []
