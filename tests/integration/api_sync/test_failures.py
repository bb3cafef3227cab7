"""An API that fails changes nothing, and that is remembered."""

import json
from typing import Any

import pytest

from config import Settings
from database.connection import DatabaseConnection
from services.api_sync.report import Outcome
from services.api_sync.state import SyncState
from services.api_sync.sync import ApiSyncFailed, open_api_sync
from services.schedule_repository import ScheduleRepository
from tests.integration.api_sync.looking import EXACTLY, Run, counts, rows, write
from tests.support.api_stand_in import ApiStandIn, many_items, raw, redirect, status

UNUSABLE = [
    (status(500), "it answered 500 Internal Server Error"),
    (status(404), "it answered 404 Not Found"),
    (status(304), "it answered 304 Not Modified"),
    (raw(b"<html>sign in</html>", "text/html"), "it is a page of HTML or XML, not JSON"),
    (raw(b'{"data": null}'), '"data" is null, not a list'),
    (raw(b"[]"), 'it is a list, not an object with a list under "data"'),
    (raw(b'{"data": [{"domain_config_id": "config-1"}'), "it is not JSON: expecting ',' or ']' near byte 42"),
    (raw(b'{"data": ["\xff"]}'), "it is not UTF-8 text"),
    (raw(b""), "it is empty"),
]


@pytest.mark.parametrize(("answer", "reason"), UNUSABLE, ids=[reason for _, reason in UNUSABLE])
def test_an_unusable_answer_changes_nothing_and_is_remembered(
    api: ApiStandIn, run: Run, db: DatabaseConnection, answer: Any, reason: str
) -> None:
    good = run()
    write(db, "UPDATE schedules SET priority = 1 WHERE domain = 'host000001.example'")  # so that all is asked for
    before = rows(db, EXACTLY)
    api.script = [answer] * 4
    with pytest.raises(ApiSyncFailed) as failed:
        run()
    assert str(failed.value) == f"the API gave no usable response: GET {api.url}: {reason}"
    assert rows(db, EXACTLY) == before
    state = SyncState(db).read()
    assert state.last is not None
    assert (state.last.outcome, state.last.error) == (Outcome.FAILED, str(failed.value))
    assert state.applied == good
    assert not state.is_busy


def test_an_answer_that_is_broken_at_its_end_changes_nothing(
    api: ApiStandIn, run: Run, repository: ScheduleRepository
) -> None:
    """Also not by the thousand good items before."""
    items = b", ".join(json.dumps(one).encode() for one in many_items(1200))
    api.script = [raw(b'{"data": [' + items + b"]")]
    with pytest.raises(ApiSyncFailed, match="it is not JSON: expecting ',' or '}'"):
        run()
    assert repository.count_schedules() == 0


def test_a_body_beyond_the_limit_is_refused(
    api: ApiStandIn, settings: Settings, db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    with (
        open_api_sync(settings.model_copy(update={"api_sync_max_bytes": 1024}), db) as sync,
        pytest.raises(ApiSyncFailed, match="the body is larger than 1,024 bytes"),
    ):
        sync.run()
    assert repository.count_schedules() == 0


def test_no_secret_is_stored_with_a_failure(api: ApiStandIn, settings: Settings, db: DatabaseConnection) -> None:
    url = api.url.replace("://", "://anna:hunter2@") + "?key=hunter2"
    api.script = [status(403)]
    with (
        open_api_sync(settings.model_copy(update={"api_url": url}), db) as sync,
        pytest.raises(ApiSyncFailed) as failed,
    ):
        sync.run()
    assert "hunter2" not in str(failed.value)
    assert "hunter2" not in str(rows(db, "SELECT * FROM api_sync_state"))


def test_a_status_written_by_another_version_is_not_in_the_way(run: Run, db: DatabaseConnection) -> None:
    run()
    write(db, """UPDATE api_sync_state SET last = '{"new": 1}', applied = '{}'""")
    assert SyncState(db).read().last is None
    assert run().outcome is Outcome.NOT_MODIFIED


# --- a private address ---


@pytest.fixture
def unlisted(settings: Settings) -> Settings:
    """FETCH_ALLOWED_NETWORKS names nothing: API_URL alone says where the API is."""
    return settings.model_copy(update={"fetch_allowed_networks": ""})


def test_an_api_on_a_private_address_needs_no_other_setting(
    unlisted: Settings, db: DatabaseConnection, only_built_in_jobs: None
) -> None:
    with open_api_sync(unlisted, db) as sync:
        assert counts(sync.run()) == {"created": 10}


@pytest.mark.parametrize("elsewhere", ["http://localhost:{other}/x", "http://127.0.0.1:{other}/x", "http://10.0.0.1/x"])
def test_a_redirect_of_the_api_to_another_private_address_is_refused(
    api: ApiStandIn, unlisted: Settings, db: DatabaseConnection, elsewhere: str
) -> None:
    with ApiStandIn() as other:
        api.script = [redirect(elsewhere.format(other=other.port))]
        with open_api_sync(unlisted, db) as sync, pytest.raises(ApiSyncFailed, match="is not a public address"):
            sync.run()
    assert other.requests == []


def test_a_redirect_of_the_api_to_itself_is_followed(
    api: ApiStandIn, unlisted: Settings, db: DatabaseConnection, only_built_in_jobs: None
) -> None:
    api.script = [redirect("/moved")]
    with open_api_sync(unlisted, db) as sync:
        assert counts(sync.run()) == {"created": 10}
