"""Replicas that are killed while they send: every message arrives, and what came twice has the same id."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.ledger import Answer, Ledger
from tests.support.mail import MailServer
from tests.support.notifying import Notifying, is_signed
from tests.support.replicas import Cluster
from tests.support.waiting import eventually

THREADS = 4  # of a sender: so many messages may be on their way when it dies


@pytest.fixture
def receiver() -> Iterator[Ledger]:
    with Ledger() as ledger:
        yield ledger


def senders(cluster: Cluster) -> set[str]:
    return {name for (name,) in cluster.rows("SELECT DISTINCT instance_id FROM notification_attempts")}


def test_a_message_that_was_on_its_way_at_kill_9_is_sent_again_by_another_replica(
    cluster: Cluster, receiver: Ledger
) -> None:
    notifying = Notifying(cluster.db)
    receiver.answer("/hook", Answer(delay_seconds=60), Answer())
    (first,) = cluster.start(1)
    notifying.tell(notifying.webhook(f"{receiver.url}/hook"))
    eventually(lambda: receiver.requests("/hook"), 30)
    first.kill()
    (second,) = cluster.start(1)
    assert notifying.states() == ["waiting"]
    notifying.pass_seconds(120)  # the claim of the dead one expires
    eventually(lambda: notifying.states() == ["sent"], 30)
    before, after = receiver.requests("/hook")
    assert before.headers["webhook-id"] == after.headers["webhook-id"]
    assert is_signed(after)
    attempts = notifying.deliveries.attempts(notifying.all()[0].delivery_id)
    assert [(each.instance_id, each.outcome) for each in attempts] == [(second.name, "sent"), (first.name, "lost")]
    assert second.stop() == 0


def test_replicas_share_the_work_and_one_that_is_killed_loses_nothing(cluster: Cluster, receiver: Ledger) -> None:
    notifying, count = Notifying(cluster.db), 150
    receiver.answer("/hook", Answer(delay_seconds=0.05))

    def all_sent_later() -> bool:
        notifying.pass_seconds(120)
        return set(notifying.states()) == {"sent"}

    with MailServer() as mails:
        first, second = cluster.start(2)
        for name in ("one", "two"):
            notifying.tell(notifying.webhook(f"{receiver.url}/hook", name), *map(str, range(count)))
        notifying.tell(notifying.email(mails.port), *map(str, range(count)))
        eventually(lambda: senders(cluster) == {first.name, second.name}, 60)
        first.kill()
        eventually(all_sent_later, 90, 1.0)
        posted = Counter(request.headers["webhook-id"] for request in receiver.requests("/hook"))
        mailed = Counter(mail["Message-ID"] for mail in mails.received)
    assert (len(posted), len(mailed)) == (2 * count, count)
    assert sum(times - 1 for times in (*posted.values(), *mailed.values())) <= THREADS
    with cluster.db.transaction() as connection:
        outcomes = Counter(connection.exec_driver_sql("SELECT outcome FROM notification_attempts").scalars())
    assert outcomes["sent"] == 3 * count
    assert set(outcomes) <= {"sent", "lost"}
