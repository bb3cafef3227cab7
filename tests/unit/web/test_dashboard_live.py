"""What keeps a page from doing something twice, or showing an old answer."""

import asyncio

import pytest

from services.web.dashboard.live import Newest, Once


def test_the_second_half_of_a_double_click_does_nothing() -> None:
    async def click_twice() -> int:
        done, may_end, once = 0, asyncio.Event(), Once()

        async def work() -> bool:
            nonlocal done
            done += 1
            await may_end.wait()
            return True

        clicks = [asyncio.create_task(once.do(work)) for _ in range(2)]
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.gather(*clicks)
        await once.do(work)  # a third click, while the browser is on its way to the next page
        return done

    assert asyncio.run(click_twice()) == 1


def test_what_did_not_work_may_be_clicked_again() -> None:
    async def click_again() -> int:
        done, once = 0, Once()

        async def fail() -> bool:
            nonlocal done
            done += 1
            if done == 1:
                raise RuntimeError("no")
            return False

        with pytest.raises(RuntimeError):
            await once.do(fail)
        await once.do(fail)
        await once.do(fail)
        return done

    assert asyncio.run(click_again()) == 3


def test_an_answer_that_was_overtaken_is_not_shown() -> None:
    async def overtake() -> tuple[str | None, str | None]:
        newest, old, new = Newest(), asyncio.Future[str](), asyncio.Future[str]()
        first, second = asyncio.create_task(newest.of(old)), asyncio.create_task(newest.of(new))
        await asyncio.sleep(0)
        new.set_result("new")
        shown = await second
        old.set_result("old")
        return await first, shown

    assert asyncio.run(overtake()) == (None, "new")
