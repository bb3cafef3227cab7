"""Duty and trying: balance, movement, hosts, and that all replicas compute the same."""

import subprocess
import sys
from collections import Counter

import pytest

from services.engine.shares.orders import Place, duty, trying
from services.schedules.buckets import BUCKETS

BALANCE = 1.25
MOVED = 1.5
ALONE = 2.1  # one in four of eleven others' buckets, and its own


def held_by(places: list[Place], copies: int = 2) -> Counter[str]:
    return Counter(name for bucket in range(BUCKETS) for name in duty(bucket, places, copies))


def on_own_hosts(count: int, style: str = "replica-{}") -> list[Place]:
    return [(style.format(number), f"host-{number}") for number in range(count)]


@pytest.mark.parametrize("style", ["replica-{}", "r{}", "scheduler-7d9c4b5f6-x{}"])
@pytest.mark.parametrize("count", range(3, 13))
def test_no_replica_has_more_than_a_quarter_above_its_fair_share(count: int, style: str) -> None:
    held = held_by(on_own_hosts(count, style))
    assert len(held) == count
    assert max(held.values()) <= BALANCE * 2 * BUCKETS / count


@pytest.mark.parametrize("count", range(3, 12))
def test_a_replica_that_joins_moves_no_more_than_its_own_share(count: int) -> None:
    before, after = on_own_hosts(count), on_own_hosts(count + 1)
    moved = sum(len(set(duty(b, after, 2)) - set(duty(b, before, 2))) for b in range(BUCKETS))
    assert moved <= MOVED * 2 * BUCKETS / (count + 1)


@pytest.mark.parametrize("count", range(3, 12))
def test_a_replica_that_dies_moves_no_more_than_its_own_share(count: int) -> None:
    before, after = on_own_hosts(count), on_own_hosts(count)[1:]
    moved = sum(len(set(duty(b, after, 2)) - set(duty(b, before, 2))) for b in range(BUCKETS))
    assert moved <= MOVED * 2 * BUCKETS / count


def test_the_second_copy_is_on_another_host_if_there_is_one() -> None:
    places: list[Place] = [("a", "one"), ("b", "one"), ("c", "two")]
    for bucket in range(BUCKETS):
        assert "c" in duty(bucket, places, 2)


@pytest.mark.parametrize("count", [5, 11])
def test_a_replica_alone_on_its_host_does_not_hold_everything(count: int) -> None:
    places: list[Place] = [*((f"r{number}", "one") for number in range(count)), ("alone", "two")]
    held = held_by(places)
    assert held["alone"] <= ALONE * 2 * BUCKETS / (count + 1)
    assert max(held.values()) == held["alone"]


def test_on_one_host_the_second_copy_is_with_another_replica() -> None:
    assert all(len(set(duty(bucket, [("a", "one"), ("b", "one")], 2))) == 2 for bucket in range(BUCKETS))


def test_unknown_hosts_are_taken_for_different_ones() -> None:
    places: list[Place] = [("a", None), ("b", None)]
    assert all(len(duty(bucket, places, 2)) == 2 for bucket in range(BUCKETS))


def test_there_are_no_more_copies_than_replicas() -> None:
    assert duty(5, [("a", "one")], 2) == ("a",)
    assert duty(5, [], 2) == ()


def test_the_first_on_duty_tries_first_once_it_holds_the_bucket() -> None:
    places = on_own_hosts(5)
    for bucket in range(0, BUCKETS, 37):
        chosen = duty(bucket, places, 2)
        assert tuple(trying(bucket, reversed(chosen))) == chosen


def test_another_process_computes_the_same_orders() -> None:
    code = (
        "from services.engine.shares.orders import duty;"
        "print([duty(b, [('a', 'x'), ('b', 'y'), ('c', 'x')], 2) for b in range(64)])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert answer.strip() == str([duty(b, [("a", "x"), ("b", "y"), ("c", "x")], 2) for b in range(64)])
