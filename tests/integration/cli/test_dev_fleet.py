"""Where the demo's scans run: on Celery workers with --fleet, and on replicas again without."""

from contextlib import closing
from uuid import uuid4

from database.connection import DatabaseConnection
from services.cli.dev_demo import prepare_demo
from services.cli.dev_fleet import QUEUE, lead_scans
from services.cli.dev_snapshot import take_snapshot
from services.schedule_repository import ScheduleRepository


def queues(repository: ScheduleRepository) -> set[tuple[str, str | None]]:
    return {(record.job_type, record.queue) for record in repository.iter_schedules()}


def test_the_demos_scans_are_led_to_the_fleet_and_back(repository: ScheduleRepository) -> None:
    list(prepare_demo(repository, "http://127.0.0.1:1"))
    assert list(lead_scans(repository, to_fleet=False)) == []
    assert len(list(lead_scans(repository, to_fleet=True))) == 1
    assert queues(repository) == {("cookie_scan", QUEUE), ("http_request", None)}
    assert list(lead_scans(repository, to_fleet=True)) == []
    assert len(list(lead_scans(repository, to_fleet=False))) == 1
    assert queues(repository) == {("cookie_scan", None), ("http_request", None)}


def test_a_scan_whose_queue_somebody_has_chosen_keeps_it(repository: ScheduleRepository) -> None:
    list(prepare_demo(repository, "http://127.0.0.1:1"))
    for record in repository.iter_schedules():
        repository.update_schedule(record.schedule_id, queue="own")
    assert list(lead_scans(repository, to_fleet=True)) == list(lead_scans(repository, to_fleet=False)) == []


def test_the_children_of_a_worker_are_shown_as_one(db: DatabaseConnection) -> None:
    with db.transaction() as connection:
        for name, pool in (("worker-1-857", "prefork"), ("worker-1-859", "prefork"), ("worker-2", "threads")):
            connection.exec_driver_sql(
                """INSERT INTO scheduler_instances (instance_id, incarnation, kind, queues, facts)
                   VALUES (%s, %s, 'worker', '{scan}', jsonb_build_object('pool', %s::text, 'max_workers', 2))""",
                (name, uuid4(), pool),
            )
    with closing(db.dedicated()) as connection:
        workers = take_snapshot(connection, 10).workers
    assert [(row.name, row.queues, row.places, row.running) for row in workers] == [
        ("worker-1", "scan", 4, 0),
        ("worker-2", "scan", 2, 0),
    ]
