"""What the first page says when no schedule needs attention."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from services.insight.failures import FireCounts
from services.insight.overview import Attention, Trouble
from services.insight.replicas import ReplicaRecord, Replicas
from services.insight.windows import HOUR
from services.web.dashboard.overview_page import History, Seen, calm, together

NO_HISTORY = History(HOUR, [], FireCounts(), [])
NOW = datetime(2027, 1, 31, 2, tzinfo=UTC)
REPLICA = ReplicaRecord(
    instance_id="replica-1",
    incarnation=uuid4(),
    started_at=NOW,
    heartbeat_at=NOW,
    heartbeat_age_seconds=1.0,
    is_live=True,
    claiming=True,
    running=0,
    schedules=1,
    buckets=1024,
    host="machine",
    abilities=["job:noop"],
    queues=["default"],
    revision=7,
    is_converged=True,
    clock_skew_seconds=0.0,
    version="1",
    tzdata="2027a",
    max_workers=5,
    redis_degraded=False,
)


@pytest.mark.parametrize(
    ("replicas", "schedules", "words"),
    [
        ([REPLICA], 1, "All is well"),
        ([REPLICA], 0, "No schedules yet"),
        ([], 1, "No replica is live"),
        ([replace(REPLICA, is_live=False)], 1, "No replica is live"),
        ([replace(REPLICA, claiming=False)], 1, "No schedule needs attention"),
        ([replace(REPLICA, redis_degraded=True)], 1, "No schedule needs attention"),
    ],
    ids=["well", "new", "never a replica", "silent", "not claiming", "without Redis"],
)
def test_all_is_well_only_when_it_is(replicas: list[ReplicaRecord], schedules: int, words: str) -> None:
    seen = Seen(
        replicas=Replicas(7, replicas), history=NO_HISTORY, running=[], attention=[], schedules=schedules, audit=None
    )
    assert calm(seen)[0] == words


def failing(label: str, words: str) -> Attention:
    return Attention(trouble=Trouble.FAILING, label=label, words=words, since=NOW, schedule_id=uuid4())


def test_equal_failures_are_one_line_and_a_different_one_is_beside_them() -> None:
    shops = [failing(f"shop {number}", f"shop{number}.example answered 503") for number in range(84)]
    other = failing("ledger", "the door is locked")
    pair = [failing(name, "disk full") for name in ("a", "b")]
    shown = together([*shops[:50], other, *shops[50:], *pair])
    assert [(item.label, item.words) for item in shown] == [
        ("84 schedules", "shop0.example answered 503"),
        ("ledger", "the door is locked"),
        ("a", "disk full"),
        ("b", "disk full"),
    ]
    assert shown[0].schedule_id is None, "its line leads to all of them"
