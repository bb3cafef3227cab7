"""docs/verdicts.md: the answer to "why was it skipped?", complete and current."""

import json

from typer.testing import CliRunner

import manage
from config import PROJECT_ROOT
from services.cli.verdicts_page import MEANINGS, QUEUES, verdicts_page
from services.ledger.verdicts import RULES, Reason


def test_the_page_of_verdicts_is_current() -> None:
    page = (PROJECT_ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")
    is_current = page == verdicts_page() + "\n"
    assert is_current, "python manage.py verdicts --markdown > docs/verdicts.md"


def test_it_explains_every_reason_with_the_statuses_that_it_comes_with() -> None:
    judged = {rule.verdict for rules in RULES.values() for rule in rules if rule.verdict.reason}
    assert judged <= MEANINGS.keys()
    assert {verdict.reason for verdict in MEANINGS} | QUEUES.keys() == set(Reason)


def test_the_command_line_has_the_same_answers() -> None:
    said = json.loads(CliRunner().invoke(manage.app, ["verdicts", "--json"]).stdout)
    assert {(each["status"], each["reason"]) for each in said} >= {
        (verdict.status, verdict.reason) for verdict in MEANINGS
    }
    assert all(each["meaning"] and each["advice"] for each in said)
