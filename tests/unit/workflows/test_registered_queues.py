"""The queues as they are registered: one each, with names, settings and limits of its own."""

import re
from dataclasses import replace
from typing import Any

import pytest

import services.workflows  # noqa: F401 - registers the queues
from config import PROJECT_ROOT, Settings, load_settings
from services.checks.queue_numbers import QueueNumbers
from services.errors import ConfigurationError, InvalidInput
from services.queues.queue import Queue, Queues, queues
from services.queues.steps import Steps

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


# job id, display name, minutes, batch, instances, misfire grace: what other programs and people rely on
CONTRACT = [
    ("process_pending_domains", "Process Pending Domains", 1, 50, 3, 60),
    ("process_deep_scan_queue", "WF2 - Deep Scan Queue Processor", 5, 10, 1, 60),
    ("process_domain_extraction_queue", "WF3 - Domain Extraction Queue Processor", 2, 20, 1, 60),
    ("process_pending_domain_sitemap_submissions", "Domain Sitemap Submission Scheduler", 1, 10, 1, 60),
    ("process_sitemap_jobs", "Process Sitemap Analysis Jobs", 1, 5, 1, 60),
    ("process_sitemap_imports", "Process Pending Sitemap Imports", 1, 20, 1, 1800),
    ("v2_page_curation_processor", "Page Curation Queue Processor", 1, 10, 1, 60),
]


@pytest.mark.parametrize("row", CONTRACT, ids=lambda row: row[0])
def test_a_workflow_is_what_its_contract_says(row: tuple[Any, ...]) -> None:
    queue, settings = queues.find(row[0]), Settings()
    numbers = [queue.setting(settings, name) for name in ("interval_minutes", "batch_size", "max_instances")]
    assert (queue.job_id, queue.display_name, *numbers, queue.misfire_grace_seconds) == row


def test_every_queue_has_all_its_settings_and_shares_them_with_nobody() -> None:
    built_in = [queues.find(row[0]) for row in CONTRACT]
    assert len({queue.settings for queue in built_in}) == len(built_in) == 7


def test_the_numbers_of_a_run_are_the_queue_s_own_where_its_schedule_says_nothing() -> None:
    concurrency = dict(zip([row[0] for row in CONTRACT], [20, 5, 1, 1, 5, 4, 10], strict=True))
    for job_id, items in concurrency.items():
        limits = queues.find(job_id).limits(Settings(sitemap_job_timeout_seconds=60))
        numbers = (limits.concurrency, limits.run_budget_seconds, limits.item_timeout_seconds, limits.max_attempts)
        assert numbers == (items, 50, 60, 3), job_id


def test_the_schedule_wins_over_a_variable_of_version_0_1_and_that_over_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DEEP_SCAN_SCHEDULER_CONCURRENCY", "7")
    monkeypatch.setenv("DEEP_SCAN_SCHEDULER_MAX_ATTEMPTS", "9")
    limits = queues.find("deep_scan").limits(load_settings(), QueueNumbers(max_attempts=2))
    assert (limits.concurrency, limits.max_attempts, limits.run_budget_seconds) == (7, 2, 50)
    assert queues.find("domain_extraction").limits(load_settings()).concurrency == 1


def test_a_claim_is_stale_when_the_most_patient_schedule_of_its_queue_would_have_given_it_up() -> None:
    settings, quick, patient = Settings(), QueueNumbers(item_timeout_seconds=5), QueueNumbers(item_timeout_seconds=600)
    limits = queues.find("deep_scan").limits(settings, quick, [patient])
    assert (limits.item_timeout_seconds, limits.stale_after_seconds) == (5, 660)


def test_a_limit_of_its_own_is_really_a_limit() -> None:
    settings = Settings(sitemap_job_timeout_seconds=7, workflow_stale_slack_seconds=10)
    limits = queues.find("sitemap_jobs").limits(settings)
    assert (limits.item_timeout_seconds, limits.stale_after_seconds) == (7, 17)


def test_one_job_serves_one_workflow() -> None:
    assert len({queue.job_id for queue in queues.all()}) == len(queues.all())
    with pytest.raises(InvalidInput, match="unknown queue 'process_pending_jobs'"):
        queues.find("process_pending_jobs")


def test_two_queues_of_one_name_are_refused() -> None:
    registry = Queues()
    first: Queue[Any] = queues.all()[0]
    registry.register(first)
    registry.register(first)  # imported twice
    with pytest.raises(ConfigurationError, match="registered twice"):
        registry.register(replace(first, display_name="another one"))


def test_a_schedule_has_the_same_id_in_every_installation() -> None:
    assert str(queues.find("deep_scan").schedule_id) == "89b2b550-58b6-5a9a-82ff-aacee7ed06c0"


def test_no_user_and_no_tenant_is_written_into_the_code() -> None:
    """But for examples: one is a setting's default, and one is nobody: the namespace of ids that are made of names."""
    files = set((PROJECT_ROOT / "services").rglob("*.py")) - {PROJECT_ROOT / "services/web/examples.py"}
    files.add(PROJECT_ROOT / "config.py")
    lines = [line for file in files for line in file.read_text().splitlines() if UUID.search(line)]
    found = sorted(UUID.sub("…", line).strip() for line in lines)
    assert [line for line in found if not line.startswith("manage.py ")] == [  # examples in the help of a command
        'EXTERNAL_IDS = UUID("…")',
        'UUID("…"), FLOWS, "tenant of scanned places that have none"',
    ]
    assert str(Settings().default_tenant_id) in "".join(lines)


def test_steps_and_queues_may_name_their_key_type() -> None:
    assert Steps[int](save=lambda session, key, result: None).work is None


def test_the_documentation_has_the_numbers_of_every_queue() -> None:
    page = (PROJECT_ROOT / "docs/pipeline.md").read_text()
    for queue in (queues.find(row[0]) for row in CONTRACT):
        timeout = f"{queue.item_timeout_seconds}"
        timeout += f", at most `{queue.item_timeout_setting.upper()}`" if queue.item_timeout_setting else ""
        numbers = f"{queue.concurrency} | {queue.run_budget_seconds} | {timeout} | {queue.max_attempts}"
        assert f"| `{queue.name}` | `{queue.job_id}` | {numbers} |" in page
