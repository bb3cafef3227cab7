"""The rules of a schedule's fields beside the database, which has limits of its own for rows written by SQL."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from psycopg2.extras import Json
from sqlalchemy.exc import DBAPIError, IntegrityError

from database.connection import DatabaseConnection
from services.schedules.field_rules import (
    LIMIT_NAME,
    MAX_JSON_DEPTH,
    MAX_JSON_NUMBER,
    NOTE,
    RULES,
    OneOf,
    Text,
    Whole,
    rule_of,
)

NUMBERS = {name: rule for name in RULES if isinstance(rule := rule_of(name), Whole)}
TEXTS = {name: rule.longest for name in RULES if isinstance(rule := rule_of(name), Text)}
WORDS = {name: list(rule.words) for name in RULES if isinstance(rule := rule_of(name), OneOf)}
INSERT = """
INSERT INTO schedules (domain_config_id, domain, frequency, time_config)
VALUES (gen_random_uuid(), 'a.example', 'daily', '{"hour": 2}')
"""
CHECKS = """
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'schedules'::regclass AND contype = 'c'
"""
WIDTHS = """
SELECT column_name, character_maximum_length FROM information_schema.columns WHERE table_name = 'schedules'
"""


@pytest.fixture
def row(db: DatabaseConnection) -> DatabaseConnection:
    """A database with one schedule."""
    with db.transaction() as connection:
        connection.exec_driver_sql(INSERT)
    return db


def stores(db: DatabaseConnection, field: str, value: Any) -> bool:
    try:
        with db.transaction() as connection:
            connection.exec_driver_sql(f"UPDATE schedules SET {field} = %s", (value,))
    except DBAPIError:
        return False
    return True


def allows(field: str, value: Any) -> bool:
    try:
        RULES[field](value)
    except ValueError:
        return False
    return True


def rows(db: DatabaseConnection, query: str) -> dict[str, Any]:
    with db.transaction() as connection:
        return {row[0]: row[1] for row in connection.exec_driver_sql(query)}


def limited(db: DatabaseConnection) -> Callable[[str], None]:
    """As SQL does it."""

    def put(name: str) -> None:
        with db.transaction() as connection:
            connection.exec_driver_sql("INSERT INTO limits (name, max_running) VALUES (%s, 0)", (name,))

    return put


@pytest.mark.parametrize("field", NUMBERS)
def test_numbers_at_the_bounds_are_stored_and_beyond_them_refused(row: DatabaseConnection, field: str) -> None:
    rule = NUMBERS[field]
    for bound in (rule.least, rule.most):
        assert allows(field, bound)
        assert stores(row, field, bound)
    assert not allows(field, rule.least - 1)
    assert not allows(field, rule.most + 1)


@pytest.mark.parametrize("field", NUMBERS)
def test_a_bound_in_a_check_constraint_is_that_of_the_rule(row: DatabaseConnection, field: str) -> None:
    check = rows(row, CHECKS).get(f"schedules_{field}_check", "")
    least, most = re.search(r">= \(?(-?\d+)", check), re.search(r"<= \(?(-?\d+)", check)
    rule = NUMBERS[field]
    if least is not None:
        assert int(least[1]) == rule.least
        assert not stores(row, field, rule.least - 1)
    if most is not None:
        assert int(most[1]) == rule.most
        assert not stores(row, field, rule.most + 1)
    assert (least is not None) == (field != "priority"), "its lower bound is in the table, too"


@pytest.mark.parametrize("field", TEXTS)
def test_the_longest_text_fills_its_column(row: DatabaseConnection, field: str) -> None:
    longest = TEXTS[field]
    assert rows(row, WIDTHS)[field] == longest
    assert allows(field, "x" * longest)
    assert stores(row, field, "x" * longest)
    assert not allows(field, "x" * (longest + 1))
    assert not stores(row, field, "x" * (longest + 1))


@pytest.mark.parametrize("field", WORDS)
def test_the_same_words_are_allowed(row: DatabaseConnection, field: str) -> None:
    for word in WORDS[field]:
        assert allows(field, word)
        assert stores(row, field, word)
    assert sorted(re.findall(r"'(\w+)'", rows(row, CHECKS)[f"schedules_{field}_check"])) == sorted(WORDS[field])
    assert not allows(field, "other")
    assert not stores(row, field, "other")


def test_a_note_has_the_same_limit(row: DatabaseConnection) -> None:
    assert stores(row, "enabled", False)
    for length, fits in ((NOTE.longest, True), (NOTE.longest + 1, False)):
        assert allows("disabled_note", "x" * length) is fits
        assert stores(row, "disabled_note", "x" * length) is fits


@pytest.mark.parametrize(
    ("depth", "fits"), [(MAX_JSON_DEPTH, True), (MAX_JSON_DEPTH + 1, False)], ids=["deepest", "too deep"]
)
def test_a_job_configuration_has_the_same_depth(row: DatabaseConnection, depth: int, fits: bool) -> None:
    nested: Any = 1
    for _ in range(depth):
        nested = {"a": nested}
    assert allows("job_config", nested) is fits
    assert stores(row, "job_config", Json(nested)) is fits


@pytest.mark.parametrize("sign", [1, -1])
def test_a_job_configuration_has_the_same_largest_number(row: DatabaseConnection, sign: int) -> None:
    for number, fits in ((MAX_JSON_NUMBER - 1, True), (MAX_JSON_NUMBER, False)):
        assert allows("job_config", {"n": sign * number}) is fits
        assert stores(row, "job_config", Json({"n": sign * number})) is fits


@pytest.mark.parametrize(
    ("label", "fits"),
    [
        ("gpu", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("GPU", False),
        ("", False),
        ("job:noop", False),
        ("-a", False),
    ],
)
def test_a_label_and_a_queue_have_the_same_spelling(row: DatabaseConnection, label: str, fits: bool) -> None:
    for field, value in (("queue", label), ("requires", ["eu", label])):
        assert allows(field, value) is fits
        if label or field == "queue":
            assert stores(row, field, value) is fits


def test_a_schedule_may_require_ten_labels_in_one_order(row: DatabaseConnection) -> None:
    labels = [f"label-{number}" for number in range(11)]
    assert allows("requires", labels[:10])
    assert stores(row, "requires", labels[:10])
    assert not allows("requires", labels)
    assert not stores(row, "requires", labels)
    assert RULES["requires"](["gpu", "eu", "gpu"]) == ["eu", "gpu"]


@pytest.mark.parametrize(
    ("key", "fits"),
    [
        ("customer:42", True),
        ("Ä/ß-\N{SNOWMAN}", True),
        ("k" * 200, True),
        ("k" * 201, False),
        ("", False),
        ("customer 42", False),
        ("customer\u3000", True),  # stripped
        ("a\u3000b", False),
        ("a,b", False),
        ("customer:*", False),
        ("a\x07b", False),
    ],
)
def test_a_limit_key_has_the_same_spelling(row: DatabaseConnection, key: str, fits: bool) -> None:
    for value in ([key], ["other", key], [key, "other"]):
        assert allows("limit_keys", value) is fits
        assert stores(row, "limit_keys", [each.strip() for each in value]) is fits


def test_a_schedule_has_eight_limit_keys_in_one_order(row: DatabaseConnection) -> None:
    keys = [f"key:{number}" for number in range(9)]
    assert allows("limit_keys", keys[:8])
    assert stores(row, "limit_keys", keys[:8])
    assert not allows("limit_keys", keys)
    assert not stores(row, "limit_keys", keys)
    assert RULES["limit_keys"](["b", "a", "b"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("customer:42", True),
        ("customer:*", True),
        ("*", True),
        ("k" * 199 + "*", True),
        ("k" * 200 + "*", False),
        ("**", False),
        ("a*b", False),
        ("a b*", False),
        ("", False),
    ],
)
def test_a_limit_is_of_a_key_or_of_all_that_begin_so(db: DatabaseConnection, name: str, fits: bool) -> None:
    attempts: list[tuple[type[Exception], Callable[[str], object]]] = [
        (ValueError, LIMIT_NAME),
        (IntegrityError, limited(db)),
    ]
    for error, put in attempts:
        with nullcontext() if fits else pytest.raises(error):
            put(name)
