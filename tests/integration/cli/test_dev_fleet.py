"""Where the demo's scans run: on Celery workers with --fleet, and on replicas again without."""

from services.cli.dev_demo import prepare_demo
from services.cli.dev_fleet import QUEUE, lead_scans
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
