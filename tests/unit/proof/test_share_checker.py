"""The checker of shares sees what it is there for: each history here breaks one rule, and the sound one breaks none."""

from dataclasses import replace

from tests.proof.checker import Bounds
from tests.proof.records import Disturbance, Row, Turn
from tests.proof.share_checker import Offer, Route, ShareBounds, ShareStory, Sight, judge_shares

BOUNDS = Bounds(heartbeat_interval=1, heartbeat_timeout=4)
OWN = ShareBounds(orphaned=6.0, taken=4.0, settled=10.0, slack=1.0)
RUN = Row(schedule="a", fire=100.0, due=100.0, written=100.1, started=101.0, completed=102.0, replica="able", token=1)
MISSED = replace(RUN, status="missed", reason="nobody_able", started=None, completed=130.0, replica=None, token=None)
TAKEN = Turn(schedule="a", fire=100.0, at=101.0, before="pending", after="running")
BUSY = Turn(schedule="a", fire=90.0, at=119.0, before="running", after="success")
SOUND = ShareStory(
    rows=[RUN],
    turns={"a": [TAKEN]},
    routes={"a": [Route(since=0.0, queue="side", labels=frozenset({"gpu"}))]},
    offers={"able": Offer(queues=frozenset({"side"}), labels=frozenset({"gpu"})), "plain": Offer()},
    sights=[Sight(at=float(at), orphaned=0) for at in range(100, 120)],
    disturbances=[
        Disturbance(kind="start", at=0.0, until=1.0, scope="replica", replica=name) for name in ("able", "plain")
    ],
    has_room=True,
)


def broken(story: ShareStory) -> list[str]:
    return [each.kind for each in judge_shares(story, BOUNDS, OWN)]


def ill(name: str, since: float, until: float) -> ShareStory:
    """The sound story with a replica that froze."""
    told = Disturbance(kind="freeze", at=since, until=until, scope="replica", replica=name)
    return replace(SOUND, disturbances=[*SOUND.disturbances, told])


def test_a_sound_history_breaks_no_rule() -> None:
    assert broken(SOUND) == []


def test_a_run_by_one_that_is_not_able_is_seen() -> None:
    assert broken(replace(SOUND, rows=[replace(RUN, replica="plain")])) == ["run by one that is not able"]


def test_a_run_right_after_a_change_may_be_of_before() -> None:
    routes = [Route(since=0.0), Route(since=100.5, queue="side")]
    assert broken(replace(SOUND, rows=[replace(RUN, replica="plain")], routes={"a": routes})) == []


def test_nobody_able_is_a_lie_while_one_is_well() -> None:
    assert broken(replace(SOUND, rows=[MISSED], turns={})) == ["missed although a replica was able"]


def test_nobody_able_is_no_lie_while_those_that_are_able_are_ill() -> None:
    assert broken(replace(ill("able", 115.0, 129.0), rows=[MISSED], turns={})) == []


def test_a_row_that_waits_beside_an_able_replica_is_seen() -> None:
    late = replace(SOUND, turns={"a": [replace(TAKEN, at=120.0)]})
    assert broken(late) == ["waited although a replica was able"]
    assert broken(replace(late, has_room=False)) == []
    assert broken(replace(late, disturbances=ill("able", 100.0, 110.0).disturbances)) == []


def test_a_row_may_wait_for_another_of_its_schedule() -> None:
    other = replace(RUN, fire=90.0, due=90.0, written=90.0, started=90.0, completed=119.0, token=2)
    assert broken(replace(SOUND, rows=[other, RUN], turns={"a": [BUSY, replace(TAKEN, at=120.0)]})) == []


def test_what_nobody_can_run_ends_with_its_grace() -> None:
    offers = {"able": Offer(), "plain": Offer()}
    story = replace(SOUND, rows=[MISSED], turns={}, offers=offers, hopeless={"a": 4.0})
    assert broken(story) == ["waited beyond its grace"]
    assert broken(replace(story, rows=[replace(MISSED, completed=112.0)])) == []


def test_a_bucket_without_a_holder_is_seen() -> None:
    orphaned = [Sight(at=float(at), orphaned=3 if 102 <= at <= 112 else 0) for at in range(100, 120)]
    assert broken(replace(SOUND, sights=orphaned)) == ["a bucket without a holder"]
    assert broken(replace(SOUND, sights=[each for each in orphaned if each.at < 108])) == []


FLEET = replace(
    SOUND,
    rows=[replace(RUN, replica="worker")],
    routes={"a": [Route(since=0.0, queue="side")]},
    offers={"plain": Offer(), "worker": Offer(queues=frozenset({"side"}))},
    fleet=frozenset({"worker"}),
    disturbances=[
        Disturbance(kind="start", at=0.0, until=1.0, scope="replica", replica="plain"),
        Disturbance(kind="start", at=0.0, until=1.0, scope="worker", replica="worker"),
    ],
)


def taken_after(seconds: float, story: ShareStory = FLEET) -> ShareStory:
    """The only row, which its worker takes so much later."""
    at = 100.0 + seconds
    rows = [replace(RUN, replica="worker", started=at, completed=at + 1)]
    return replace(story, rows=rows, turns={"a": [replace(TAKEN, at=at)]})


def test_a_row_of_the_fleet_may_wait_for_its_next_announcement_and_no_longer() -> None:
    assert broken(taken_after(34.0)) == []
    assert broken(taken_after(36.0)) == ["waited beside an idle fleet"]


def test_while_messages_are_in_trouble_their_pauses_grow() -> None:
    assert broken(taken_after(50.0, replace(FLEET, troubled_until=120.0))) == []
    assert broken(taken_after(58.0, replace(FLEET, troubled_until=120.0))) == ["waited beside an idle fleet"]


def test_a_row_of_the_fleet_may_wait_for_a_worker_or_a_replica_that_is_well() -> None:
    for name, scope in (("worker", "worker"), ("plain", "replica")):
        frozen = Disturbance(kind="freeze", at=105.0, until=125.0, scope=scope, replica=name)
        assert broken(replace(taken_after(50.0), disturbances=[*FLEET.disturbances, frozen])) == []


def test_what_a_worker_of_the_fleet_runs_must_be_of_its_queue() -> None:
    routes = {"a": [Route(since=0.0)]}
    assert broken(replace(FLEET, routes=routes)) == ["run by one that is not able"]


def test_a_worker_of_the_fleet_holds_no_bucket_however_well_it_is() -> None:
    orphaned = [Sight(at=float(at), orphaned=3 if 102 <= at <= 112 else 0) for at in range(100, 120)]
    stopped = Disturbance(kind="drain", at=100.0, until=115.0, scope="replica", replica="plain")
    story = replace(FLEET, sights=orphaned)
    assert broken(story) == ["a bucket without a holder"]
    assert broken(replace(story, disturbances=[*FLEET.disturbances, stopped])) == []
