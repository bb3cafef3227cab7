"""The threads of a run: what is handed over together, what is not waited for."""

import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from services.workflows import item_threads
from services.workflows.item_threads import ItemThreads
from services.workflows.outcomes import Claimed


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
        threads.start(Claimed(key, "t", 1), partial(time.sleep, key / 20))
    assert [ended.claim.key for ended in threads.ended(30)] == [0, 1, 2]


def test_an_item_that_takes_longer_holds_up_nobody(threads: ItemThreads[int]) -> None:
    go_on = threading.Event()
    threads.start(Claimed(1, "t", 1), partial(go_on.wait, 30))
    threads.start(Claimed(2, "t", 1), int)
    assert [ended.claim.key for ended in threads.ended(30)] == [2]
    go_on.set()
    assert [ended.claim.key for ended in threads.ended(30)] == [1]
