"""The pipeline of `make run`: what an empty database gets, and what is left alone."""

import json
from urllib.parse import urlencode

from config import get_settings
from database.connection import DatabaseConnection
from services.cli.demo.directory import BUSINESSES, SEARCH_PATH, directory_answer
from services.cli.dev_demo import demo_schedules
from services.cli.dev_pipeline import EVERY_SECONDS, is_demo, prepare_pipeline
from services.schedule_repository import ScheduleRepository
from services.workflows import queues
from services.workflows.deep_scan import DEEP_SCAN
from tests.support.places import places, query


def prepare(db: DatabaseConnection, repository: ScheduleRepository) -> list[str]:
    return list(prepare_pipeline(db, repository, get_settings()))


def test_an_empty_database_gets_places_and_queues_that_run_often(
    db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    assert prepare(db, repository) == [f"{len(BUSINESSES)} places of the demo directory are queued for their deep scan"]
    assert places(db) == ["Queued"] * len(BUSINESSES)
    often = [repository.find_schedule(queue.schedule_id).time_config for queue in queues.all()]
    assert often == [{"seconds": EVERY_SECONDS}] * 7


def test_a_second_start_adds_nothing_and_leaves_alone_what_somebody_changed(
    db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    prepare(db, repository)
    query(db, "UPDATE places_staging SET deep_scan_status = 'Completed'")
    repository.update_schedule(DEEP_SCAN.schedule_id, time_config={"minutes": 3}, actor="anna")
    assert prepare(db, repository) == []
    assert places(db) == ["Completed"] * len(BUSINESSES)
    assert repository.find_schedule(DEEP_SCAN.schedule_id).time_config == {"minutes": 3}


def test_only_a_database_with_the_demo_is_one(repository: ScheduleRepository) -> None:
    repository.create_schedule(domain="example.com", frequency="daily", time_config={"hour": 2, "minute": 0})
    assert not is_demo(repository)
    repository.save_schedules(demo_schedules("http://127.0.0.1:1"))
    assert is_demo(repository)


def test_the_town_answers_by_host() -> None:
    home = directory_answer("www.elmwood-bakery.example", "/", "")
    assert home is not None
    assert (home.status, b"Elmwood Bakery" in home.body) == (200, True)
    nowhere = directory_answer("nowhere.example", "/", "")
    assert nowhere is not None
    assert nowhere.status == 404
    assert directory_answer("127.0.0.1", "/", "") is None


def test_the_town_s_directory_can_be_searched() -> None:
    def found(query: str) -> list[str]:
        answer = directory_answer("127.0.0.1", SEARCH_PATH, urlencode({"query": query}))
        assert answer is not None
        return [place["place_id"] for place in json.loads(answer.body)["results"]]

    assert found("bakeries in Buffalo") == ["demo-place-11"]
    assert found("lighthouses on the moon") == []
