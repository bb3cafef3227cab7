"""Coroutine functions as steps of a queue: with an AsyncSession, fenced and finished in one transaction."""

import asyncio
import inspect
import logging
import threading
import time
from enum import Enum
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from database import async_connection
from database.connection import DatabaseConnection
from database.workflow_models import Place
from database.workflow_statuses import DeepScanStatus
from enhanced_scheduler.log_capture import speaking_for
from services.errors import ConfigurationError
from services.jobs import PermanentFailure
from services.queues import job_loop
from services.queues.async_job_loop import run_job_loop
from services.queues.loop_limits import LoopLimits
from services.queues.steps import Steps
from tests.support.contexts import Heard, a_context
from tests.support.places import add_places, places, query, run_places
from tests.support.waiting import eventually

NAME = text("UPDATE places_staging SET name = :name WHERE id = :id")


def test_a_coroutine_function_works_as_the_documents_write_it(db: DatabaseConnection) -> None:
    keys = add_places(db, 5)

    async def process(item_id: int, session: AsyncSession) -> None:
        async with session.begin():
            place = await session.get(Place, item_id)
            assert place is not None
            await asyncio.sleep(0.001)
            place.name = f"place {item_id}"

    summary = run_places(db, process)
    assert (summary.claimed, summary.succeeded, summary.ended) == (5, 5, "empty")
    row = "deep_scan_status, name, attempts, claim_token"
    assert places(db, row) == [("Completed", f"place {key}", 1, None) for key in keys]


class Scan(Enum):
    """As documents declare one: no text by itself."""

    Queued = "Queued"
    Processing = "Processing"
    Completed = "Completed"
    Error = "Error"


DOCUMENTED = (
    "model", "status_enum", "queued_status", "processing_status", "completed_status", "failed_status",
    "processing_function", "batch_size", "order_by_column", "status_field_name", "error_field_name",
)  # fmt: skip


def test_both_loops_have_the_arguments_of_the_documents_in_their_order() -> None:
    here, plain = (inspect.signature(loop).parameters for loop in (run_job_loop, job_loop.run_job_loop))
    assert [*map(without_address, here.values())] == [*map(without_address, plain.values())]
    assert tuple(here)[: len(DOCUMENTED)] == DOCUMENTED
    assert {here[name].kind for name in DOCUMENTED} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


def without_address(parameter: inspect.Parameter) -> str:
    return str(parameter).partition(" at 0x")[0]


@pytest.mark.usefixtures("own_process")
def test_the_loop_takes_them_by_position_and_needs_no_further_one(db: DatabaseConnection) -> None:
    keys = add_places(db, 3)
    seen: list[int] = []

    async def process(item_id: int, session: AsyncSession) -> None:
        seen.append(item_id)

    words = (Scan.Queued, Scan.Processing, Scan.Completed, Scan.Error)
    newest_first = Place.id.desc()
    arguments = (Place, Scan, *words, process, 1, newest_first, "deep_scan_status", "deep_scan_error")
    done = asyncio.run(run_job_loop(*arguments))
    assert (done.succeeded, seen) == (3, keys[::-1])
    assert places(db, "deep_scan_status") == ["Completed"] * 3


def test_the_loop_can_be_awaited(db: DatabaseConnection) -> None:
    add_places(db, 3)

    async def process(item_id: int, session: AsyncSession) -> None:
        await session.execute(NAME, {"name": "done", "id": item_id})

    async def call() -> tuple[int, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        ticking = asyncio.create_task(tick())
        summary = await run_job_loop(
            model=Place,
            status_enum=DeepScanStatus,
            queued_status=DeepScanStatus.QUEUED,
            processing_status=DeepScanStatus.PROCESSING,
            completed_status=DeepScanStatus.COMPLETED,
            failed_status=DeepScanStatus.ERROR,
            processing_function=process,
            batch_size=2,
            status_field_name="deep_scan_status",
            error_field_name="deep_scan_error",
            db=db,
        )
        ticking.cancel()
        return summary.succeeded, ticks

    succeeded, ticks = asyncio.run(call())
    assert succeeded == 3
    assert ticks > 0, "the caller's loop goes on"
    assert places(db, "name") == ["done"] * 3


def test_whoever_cancels_the_awaiting_caller_gets_the_items_back(db: DatabaseConnection) -> None:
    add_places(db, 2)
    begun = threading.Event()

    async def work(_snapshot: Any) -> None:
        begun.set()
        await asyncio.sleep(3600)

    def save(session: Session, key: int, result: Any) -> None: ...

    async def call() -> None:
        run = asyncio.create_task(
            run_job_loop(
                model=Place,
                status_enum=DeepScanStatus,
                queued_status=DeepScanStatus.QUEUED,
                processing_status=DeepScanStatus.PROCESSING,
                completed_status=DeepScanStatus.COMPLETED,
                failed_status=DeepScanStatus.ERROR,
                processing_function=Steps(work=work, save=save),
                status_field_name="deep_scan_status",
                error_field_name="deep_scan_error",
                limits=LoopLimits(concurrency=2),
                db=db,
            )
        )
        await asyncio.to_thread(begun.wait, 30)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(call())
    assert places(db, "deep_scan_status, claim_token") == [("Queued", None)] * 2


def test_what_a_failed_function_has_committed_does_not_survive_it(db: DatabaseConnection) -> None:
    add_places(db, 1)

    async def process(item_id: int, session: AsyncSession) -> None:
        await session.execute(NAME, {"name": "half done", "id": item_id})
        await session.commit()
        raise PermanentFailure("the second half failed")

    assert run_places(db, process).failed == 1
    assert places(db, "name, deep_scan_status, deep_scan_error") == [(None, "Error", "the second half failed")]


def test_one_that_fails_takes_none_of_its_batch_with_it(db: DatabaseConnection) -> None:
    keys = add_places(db, 4)

    async def process(item_id: int, session: AsyncSession) -> None:
        await session.execute(NAME, {"name": "done", "id": item_id})
        if item_id == keys[1]:
            await session.execute(text("SELECT 1 / 0"))

    summary = run_places(db, process, max_attempts=1)
    assert (summary.succeeded, summary.dead) == (3, 1)
    assert places(db, "name") == ["done", None, "done", "done"]


def test_all_steps_may_be_coroutines_and_work_has_no_session(db: DatabaseConnection) -> None:
    keys = add_places(db, 20)
    loops: set[int] = set()
    at_once = most = 0

    async def load(session: AsyncSession, key: int) -> str:
        return str(await session.scalar(text("SELECT place_id FROM places_staging WHERE id = :id"), {"id": key}))

    async def work(snapshot: str) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        loops.add(id(asyncio.get_running_loop()))
        await asyncio.sleep(0.05)
        at_once -= 1
        if snapshot.startswith("0"):
            raise PermanentFailure("begins with 0")
        return f"worked {snapshot}"

    async def save(session: AsyncSession, key: int, result: str) -> None:
        await session.execute(NAME, {"name": result, "id": key})

    told: list[int] = []

    async def on_failed(session: AsyncSession, key: int, error: str) -> None:
        told.append(key)
        await session.execute(NAME, {"name": error, "id": key})

    summary = run_places(db, Steps(load=load, work=work, save=save, on_failed=on_failed), concurrency=10, batch_size=10)
    assert summary.succeeded + summary.failed == 20
    failed = [key for key, id_ in zip(keys, places(db, "place_id"), strict=True) if id_.startswith("0")]
    assert sorted(told) == failed
    assert all(name in ("begins with 0", f"worked {id_}") for name, id_ in places(db, "name, place_id"))
    assert len(loops) == 1, "clients may be shared between items"
    assert most > 1


def test_an_item_that_takes_too_long_gets_a_cancelled_error_and_leaves_no_thread(db: DatabaseConnection) -> None:
    add_places(db, 1)
    heard: list[str] = []

    async def work(_snapshot: Any) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    def save(session: Session, key: int, result: Any) -> None: ...

    summary = run_places(db, Steps(work=work, save=save), item_timeout_seconds=0.2, max_attempts=1)
    assert summary.dead == 1
    assert places(db, "deep_scan_error") == ["did not finish within 0.2 s"]
    eventually(lambda: heard == ["cancelled"])
    eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith("item-")])


def test_a_function_that_takes_too_long_in_its_session_times_out(db: DatabaseConnection) -> None:
    add_places(db, 2)

    async def process(item_id: int, session: AsyncSession) -> None:
        await session.execute(text("SELECT pg_sleep(60)"))

    begun = time.monotonic()
    summary = run_places(db, process, item_timeout_seconds=0.3, max_attempts=1)
    assert summary.dead == 2
    assert places(db, "deep_scan_error") == ["did not finish within 0.3 s"] * 2
    assert time.monotonic() - begun < 30


def test_a_row_that_was_taken_over_meanwhile_is_not_written(db: DatabaseConnection) -> None:
    add_places(db, 1)

    async def work(_snapshot: Any) -> str:
        await asyncio.to_thread(
            query, db, "UPDATE places_staging SET claim_token = gen_random_uuid() RETURNING claim_token"
        )
        return "late"

    async def save(session: AsyncSession, key: int, result: str) -> None:
        await session.execute(NAME, {"name": result, "id": key})

    summary = run_places(db, Steps(work=work, save=save))
    assert (summary.lost, places(db, "name")) == (1, [None])


def test_what_a_coroutine_logs_belongs_to_the_run_s_execution(db: DatabaseConnection) -> None:
    add_places(db, 1)
    context, heard = a_context(), Heard()
    context.listen(heard)

    async def process(item_id: int, session: AsyncSession) -> None:
        logging.getLogger("shop").warning("async place")

    speaking_for(context, lambda: run_places(db, process))
    assert "shop: async place" in [line.text for line in heard.lines]


def test_a_function_that_calls_sys_exit_fails_alone(db: DatabaseConnection) -> None:
    add_places(db, 2)

    async def process(item_id: int, session: AsyncSession) -> None:
        raise SystemExit(3)

    assert run_places(db, process, max_attempts=1).dead == 2


def test_without_the_extra_one_line_says_what_to_install(
    db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_places(db, 1)
    monkeypatch.setattr(async_connection, "is_installed", lambda extra: extra != "async")

    async def process(item_id: int, session: AsyncSession) -> None: ...

    with pytest.raises(ConfigurationError, match=r"async steps with a session need `pip install .*async") as refused:
        run_places(db, process)
    assert len(str(refused.value).splitlines()) == 1
    assert places(db, "deep_scan_status, attempts") == [("Queued", 0)]


def test_without_the_extra_work_without_a_session_may_be_async(
    db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_places(db, 1)
    monkeypatch.setattr(async_connection, "is_installed", lambda extra: extra != "async")

    async def work(_snapshot: Any) -> str:
        return "worked"

    def save(session: Session, key: int, result: Any) -> None:
        session.execute(NAME, {"name": result, "id": key})

    assert run_places(db, Steps(work=work, save=save)).succeeded == 1
    assert places(db, "name") == ["worked"]
