"""The repository: what users write is checked, saved whole or not at all, and found again."""

import base64
import json
import random
import threading
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from database.connection import DatabaseConnection
from services.errors import InvalidInput, InvalidSchedule, RevisionConflict, ScheduleNotFound
from services.jobs import JobRegistry
from services.schedule_repository import ROWS_PER_COMMIT, ScheduleRepository, get_schedule_repository
from services.schedules.listing import ScheduleFilter
from tests.support.schedules import BAD_INPUT, TAKEN, VALID, WORKFLOW, many


def rows(db: DatabaseConnection, sql: str) -> list[tuple[Any, ...]]:
    with db.transaction() as connection:
        return [tuple(row) for row in connection.execute(text(sql))]


# --- the contract's own example ---


def test_the_documented_example_runs_as_it_stands(own_process: dict[str, str]) -> None:
    repo = get_schedule_repository()

    schedule_id = repo.create_schedule(
        domain_config_id="abc-123",
        domain="example.com",
        frequency="daily",
        time_config={"hour": 2, "minute": 0},
        enabled=True,
    )
    created = repo.get_schedule(schedule_id)
    assert created is not None
    assert (created.domain, created.external_id, created.frequency) == ("example.com", "abc-123", "daily")

    repo.update_schedule(
        schedule_id=schedule_id, frequency="weekly", time_config={"day": "monday", "hour": 2, "minute": 0}
    )
    updated = repo.get_schedule(schedule_id)
    assert updated is not None
    assert updated.trigger.describe() == "every Monday at 02:00 UTC"
    assert repo.get_schedule_by_config_id("abc-123") == updated

    assert repo.delete_schedule(schedule_id)
    assert repo.get_schedule(schedule_id) is None
    assert repo.delete_schedule(schedule_id) is False


# --- bad input ---


@pytest.mark.parametrize(("difference", "lines"), BAD_INPUT, ids=lambda value: str(value)[:60])
def test_bad_input_is_refused_with_field_and_reason_and_nothing_is_written(
    repository: ScheduleRepository, db: DatabaseConnection, difference: dict[str, Any], lines: list[str]
) -> None:
    repository.create_schedule(**{**VALID, "schedule_id": TAKEN, "name": "taken"})
    before = rows(db, "SELECT * FROM schedules"), rows(db, "SELECT * FROM schedule_changes")
    with pytest.raises(InvalidSchedule) as refused:
        repository.create_schedule(**{**VALID, **difference})
    assert [str(problem) for problem in refused.value.problems] == lines
    assert (rows(db, "SELECT * FROM schedules"), rows(db, "SELECT * FROM schedule_changes")) == before


def test_the_table_of_bad_input_is_not_shrinking() -> None:
    assert len(BAD_INPUT) >= 50


@pytest.mark.parametrize("missing", ["domain", "frequency", "time_config"])
def test_what_is_required_must_be_given(repository: ScheduleRepository, missing: str) -> None:
    given = {name: value for name, value in VALID.items() if name != missing}
    with pytest.raises(InvalidSchedule, match=f"^{missing}: is required$"):
        repository.create_schedule(**given)


def test_a_change_is_judged_by_the_merged_result(repository: ScheduleRepository) -> None:
    schedule_id = repository.create_schedule(**VALID)
    with pytest.raises(InvalidSchedule, match=r"^time_config.day: is required$"):
        repository.update_schedule(schedule_id, frequency="weekly")
    assert repository.find_schedule(schedule_id).frequency == "daily"


def test_an_id_that_is_none_is_a_clear_error(repository: ScheduleRepository) -> None:
    with pytest.raises(InvalidSchedule, match=r"^schedule_id: must be a UUID, got 'x'$"):
        repository.get_schedule("x")
    repository.create_schedule(schedule_id=TAKEN, **VALID)
    with pytest.raises(InvalidSchedule, match=f"^schedule_id: schedule {TAKEN} already exists$"):
        repository.create_schedule(schedule_id=TAKEN, **VALID)


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"deeper": value}
    return value


@pytest.mark.parametrize(
    "given",
    [
        {"job_config": deep(5000)},
        {"time_config": deep(5000)},
        {"tags": [deep(5000)]},
        {"priority": 10**5000},
        {"job_config": {"n": 10**5000}},
        {"actor": "a\0b"},
        {"actor": "a\udcff"},
        {"domain": "a\udcff.example"},
    ],
    ids=lambda value: next(iter(value)),
)
def test_what_no_table_can_hold_is_refused(repository: ScheduleRepository, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"^{next(iter(given))}"):
        repository.create_schedule(**{**VALID, **given})
    assert repository.count_schedules() == 0


@pytest.mark.parametrize("text", ["a\0b", "a\udcff", 7])
def test_what_is_no_text_is_not_looked_for(repository: ScheduleRepository, text: Any) -> None:
    for look in (
        repository.find_schedule,
        repository.get_schedules_by_domain,
        repository.get_schedule_by_config_id,
        lambda text: repository.list_schedules(ScheduleFilter(search=text)),
        lambda text: repository.count_schedules(ScheduleFilter(tag=text)),
    ):
        if isinstance(text, str) or look in (repository.get_schedules_by_domain, repository.get_schedule_by_config_id):
            with pytest.raises(InvalidInput):
                look(text)


def test_text_that_looks_like_an_escape_is_text(db: DatabaseConnection) -> None:
    repository = ScheduleRepository(db, JobRegistry({"noop"}))  # a job that takes any configuration
    config = {r"a\u0000": [r"C:\u0000", "\\\\u0000"]}
    record = repository.find_schedule(repository.create_schedule(**VALID, job_type="noop", job_config=config))
    assert record.job_config == config


def test_the_largest_allowed_job_config_is_stored(db: DatabaseConnection) -> None:
    repository = ScheduleRepository(db, JobRegistry({"noop"}))
    config: dict[str, Any] = {"ones": [1] * 21_000, "deep": deep(62), "int": 10**308}
    given = {**VALID, "job_type": "noop", "job_config": {**config, "float": 1e308}}
    record = repository.find_schedule(repository.create_schedule(**given))
    assert float(record.job_config["float"]) == 1e308
    assert {**record.job_config, "float": None} == {**config, "float": None}


# --- what is stored ---


def test_external_ids_become_stable_uuids_and_are_kept(repository: ScheduleRepository) -> None:
    first = repository.find_schedule(repository.create_schedule(**VALID, domain_config_id="abc-123"))
    second = repository.find_schedule(repository.create_schedule(**VALID, domain_config_id="abc-123"))
    assert first.domain_config_id == second.domain_config_id == UUID("25d77457-3ebb-57e6-8f84-71d2b10416b0")
    assert first.external_id == second.external_id == "abc-123"
    real = uuid4()
    plain = repository.find_schedule(repository.create_schedule(**VALID, domain_config_id=str(real)))
    assert (plain.domain_config_id, plain.external_id) == (real, None)


def test_another_configuration_has_another_external_id(repository: ScheduleRepository) -> None:
    schedule_id = repository.create_schedule(**VALID, domain_config_id="abc-123")
    assert repository.update_schedule(schedule_id, priority=1).external_id == "abc-123"
    assert repository.update_schedule(schedule_id, domain_config_id="def-456").external_id == "def-456"
    real = uuid4()
    changed = repository.update_schedule(schedule_id, domain_config_id=str(real).upper())
    assert (changed.domain_config_id, changed.external_id) == (real, None)
    assert repository.update_schedule(schedule_id, domain_config_id=None).domain_config_id == schedule_id


def test_a_schedule_that_is_about_no_domain_is_about_itself(repository: ScheduleRepository) -> None:
    given = {**VALID, **WORKFLOW, "domain": "nightly report"}
    record = repository.find_schedule(repository.create_schedule(**given))
    assert (record.domain, record.domain_config_id) == ("nightly report", record.schedule_id)


def test_domains_have_one_spelling(repository: ScheduleRepository) -> None:
    given = {**VALID, "domain": " Bücher.Example. "}
    record = repository.find_schedule(repository.create_schedule(**given))
    assert record.domain == "xn--bcher-kva.example"
    for spelling in ("XN--BCHER-KVA.example", "Bücher.example", " bücher.EXAMPLE. "):
        assert repository.get_schedules_by_domain(spelling) == [record]
        assert repository.find_schedule(spelling) == record


def test_a_readable_name_is_found_as_it_was_written(repository: ScheduleRepository) -> None:
    given = {**VALID, **WORKFLOW, "domain": "Nightly Report"}
    record = repository.find_schedule(repository.create_schedule(**given))
    assert repository.find_schedule("Nightly Report") == record
    assert repository.get_schedules_by_domain("Nightly Report") == [record]


def test_the_api_s_own_schedule_is_preferred_for_a_configuration(repository: ScheduleRepository) -> None:
    repository.create_schedule(**VALID, domain_config_id="abc-123")
    own = repository.create_schedule(**VALID, domain_config_id="abc-123", source="api")
    found = repository.get_schedule_by_config_id("abc-123")
    assert found is not None
    assert found.schedule_id == own
    assert repository.get_schedule_by_config_id("unknown") is None


def test_the_api_has_one_schedule_per_configuration(repository: ScheduleRepository) -> None:
    repository.create_schedule(**VALID, domain_config_id="abc-123", source="api")
    with pytest.raises(InvalidSchedule, match=r"^domain_config_id: already has a schedule from the API: "):
        repository.create_schedule(**VALID, domain_config_id="abc-123", source="api")


def test_a_used_configuration_is_refused_in_every_way_of_saving(repository: ScheduleRepository) -> None:
    own = repository.create_schedule(**VALID, domain_config_id="abc-123", source="api")
    manual = repository.create_schedule(**VALID, domain_config_id="abc-123", name="manual")
    with pytest.raises(InvalidSchedule, match=f"^domain_config_id: already has a schedule from the API: {own}$"):
        repository.update_schedule(manual, source="api")
    clash = {**VALID, "name": "new", "domain_config_id": " abc-123", "source": "api"}
    summary = repository.save_schedules([*many(2), clash, {"name": " manual ", "priority": 3}])
    assert (summary.created, summary.updated) == (2, 1)
    assert [(saved.index, saved.problems[0].field) for saved in summary.refused] == [(2, "domain_config_id")]
    by_api = repository.save_schedules([{**clash, "schedule_id": manual, "domain_config_id": "other"}], match="api")
    assert [str(saved.problems[0]) for saved in by_api.refused] == [f"schedule_id: schedule {manual} already exists"]


# --- next_run ---

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def at_noon(db: DatabaseConnection) -> ScheduleRepository:
    return ScheduleRepository(db, now=lambda: NOON)


def test_next_run_is_right_from_the_start(at_noon: ScheduleRepository) -> None:
    record = at_noon.find_schedule(at_noon.create_schedule(**VALID))
    assert record.next_run == datetime(2027, 3, 2, 2, tzinfo=UTC)


def test_next_run_follows_a_change_of_timing(at_noon: ScheduleRepository) -> None:
    schedule_id = at_noon.create_schedule(**VALID)
    assert at_noon.update_schedule(schedule_id, timezone="America/New_York").next_run == datetime(
        2027, 3, 2, 7, tzinfo=UTC
    )
    assert at_noon.update_schedule(schedule_id, enabled=False).next_run is None
    assert at_noon.update_schedule(schedule_id, enabled=True).next_run == datetime(2027, 3, 2, 7, tzinfo=UTC)


def test_next_run_stays_when_the_timing_stays(at_noon: ScheduleRepository, db: DatabaseConnection) -> None:
    schedule_id = at_noon.create_schedule(**VALID)
    with db.transaction() as connection:
        connection.execute(text("UPDATE schedules SET next_run = '2027-03-05 02:00+00'"))
    assert at_noon.update_schedule(schedule_id, priority=5).next_run == datetime(2027, 3, 5, 2, tzinfo=UTC)


def test_a_schedule_without_a_further_fire_has_no_next_run(at_noon: ScheduleRepository) -> None:
    past = {**VALID, "frequency": "once", "time_config": {"at": "2026-01-01T00:00:00+00:00"}}
    assert at_noon.find_schedule(at_noon.create_schedule(**past)).next_run is None


def test_a_preview_shows_the_fires_to_come(at_noon: ScheduleRepository) -> None:
    schedule_id = at_noon.create_schedule(**VALID)
    first = datetime(2027, 3, 2, 2, tzinfo=UTC)
    assert at_noon.preview(schedule_id, 3) == [first + timedelta(days=days) for days in range(3)]
    with pytest.raises(ScheduleNotFound):
        at_noon.preview(uuid4())
    with pytest.raises(InvalidInput, match=r"^n: must be between 1 and 1000, got 0$"):
        at_noon.preview(schedule_id, 0)


# --- changing ---


def test_only_the_given_fields_change(repository: ScheduleRepository) -> None:
    schedule_id = repository.create_schedule(**VALID, tags=["a"], max_retries=3)
    before = repository.find_schedule(schedule_id)
    after = repository.update_schedule(schedule_id, max_retries=None)
    assert {name for name in VALID if getattr(after, name) != getattr(before, name)} == set()
    assert (after.max_retries, after.tags) == (None, ["a"])
    assert after.revision > before.revision


def test_a_change_without_a_difference_is_not_written(repository: ScheduleRepository) -> None:
    schedule_id = repository.create_schedule(**VALID)
    before = repository.find_schedule(schedule_id)
    assert repository.update_schedule(schedule_id, **VALID) == before
    assert len(repository.get_changes(schedule_id)) == 1


def test_two_editors_cannot_overwrite_each_other(repository: ScheduleRepository) -> None:
    schedule_id = repository.create_schedule(**VALID)
    seen = repository.find_schedule(schedule_id).revision
    repository.update_schedule(schedule_id, priority=1, expected_revision=seen)
    with pytest.raises(RevisionConflict, match=f"not {seen}: it was changed in the meantime"):
        repository.update_schedule(schedule_id, priority=2, expected_revision=seen)
    with pytest.raises(RevisionConflict):
        repository.delete_schedule(schedule_id, expected_revision=seen)
    assert repository.find_schedule(schedule_id).priority == 1


def test_edits_of_different_fields_at_the_same_time_are_both_kept(repository: ScheduleRepository) -> None:
    schedule_id = repository.create_schedule(**VALID)

    def edit(field: str) -> None:
        for number in range(1, 21):
            change: dict[str, Any] = {field: number}
            repository.update_schedule(schedule_id, **change)

    threads = [threading.Thread(target=edit, args=[field]) for field in ("priority", "max_retries", "spread_seconds")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record = repository.find_schedule(schedule_id)
    assert (record.priority, record.max_retries, record.spread_seconds) == (20, 20, 20)


def test_of_two_racing_creators_of_one_name_one_is_told_so(repository: ScheduleRepository) -> None:
    outcomes: list[str] = []
    barrier = threading.Barrier(4)

    def create() -> None:
        barrier.wait()
        try:
            repository.create_schedule(**VALID, name="unique")
            outcomes.append("created")
        except InvalidSchedule as error:
            outcomes.append(error.problems[0].field)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["created", "name", "name", "name"]


def test_a_broken_schedule_can_be_switched_off_and_only_that(
    repository: ScheduleRepository, db: DatabaseConnection
) -> None:
    schedule_id = repository.create_schedule(**VALID)
    with db.transaction() as connection:
        connection.execute(text("UPDATE schedules SET frequency = 'dayly'"))
    for change in ({"priority": 1}, {"enabled": True}):
        with pytest.raises(InvalidSchedule, match=r"^frequency: unknown frequency 'dayly'"):
            repository.update_schedule(schedule_id, **change)
    after = repository.update_schedule(schedule_id, enabled=False)
    assert (after.enabled, after.next_run, after.frequency) == (False, None, "dayly")
    assert repository.update_schedule(schedule_id, enabled=False) == after


def test_a_broken_schedule_can_be_switched_off_with_a_note(
    repository: ScheduleRepository, db: DatabaseConnection
) -> None:
    schedule_id = repository.create_schedule(**VALID)
    with db.transaction() as connection:
        connection.execute(text("UPDATE schedules SET frequency = 'dayly'"))
    off = repository.update_schedule(schedule_id, enabled=False, disabled_note="a typo")
    assert (off.enabled, off.disabled_note) == (False, "a typo")
    assert repository.update_schedule(schedule_id, enabled=False, disabled_note="a typo") == off
    assert repository.update_schedule(schedule_id, enabled=False) == off
    assert repository.update_schedule(schedule_id, enabled=False, disabled_note=None).disabled_note is None


def test_a_note_is_kept_by_other_changes_and_ends_when_the_schedule_is_on(repository: ScheduleRepository) -> None:
    schedule_id = repository.create_schedule(**VALID, enabled=False, disabled_note="  moving\n house ")
    changed = repository.update_schedule(schedule_id, priority=3)
    assert changed.disabled_note == "moving house"
    note_only = repository.update_schedule(schedule_id, disabled_note="still moving")
    assert (note_only.disabled_note, note_only.effective_from) == ("still moving", changed.effective_from)
    assert note_only.revision > changed.revision
    assert repository.update_schedule(schedule_id, enabled=True).disabled_note is None
    with pytest.raises(InvalidSchedule, match=r"^disabled_note: explains why a schedule is disabled"):
        repository.update_schedule(schedule_id, disabled_note="too late")


def test_changing_what_does_not_exist_is_a_clear_error(repository: ScheduleRepository) -> None:
    nobody = uuid4()
    with pytest.raises(ScheduleNotFound, match=f"there is no schedule {nobody}"):
        repository.update_schedule(nobody, priority=1)


def test_deleting_keeps_the_history(repository: ScheduleRepository, db: DatabaseConnection) -> None:
    schedule_id = repository.create_schedule(**VALID)
    with db.transaction() as connection:
        connection.execute(
            text("""INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, started_at)
                    SELECT schedule_id, 'job', domain, domain_config_id, 'success', now() FROM schedules""")
        )
    assert repository.delete_schedule(schedule_id)
    assert rows(db, "SELECT schedule_id FROM job_executions") == [(schedule_id,)]
    assert [change.operation for change in repository.get_changes(schedule_id)] == ["delete", "insert"]


def test_changes_name_the_actor_and_the_difference(repository: ScheduleRepository) -> None:
    schedule_id = repository.create_schedule(**VALID, actor="api:alice")
    repository.update_schedule(schedule_id, priority=9, actor="cli:bob")
    newest, oldest = repository.get_changes(schedule_id)
    assert (oldest.changed_by, newest.changed_by) == ("api:alice", "cli:bob")
    assert newest.differences == {"priority": (0, 9)}


# --- finding ---


def test_a_person_finds_a_schedule_by_what_they_know(repository: ScheduleRepository) -> None:
    schedule_id = repository.create_schedule(**VALID, name="nightly scan")
    for reference in (schedule_id, str(schedule_id), str(schedule_id)[:8], "nightly scan", "Example.com"):
        assert repository.find_schedule(reference).schedule_id == schedule_id
    with pytest.raises(ScheduleNotFound):
        repository.find_schedule("unknown.example")
    repository.create_schedule(**VALID)
    with pytest.raises(InvalidInput, match=r"'example\.com' matches 2 schedules; use an id: "):
        repository.find_schedule("example.com")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (ScheduleFilter(search="SHOP"), {"shop.example", "b.example"}),
        (ScheduleFilter(search="100%"), set()),
        (ScheduleFilter(enabled=False), {"c.example"}),
        (ScheduleFilter(tag="x"), {"b.example"}),
        (ScheduleFilter(job_type="workflow"), {"c.example"}),
        (ScheduleFilter(domain="c.example", enabled=True), set()),
    ],
)
def test_filters_are_combined(repository: ScheduleRepository, where: ScheduleFilter, expected: set[str]) -> None:
    repository.save_schedules(
        [
            {**VALID, "domain": "shop.example"},
            {**VALID, "domain": "b.example", "name": "my shop", "tags": ["x", "y"]},
            {**VALID, **WORKFLOW, "domain": "c.example", "enabled": False},
        ]
    )
    page = repository.list_schedules(where)
    assert {record.domain for record in page.items} == expected
    assert repository.count_schedules(where) == len(expected)


@pytest.mark.parametrize(
    "sort", ["domain", "-domain", "name", "next_run", "-next_run", "last_run", "priority", "-updated_at"]
)
def test_pages_put_together_are_the_whole_in_order(repository: ScheduleRepository, sort: str) -> None:
    items = [{**item, "priority": n % 3, "enabled": n % 4 > 0, "name": f"n{n % 50}" if n < 40 else None}
             for n, item in enumerate(many(105))]  # fmt: skip
    repository.save_schedules(items)
    pages, cursor = [], None
    while True:
        page = repository.list_schedules(sort=sort, limit=10, cursor=cursor)
        pages.append(page.items)
        cursor = page.next_cursor
        if cursor is None:
            break
    found = [record.schedule_id for items in pages for record in items]
    assert [len(items) for items in pages] == [10] * 10 + [5]
    assert len(set(found)) == 105
    whole = repository.list_schedules(sort=sort, limit=1000).items
    assert [record.schedule_id for record in whole] == found


def test_a_page_refuses_what_makes_no_sense(repository: ScheduleRepository) -> None:
    repository.save_schedules(many(3))
    cursor = repository.list_schedules(limit=1).next_cursor
    cases: list[tuple[dict[str, Any], str]] = [
        ({"sort": "colour"}, "sort: must be one of domain, name, "),
        ({"limit": 0}, "limit: must be between 1 and 1000, got 0"),
        ({"cursor": "rubbish"}, "cursor: must come from an earlier page of this list"),
        ({"cursor": cursor, "sort": "-domain"}, "cursor: belongs to the sort order 'domain', not '-domain'"),
    ]
    forged = [
        ("domain", 7), ("domain", "a\0"), ("domain", "\ud800"), ("domain", None), ("priority", "x"),
        ("priority", 10**20), ("priority", True), ("next_run", "2027-01-01"), ("next_run", 3), ("created_at", None),
        ("name", [[]]), ("created_at", "0001-01-01T00:00:00+14:00"),
    ]  # fmt: skip
    for sort, value in forged:
        text = json.dumps([sort, value, str(TAKEN)])
        cursor = base64.urlsafe_b64encode(text.encode()).decode()
        cases.append(({"sort": sort, "cursor": cursor}, "cursor: must come from an earlier page of this list"))
    for arguments, message in cases:
        with pytest.raises(InvalidInput, match=f"^{message}"):
            repository.list_schedules(**arguments)


def test_all_enabled_schedules(repository: ScheduleRepository) -> None:
    repository.save_schedules([*many(3), {**VALID, "enabled": False}])
    assert len(repository.get_all_schedules()) == 4
    assert len(repository.get_all_schedules(enabled_only=True)) == 3


# --- bulk ---


def test_a_bulk_save_creates_updates_and_leaves_alone(repository: ScheduleRepository) -> None:
    repository.save_schedules(many(20), actor="import")
    known = [{"schedule_id": record.schedule_id, **record.definition()} for record in repository.iter_schedules()]
    before = {record.schedule_id: record.revision for record in repository.iter_schedules()}
    changed = [{**item, "priority": 5} for item in known[:4]]
    summary = repository.save_schedules([*changed, *known[4:], *many(3)])
    assert (summary.created, summary.updated, summary.unchanged, summary.refused) == (3, 4, 16, [])
    after = {record.schedule_id: record.revision for record in repository.iter_schedules()}
    assert sum(after[schedule_id] != revision for schedule_id, revision in before.items()) == 4


def test_a_bad_item_never_spoils_the_rest(repository: ScheduleRepository) -> None:
    twin = {**VALID, "name": "twin"}
    items = [*many(5), {**VALID, "domain": "localhost"}, {"schedule_id": "x"}, twin, twin]
    summary = repository.save_schedules(items)
    assert summary.created == 6
    assert [(saved.index, str(saved.problems[0])) for saved in summary.refused] == [
        (5, "domain: 'localhost' has no dot; a public domain name such as example.com is required"),
        (6, "schedule_id: must be a UUID, got 'x'"),
        (8, "name: twin is already used by item 8"),
    ]


@pytest.mark.parametrize("dry_run", [True, False])
def test_two_items_that_clash_are_found_however_far_they_are_apart(
    repository: ScheduleRepository, dry_run: bool
) -> None:
    between = ROWS_PER_COMMIT + 1
    first = [
        {**VALID, "name": "twin"},
        {**VALID, "schedule_id": TAKEN},
        {**VALID, "domain_config_id": "abc", "source": "api"},
    ]
    summary = repository.save_schedules([*first, *many(between), *first], dry_run=dry_run)
    assert summary.created == between + 3
    assert [
        (saved.index - between, saved.problems[0].field, saved.problems[0].reason[-22:]) for saved in summary.refused
    ] == [
        (3, "name", "already used by item 1"),
        (4, "schedule_id", "already used by item 2"),
        (5, "domain_config_id", "already used by item 3"),
    ]


def test_racing_bulk_saves_of_the_same_new_names_all_succeed(repository: ScheduleRepository) -> None:
    names = [f"name {number}" for number in range(400)]
    outcomes: list[Any] = []
    barrier = threading.Barrier(4)

    def save(seed: int) -> None:
        shuffled = random.Random(seed).sample(names, len(names))
        barrier.wait()
        try:
            summary = repository.save_schedules({**VALID, "name": name, "priority": seed} for name in shuffled)
            outcomes.append((summary.created + summary.updated, summary.refused))
        except BaseException as error:  # noqa: BLE001 - the test reports it
            outcomes.append(error)

    threads = [threading.Thread(target=save, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [(400, [])] * 4
    assert repository.count_schedules() == 400


def test_a_dry_run_says_what_would_happen_and_writes_nothing(repository: ScheduleRepository) -> None:
    repository.create_schedule(**VALID, name="known")
    seen: list[tuple[str, dict[str, Any]]] = []
    summary = repository.save_schedules(
        [{**VALID, "name": "known", "priority": 1}, {**VALID, "name": "new"}],
        dry_run=True,
        on_saved=lambda saved: seen.append((saved.action, dict(saved.changes))),
    )
    assert (summary.created, summary.updated) == (1, 1)
    assert seen == [("updated", {"priority": (0, 1)}), ("created", {})]
    assert [record.priority for record in repository.get_all_schedules()] == [0]


def test_a_bulk_save_commits_every_thousand_rows(repository: ScheduleRepository, db: DatabaseConnection) -> None:
    repository.save_schedules(many(2 * ROWS_PER_COMMIT + 1))
    per_commit = rows(db, "SELECT count(*) FROM schedules GROUP BY xmin ORDER BY 1")
    assert per_commit == [(1,), (ROWS_PER_COMMIT,), (ROWS_PER_COMMIT,)]


def test_bulk_saves_in_opposite_orders_do_not_deadlock(repository: ScheduleRepository) -> None:
    repository.save_schedules(many(300))
    known = [{"schedule_id": record.schedule_id} for record in repository.iter_schedules()]
    failures: list[BaseException] = []

    def save(items: list[dict[str, Any]], priority: int) -> None:
        try:
            for _ in range(3):
                repository.save_schedules({**item, "priority": priority} for item in items)
        except BaseException as error:  # noqa: BLE001 - the test reports it
            failures.append(error)

    threads = [threading.Thread(target=save, args=(known[:: 1 if n % 2 else -1], n)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_reading_all_schedules_takes_memory_for_a_page_only(repository: ScheduleRepository) -> None:
    def peak(count: int) -> int:
        repository.save_schedules(many(count))
        tracemalloc.start()
        for _ in repository.iter_schedules():
            pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    small = peak(3 * ROWS_PER_COMMIT)
    assert peak(9 * ROWS_PER_COMMIT) < 1.5 * small


# --- the external API's items ---

API_ITEM = {
    "domain_config_id": "abc-123",
    "data": {
        "domain": "example.com",
        "maxPages": 50,
        "customPages": ["/page1"],
        "schedule": {"frequency": "daily", "time": {"hour": 2, "minute": 0}},
    },
}


def test_items_of_the_api_are_created_once_and_updated_when_they_change(repository: ScheduleRepository) -> None:
    assert repository.sync_from_api([API_ITEM]) == {"created": 1, "updated": 0, "skipped": 0}
    assert repository.sync_from_api([API_ITEM]) == {"created": 0, "updated": 0, "skipped": 0}
    later = {**API_ITEM, "data": {**API_ITEM["data"], "schedule": {"frequency": "hourly", "time": {"minute": 5}}}}  # type: ignore[dict-item]
    assert repository.sync_from_api([later]) == {"created": 0, "updated": 1, "skipped": 0}
    record = repository.get_schedule_by_config_id("abc-123")
    assert record is not None
    assert (record.frequency, record.source, record.job_config["max_pages"]) == ("hourly", "api", 50)


@pytest.mark.parametrize(
    "bad",
    [
        None, 3, {}, {"domain_config_id": "x"}, {"domain_config_id": "x", "data": None},
        {"domain_config_id": "x", "data": {"domain": "a.example"}},
        {"domain_config_id": "x", "data": {**VALID, "schedule": {"frequency": "sometimes", "time": {}}}},
        {"domain_config_id": "x", "data": {"domain": "localhost", "schedule": {"frequency": "hourly", "time": {}}}},
        API_ITEM,
    ],
)  # fmt: skip
def test_a_bad_item_of_the_api_is_skipped_and_spoils_nothing(repository: ScheduleRepository, bad: Any) -> None:
    assert repository.sync_from_api([API_ITEM, bad]) == {"created": 1, "updated": 0, "skipped": 1}


def test_after_a_sync_of_given_items_the_api_is_asked_for_everything_again(
    repository: ScheduleRepository, db: DatabaseConnection
) -> None:
    with db.transaction() as connection:
        connection.execute(text("INSERT INTO api_sync_state (rules, etag) VALUES ('same', 'x')"))
    repository.sync_from_api([API_ITEM])
    assert rows(db, "SELECT rules FROM api_sync_state") == [(None,)]
