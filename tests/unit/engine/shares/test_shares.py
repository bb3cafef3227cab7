"""What one replica loads, drops and tries, given the heartbeats that it reads."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from services.engine.shares.membership import Member, Membership
from services.engine.shares.shares import HANDICAP_SECONDS, LONGEST_HANDICAP_SECONDS, EveryBucket, Shares
from services.schedules.buckets import ALL, BUCKETS, buckets_in, from_bytes, set_of, to_bytes

START = datetime(2026, 1, 1, tzinfo=UTC)
TIMEOUT, GAP, BEAT = 15.0, 7.5, 4.0


def member(name: str, process: int = 1, **facts: object) -> Member:
    values: dict[str, object] = {"host": f"host of {name}", "holds": 0, **facts}
    started_at = START + timedelta(seconds=process)
    return Member(instance_id=name, incarnation=UUID(int=process), started_at=started_at, **values)  # type: ignore[arg-type]


def shares_of(name: str, process: int = 1, copies: int = 2) -> Shares:
    return Shares(name, UUID(int=process), copies=copies, timeout_seconds=TIMEOUT, gap_seconds=GAP)


def read(shares: Shares, *found: Member, now: float = 0.0, can_tell: bool = True) -> None:
    shares.update(found, can_tell=can_tell, now=now)


def load_all(shares: Shares) -> int:
    while some := shares.next_to_load(BUCKETS):
        shares.loaded(some)
    return from_bytes(shares.mask)


def test_a_set_of_buckets_survives_its_way_through_a_heartbeat() -> None:
    some = set_of([0, 7, 8, 513, 1023])
    assert from_bytes(to_bytes(some)) == some
    assert list(buckets_in(some)) == [0, 7, 8, 513, 1023]
    assert from_bytes(b"") == 0


def test_one_replica_alone_has_the_duty_for_everything() -> None:
    shares = shares_of("a")
    read(shares, member("a"))
    assert load_all(shares) == ALL
    assert (shares.lacking, shares.orphaned, len(shares.first_in())) == (0, 0, BUCKETS)


def test_every_bucket_is_loaded_by_the_given_number_of_replicas() -> None:
    names = ["a", "b", "c", "d"]
    masks = []
    for name in names:
        shares = shares_of(name)
        read(shares, *map(member, names))
        masks.append(load_all(shares))
    assert all(sum(mask >> bucket & 1 for mask in masks) == 2 for bucket in range(BUCKETS))


def test_buckets_that_nobody_holds_are_loaded_first_and_then_the_own_first_duty() -> None:
    shares = shares_of("a")
    orphans = {3, 700, 1001}
    others = ALL & ~set_of(orphans)
    read(shares, member("a"), member("b", holds=others), member("c", holds=others))
    wanted = shares.next_to_load(BUCKETS)
    own_orphans = [bucket for bucket in wanted if bucket in orphans]
    assert wanted[: len(own_orphans)] == own_orphans
    shares.loaded(own_orphans)
    rest = shares.next_to_load(BUCKETS)
    firsts = [bucket for bucket in rest if shares._duty[bucket][0] == "a"]
    assert rest[: len(firsts)] == firsts


def test_at_least_one_bucket_is_loaded_at_once() -> None:
    shares = shares_of("a")
    read(shares, member("a"))
    assert len(shares.next_to_load(0)) == 1


def test_a_bucket_is_dropped_after_those_with_the_duty_have_shown_it_for_a_timeout() -> None:
    shares = shares_of("a", copies=1)
    read(shares, member("a"))
    load_all(shares)
    now = 0.0
    read(shares, member("a"), member("b"), now=now)
    foreign = set_of(bucket for bucket in range(BUCKETS) if shares._duty[bucket] == ("b",))
    while now < 4 * BEAT:  # b shows it from the second beat on
        assert shares.to_drop(now) == []
        now += BEAT
        read(shares, member("a"), member("b", holds=foreign), now=now)
    assert shares.to_drop(now) == []
    now += BEAT
    read(shares, member("a"), member("b", holds=foreign), now=now)
    assert set_of(shares.to_drop(now)) == foreign


def test_a_bucket_is_kept_while_one_of_those_with_the_duty_does_not_show_it() -> None:
    shares = shares_of("a", copies=2)
    read(shares, member("a"))
    load_all(shares)
    for beat in range(20):
        read(shares, member("a"), member("b", holds=ALL), member("c"), now=beat * BEAT)
    assert shares.to_drop(20 * BEAT) == []


def test_while_nobody_claims_nobody_drops_anything() -> None:
    shares = shares_of("a")
    read(shares, member("a"), member("b"))
    load_all(shares)
    for beat in range(1, 20):
        paused = {"claiming": False, "on_duty": False, "holds": ALL}
        read(shares, member("a", **paused), member("b", **paused), now=beat * BEAT)
    assert (shares.duty, shares.to_drop(19 * BEAT)) == (0, [])


def test_a_bucket_is_kept_while_there_are_fewer_others_on_duty_than_copies() -> None:
    shares = shares_of("a", copies=2)
    read(shares, member("a"))
    load_all(shares)
    for beat in range(1, 20):
        paused = member("a", claiming=False, on_duty=False)
        read(shares, paused, member("b", holds=ALL), member("c", claiming=False, on_duty=False), now=beat * BEAT)
    assert shares.to_drop(19 * BEAT) == []


def test_an_old_heartbeat_does_not_vouch_for_a_bucket() -> None:
    shares = shares_of("a", copies=1)
    read(shares, member("a"))
    load_all(shares)
    for beat in range(1, 8):
        read(shares, member("a"), member("b", holds=ALL, is_fresh=beat < 7), now=beat * BEAT)
    assert shares.to_drop(7 * BEAT) == []


def test_a_restart_of_the_other_holder_starts_the_wait_anew() -> None:
    shares = shares_of("a", copies=1)
    read(shares, member("a"))
    load_all(shares)
    for beat in range(4):
        read(shares, member("a"), member("b", holds=ALL), now=beat * BEAT)
    read(shares, member("a"), member("b", 2, holds=ALL), now=4 * BEAT)
    assert shares.to_drop(4 * BEAT) == []


def test_a_gap_between_the_own_heartbeats_starts_the_wait_anew() -> None:
    shares = shares_of("a", copies=1)
    read(shares, member("a"))
    load_all(shares)
    read(shares, member("a"), member("b", holds=ALL), now=0)
    read(shares, member("a"), member("b", holds=ALL), now=20)
    assert shares.to_drop(20) == []


def test_nothing_is_dropped_by_an_old_reading() -> None:
    shares = shares_of("a", copies=1)
    read(shares, member("a"))
    load_all(shares)
    for beat in range(8):
        read(shares, member("a"), member("b", holds=ALL), now=beat * BEAT)
    assert shares.to_drop(7 * BEAT)
    assert shares.to_drop(7 * BEAT + GAP + 1) == []


def test_what_a_replica_has_the_duty_for_it_never_drops() -> None:
    shares = shares_of("a", copies=2)
    for beat in range(20):
        read(shares, member("a"), member("b", holds=ALL), now=beat * BEAT)
        load_all(shares)
    assert shares.to_drop(19 * BEAT) == []


def test_the_holders_of_a_bucket_try_one_after_the_other() -> None:
    names = ["a", "b", "c", "d", "e"]
    everyone = {name: shares_of(name) for name in names}
    for shares in everyone.values():
        shares.loaded(range(BUCKETS))
        read(shares, *(member(name, holds=ALL) for name in names))
    waits = sorted(shares.handicap_seconds(17) for shares in everyone.values())
    steps = [step * HANDICAP_SECONDS for step in range(4)]
    assert waits == [*steps, LONGEST_HANDICAP_SECONDS]


def test_a_replica_that_does_not_hold_the_bucket_makes_nobody_wait() -> None:
    shares = shares_of("a")
    shares.loaded([17])
    read(shares, member("a"), *(member(name) for name in "bcdefgh"))
    assert shares.handicap_seconds(17) == 0


def test_a_replica_that_does_not_claim_has_neither_duty_nor_rank() -> None:
    shares = shares_of("a")
    read(shares, member("a"), *(member(name, holds=ALL, claiming=False, on_duty=False) for name in "bcdefgh"))
    assert load_all(shares) == ALL
    assert len(shares.first_in()) == BUCKETS


def test_a_replica_that_came_back_has_a_rank_at_once_and_duty_later() -> None:
    shares = shares_of("a")
    read(shares, member("a"), member("b", holds=ALL, on_duty=False))
    assert shares.duty == BUCKETS
    shares.loaded(range(BUCKETS))
    assert 0 < len(shares.first_in()) < BUCKETS


def test_if_nobody_is_on_duty_all_that_claim_are() -> None:
    shares = shares_of("a", copies=1)
    read(shares, member("a", on_duty=False), member("b", on_duty=False), member("c", claiming=False, on_duty=False))
    assert 0 < shares.duty < BUCKETS


def test_a_replica_that_was_away_itself_takes_nobody_for_dead() -> None:
    shares = shares_of("a", copies=1)
    read(shares, member("a"), member("b"))
    before = shares.duty
    read(shares, member("a"), can_tell=False)
    assert shares.duty == before
    read(shares, member("a"), can_tell=True)
    assert shares.duty == BUCKETS


def test_who_has_unregistered_is_gone_for_everybody() -> None:
    shares = shares_of("a", copies=1)
    read(shares, member("a"), member("b", 2))
    shares.update([member("a")], can_tell=False, now=1, gone=[UUID(int=2)])
    assert shares.duty == BUCKETS


def test_the_newest_process_of_a_name_counts() -> None:
    found = Membership.of([member("a", 2, holds=5), member("a", 1, holds=ALL), member("b", 3)])
    assert [(each.instance_id, each.incarnation.int) for each in found.members] == [("a", 2), ("b", 3)]


def test_a_process_whose_name_a_newer_one_has_steps_back() -> None:
    shares = shares_of("a", 1, copies=1)
    read(shares, member("a", 1))
    load_all(shares)
    for beat in range(8):
        read(shares, member("a", 1, holds=ALL), member("a", 2, holds=ALL), now=beat * BEAT)
    assert (shares.duty, shares.first_in(), shares.handicap_seconds(4)) == (0, [], LONGEST_HANDICAP_SECONDS)
    assert len(shares.to_drop(7 * BEAT)) == BUCKETS


def test_a_replica_of_the_version_before_is_in_no_order_and_holds_everything() -> None:
    shares = shares_of("a")
    read(shares, member("a"), member("old", holds=None))
    assert (shares.elders, shares.duty, shares.orphaned) == (("old",), BUCKETS, 0)
    assert shares.first_in() == []
    shares.loaded([5])
    assert shares.first_in() == [5]


def test_the_first_replica_that_counts_streaks_does_although_one_of_a_version_before_is_first_in_its_buckets() -> None:
    shares = shares_of("b")
    assert not shares.is_first_to_count, "nothing is known yet"
    old, other = member("a", holds=ALL), member("c", 2, counts_streaks=True)
    read(shares, old, member("b", counts_streaks=True), other)
    assert shares.is_first_to_count
    read(shares, old, member("b", counts_streaks=True, claiming=False), other)
    assert not shares.is_first_to_count
    read(shares, member("a", counts_streaks=True), member("b", counts_streaks=True), other)
    assert not shares.is_first_to_count


def test_a_replica_that_leaves_waits_until_others_hold_its_buckets() -> None:
    shares = shares_of("a")
    read(shares, member("a"), member("b"))
    mine = load_all(shares)
    shares.leave()
    read(shares, member("a", claiming=False), member("b", holds=ALL & ~1))
    assert not shares.are_held_elsewhere
    read(shares, member("a", claiming=False), member("b", holds=ALL))
    assert mine == ALL
    assert shares.are_held_elsewhere


def test_only_a_reading_that_shows_the_own_leave_lets_a_replica_go() -> None:
    """The other holder may leave as well, and may have read before it was told."""
    shares = shares_of("a")
    read(shares, member("a"), member("b", holds=ALL))
    load_all(shares)
    shares.leave()
    assert not shares.are_held_elsewhere
    read(shares, member("a", claiming=False), member("b", holds=ALL, claiming=False), member("c"))
    assert not shares.are_held_elsewhere, "b leaves, too, and c has not loaded it"


def test_an_old_heartbeat_takes_no_share_over() -> None:
    shares = shares_of("a")
    read(shares, member("a"), member("b"))
    load_all(shares)
    shares.leave()
    read(shares, member("a", claiming=False), member("b", holds=ALL, is_fresh=False))
    assert not shares.are_held_elsewhere


def test_a_replica_that_nobody_succeeds_does_not_wait() -> None:
    shares = shares_of("a")
    read(shares, member("a"))
    load_all(shares)
    shares.leave()
    read(shares, member("a", claiming=False), member("b", holds=ALL, claiming=False))
    assert shares.are_held_elsewhere


def test_a_replica_that_leaves_tries_after_all_others() -> None:
    shares = shares_of("a")
    read(shares, member("a"), member("b", holds=ALL & ~1))
    load_all(shares)
    shares.leave()
    assert {shares.handicap_seconds(bucket) for bucket in range(1, BUCKETS)} == {LONGEST_HANDICAP_SECONDS}
    assert shares.handicap_seconds(0) == 0.0, "nobody else holds it"


def test_buckets_that_nobody_living_holds_are_counted() -> None:
    shares = shares_of("a")
    read(shares, member("a"), member("b", holds=set_of(range(1000))), member("c", holds=ALL, claiming=False))
    assert shares.orphaned == BUCKETS - 1000
    shares.loaded([1020])
    assert shares.orphaned == BUCKETS - 1001


def test_a_change_of_what_is_held_wakes_the_heart_at_most_once_a_second() -> None:
    shares, woken = shares_of("a"), []
    shares.announce(lambda: woken.append(0), now=0)
    for now in (1.0, 1.5, 1.9, 2.1):
        shares.loaded([1])
        shares.announce(lambda now=now: woken.append(now), now=now)  # type: ignore[misc]
    assert woken == [1.0, 2.1]
    assert shares.mask
    shares.announce(lambda: woken.append(0), now=9)
    assert woken == [1.0, 2.1]


def test_without_a_heart_every_bucket_is_loaded() -> None:
    assert load_all(EveryBucket()) == ALL


MEMBERS = st.lists(
    st.builds(
        member, st.sampled_from("abcdefgh"), st.integers(1, 3), claiming=st.booleans(), on_duty=st.booleans(),
        holds=st.one_of(st.none(), st.integers(0, ALL)), host=st.sampled_from([None, "x", "y"]),
    ),
    max_size=9,
)  # fmt: skip


@given(MEMBERS, st.integers(0, BUCKETS - 1))
@settings(max_examples=60, deadline=None)
def test_whatever_lives_somebody_who_claims_has_the_duty_and_exactly_one_holder_is_first(
    found: list[Member], bucket: int
) -> None:
    living = Membership.of(found)
    views = {}
    for each in living.members:
        shares = views[each.instance_id] = shares_of(each.instance_id, each.incarnation.int)
        shares.loaded(buckets_in(each.holds or 0))
        read(shares, *found)
    claiming = {each.instance_id for each in living.members if each.claiming}
    assert any(views[name].duty for name in claiming) == bool(claiming)
    assert all(not views[name].duty for name in views.keys() - claiming)
    holders = [each.instance_id for each in living.members if each.claiming and each.holds_bucket(bucket)]
    assert [bucket in views[name].first_in() for name in holders].count(True) == bool(holders)


@given(MEMBERS, MEMBERS)
@settings(max_examples=40, deadline=None)
def test_no_replica_drops_what_it_has_the_duty_for(before: list[Member], after: list[Member]) -> None:
    shares = shares_of("a")
    shares.loaded(range(BUCKETS))
    for beat in range(12):
        read(shares, *(before if beat < 4 else after), now=beat * BEAT)
    duty = shares._own_duty
    assert not any(duty >> bucket & 1 for bucket in shares.to_drop(11 * BEAT))


@given(
    MEMBERS, MEMBERS, st.sets(st.integers(0, BUCKETS - 1), max_size=5), st.sets(st.integers(0, BUCKETS - 1), max_size=5)
)
@settings(max_examples=40, deadline=None)
def test_a_remembered_rank_is_the_one_that_a_replica_without_memory_computes(
    before: list[Member], after: list[Member], loaded: set[int], dropped: set[int]
) -> None:
    remembering, forgetful = shares_of("a"), shares_of("a")
    remembering.loaded(range(0, BUCKETS, 2))
    read(remembering, member("a"), *before)
    remembering.first_in()
    remembering.loaded(loaded)
    remembering.first_in()
    remembering.dropped(dropped)
    remembering.first_in()
    read(remembering, member("a"), *after, now=BEAT)
    forgetful.loaded(buckets_in(remembering._mask))
    read(forgetful, member("a"), *after, now=BEAT)
    assert remembering.first_in() == forgetful.first_in()
    handicaps = [[shares.handicap_seconds(bucket) for bucket in range(BUCKETS)] for shares in (remembering, forgetful)]
    assert handicaps[0] == handicaps[1]
