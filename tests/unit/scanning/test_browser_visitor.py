"""Pages that do not want to be closed. A real one does so now and then only, so these are pretended."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from services.fetching import Guard
from services.scanning.engines.browser.limits import BrowserLimits
from services.scanning.engines.browser.visitor import Visitor
from services.scanning.engines.guarded_proxy import GuardedProxy


class StubbornPage:
    def __init__(self, gives_in: Callable[[], bool]) -> None:
        self._gives_in = gives_in
        self.is_closed = False

    async def close(self) -> None:
        while not self._gives_in():
            await asyncio.sleep(0.01)
        self.is_closed = True


def visitor_and_proxy() -> tuple[Visitor, GuardedProxy]:
    proxy = GuardedProxy(Guard.parse(False, ""))
    proxy.begin_page(1_000)
    nobody = cast(Any, None)
    return Visitor(nobody, nobody, proxy, BrowserLimits(collect_seconds=0.1)), proxy


def end(visitor: Visitor, page: StubbornPage) -> None:
    asyncio.run(visitor._end(cast(Any, page)))


def test_a_page_that_loads_itself_for_ever_gets_no_more_answers_and_is_closed() -> None:
    visitor, proxy = visitor_and_proxy()
    page = StubbornPage(lambda: proxy.is_shut)
    end(visitor, page)
    assert (page.is_closed, visitor.is_stuck) == (True, False)


def test_who_has_a_page_that_cannot_be_closed_at_all_is_stuck() -> None:
    visitor, _ = visitor_and_proxy()
    end(visitor, StubbornPage(lambda: False))
    assert visitor.is_stuck


def test_a_page_that_is_closed_at_once_leaves_the_connections_alone() -> None:
    visitor, proxy = visitor_and_proxy()
    end(visitor, StubbornPage(lambda: True))
    assert (visitor.is_stuck, proxy.is_shut) == (False, False)
