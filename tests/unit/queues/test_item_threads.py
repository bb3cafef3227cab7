"""The threads of a run: what is handed over together, what is not waited for."""

import queue
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from services.queues import item_threads
from services.queues.item_threads import ItemThreads
from services.queues.outcomes import Claim
from tests.support.waiting import eventually


@pytest.fixture
def threads() -> Iterator[ItemThreads[int]]:
    threads: ItemThreads[int] = ItemThreads("a queue of its own", 3, 60)
    yield threads
    threads.stop()


def test_items_that_end_shortly_after_one_another_are_handed_over_together(
    threads: ItemThreads[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_threads, "TOGETHER_SECONDS", 30)
    for key in range(3):
        threads.start(Claim(key, "t", 1), partial(time.sleep, key / 20))
    assert [ended.claim.key for ended in threads.ended(30)] == [0, 1, 2]


def test_an_item_that_takes_longer_holds_up_nobody(threads: ItemThreads[int]) -> None:
    go_on = threading.Event()
    threads.start(Claim(1, "t", 1), partial(go_on.wait, 30))
    threads.start(Claim(2, "t", 1), int)
    assert [ended.claim.key for ended in threads.ended(30)] == [2]
    go_on.set()
    assert [ended.claim.key for ended in threads.ended(30)] == [1]


def test_a_thread_that_ended_its_item_in_the_moment_it_was_given_up_is_not_abandoned() -> None:
    """The run has looked for results, there was none, and only then the thread put one there and took the next task.
    As an abandoned one it would live for ever, and cost the queue a place for ever."""
    waits_again = threading.Event()

    class Tasks(queue.SimpleQueue):  # type: ignore[type-arg]
        asked = 0

        def get(self, block: bool = True, timeout: float | None = None) -> object:
            self.asked += 1
            if self.asked == 2:
                waits_again.set()
            return super().get(block, timeout)

    threads: ItemThreads[int] = ItemThreads("another queue of its own", 1, timeout_seconds=0)
    threads._tasks = Tasks()
    threads.start(Claim(1, "t", 1), int)
    assert waits_again.wait(30)
    (given_up,) = threads._give_up_overdue()  # what `ended` does after it has looked
    assert (given_up.claim.key, threads.busy, threads.places) == (1, 0, 1)
    threads.stop()
    eventually(lambda: not any(thread.name == "item-another queue of its own" for thread in threading.enumerate()))
