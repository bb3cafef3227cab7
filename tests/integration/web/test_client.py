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
