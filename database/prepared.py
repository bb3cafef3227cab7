"""Statements that a session parses and plans once: for small batches that is most of what they cost Postgres.

A placeholder becomes a parameter, of the type that follows it in the text, else of the type that Postgres infers; each
value is sent once. The plan holds for any values, is made under the settings of the first execution, and is dropped
every minute: tables grow, and Postgres makes plans anew by itself only after the next ANALYZE.
"""

import re
import time
from collections.abc import Callable

MOST = 200  # per session; the statements are constants of the program, which has fewer
BY_KEY = "SET LOCAL enable_seqscan = off; "  # a plan lives longer than it takes a table to grow
PLANS_LIVE_SECONDS = 60.0

_PLACEHOLDER = re.compile(r"%\((\w+)\)s(::\w+(?:\[\])?)?")
# One statement, after settings of its transaction: the plan is made, and made anew, under these.
_SUITABLE = re.compile(r"((?:\s*SET LOCAL \w+ = \w+;)*)(\s*(?:SELECT|WITH|INSERT|UPDATE|DELETE)\b(?:[^;']|'[^']*')*)\Z")
_SUBJECTS = [
    (verb, re.compile(pattern))
    for verb, pattern in (
        ("insert", r"\bINSERT INTO (\w+)"),
        ("update", r"\bUPDATE (\w+) (?:AS \w+ )?SET\b"),
        ("delete", r"\bDELETE FROM (\w+)"),
        ("select", r"\bFROM (\w+)"),
    )
]


class Prepared:
    """What one session has prepared. A session in which a statement failed is closed."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._planned_at = now, now()
        self._executions: dict[str, str] = {}  # by the text of the statement

    def opening(self) -> str:
        """Comes before a transaction's first statement, or the only one."""
        if self._now() < self._planned_at + PLANS_LIVE_SECONDS:
            return ""
        self._planned_at = self._now()
        return "DISCARD PLANS; "

    def sent_for(self, sql: str) -> str:
        """The text to send instead of this one, with the same placeholders."""
        if (execution := self._executions.get(sql)) is not None:
            return execution
        suitable = _SUITABLE.match(sql) if len(self._executions) < MOST else None
        if suitable is None:
            return sql
        settings, statement = suitable.groups()
        preparation, execution = _translated(statement, f"s{len(self._executions)}_{_subject(statement)}")
        self._executions[sql] = f"{settings}{execution}"
        return f"{settings}{preparation}; {execution}"


def _subject(sql: str) -> str:
    """For operators, who see only the name in pg_stat_activity."""
    found = ((verb, pattern.search(sql)) for verb, pattern in _SUBJECTS)
    return next((f"{verb}_{match[1]}" for verb, match in found if match), "select")


def _translated(sql: str, name: str) -> tuple[str, str]:
    """PREPARE and EXECUTE."""
    places: dict[str, int] = {}
    types: dict[str, str] = {}

    def parameter(found: re.Match[str]) -> str:
        place, cast = places.setdefault(found[1], len(places) + 1), found[2] or ""
        if cast:
            types.setdefault(found[1], cast.removeprefix("::"))
        return f"${place}{cast}"

    body = _PLACEHOLDER.sub(parameter, sql)
    if not places:
        return f"PREPARE {name} AS {body}", f"EXECUTE {name}"
    declared = ", ".join(types.get(each, "unknown") for each in places)
    given = ", ".join(f"%({each})s" + (f"::{types[each]}" if each in types else "") for each in places)
    return f"PREPARE {name} ({declared}) AS {body}", f"EXECUTE {name} ({given})"
