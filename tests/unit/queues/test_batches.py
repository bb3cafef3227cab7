"""Batches that follow the queue."""

import pytest

from services.queues.batches import AdaptiveBatch, BatchPace


def batch(remembered: int | None = None) -> AdaptiveBatch:
    return AdaptiveBatch.of(20, remembered, fast_seconds=1, slow_seconds=10)


def test_it_begins_with_the_setting() -> None:
    assert batch().size == 20


@pytest.mark.parametrize(("remembered", "size"), [(40, 40), (1, 5), (10_000, 80)])
def test_it_begins_with_what_the_last_run_found_good_within_its_bounds(remembered: int, size: int) -> None:
    assert batch(remembered).size == size


def test_it_grows_while_the_queue_is_deep_and_items_are_fast() -> None:
    grown = batch().after(0.5, deep=True)
    assert grown.size == 40
    assert grown.after(0.5, deep=True).after(0.5, deep=True).size == 80


def test_it_does_not_grow_for_a_shallow_queue_or_items_of_medium_speed() -> None:
    assert batch().after(0.5, deep=False).size == 20
    assert batch().after(5, deep=True).size == 20


def test_it_shrinks_when_items_are_slow() -> None:
    shrunk = batch().after(11, deep=True)
    assert shrunk.size == 10
    assert shrunk.after(11, deep=True).after(11, deep=False).after(11, deep=False).size == 5


def test_a_batch_of_one_stays_a_batch_of_one() -> None:
    assert AdaptiveBatch.of(1, None, fast_seconds=1, slow_seconds=10).after(11, deep=True).size == 1


def test_it_is_judged_by_whole_batches() -> None:
    pace = BatchPace(batch(), by_item=True)
    pace.ended(19, 19 * 0.5, deep=True)
    assert pace.size == 20
    pace.ended(1, 0.5, deep=True)
    assert pace.size == 40


def test_without_threads_the_time_of_the_whole_batch_counts() -> None:
    pace = BatchPace(batch(), by_item=False)
    pace.ended(20, 11, deep=True)
    assert pace.size == 10
