"""ETags of schedules: `"<revision>-<bookkeeping>"`. If-Match compares the revision, If-None-Match the whole tag.

next_run, last_run and last_status change without a new revision, so the revision alone would match a stale response.
A bare `"<revision>"` is accepted everywhere and stands for the definition, even without quotes, which shells often
remove. A value that is not an ETag is refused; it must not be mistaken for an old revision.
"""

import hashlib
import re

from services.errors import RevisionConflict
from services.schedules.batch import ScheduleRecord
from services.web.problems import BAD_REQUEST, CHANGED, HttpProblem

_TAG = re.compile(r'(?:W/)?"([^"]*)"')
_BARE = re.compile(r"^\s*(?:W/)?([0-9]{1,19}(?:-[0-9a-f]+)?)\s*$")


def etag_of(record: ScheduleRecord) -> str:
    bookkeeping = (record.next_run, record.last_run, record.last_status, record.invalid_reason)
    digest = hashlib.blake2b(repr(bookkeeping).encode(), digest_size=4).hexdigest()
    return f'"{record.revision}-{digest}"'


def is_known(if_none_match: str | None, record: ScheduleRecord) -> bool:
    """Does the caller already have this version?"""
    if if_none_match is None:
        return False
    tags = _TAG.findall(if_none_match)
    return if_none_match.strip() == "*" or etag_of(record).strip('"') in tags or str(record.revision) in tags


def check_match(if_match: str | None, record: ScheduleRecord) -> int | None:
    """The revision that the write requires; None without a condition. Raises RevisionConflict."""
    if if_match is None or if_match.strip() == "*":
        return None
    tags = _TAG.findall(if_match) or _BARE.findall(if_match)
    if not tags:
        raise HttpProblem(BAD_REQUEST, f'If-Match must be the ETag or "<revision>", got {if_match[:60]!r}')
    revisions = [revision for tag in tags if (revision := _revision(tag)) is not None]
    if not revisions:
        detail = (
            f"schedule {record.schedule_id} is at revision {record.revision}; "
            f"{if_match[:60]} is not an ETag of a schedule"
        )
        raise HttpProblem(CHANGED, detail, headers={"ETag": f'"{record.revision}"'})
    if record.revision not in revisions:
        raise RevisionConflict(record.schedule_id, revisions[0], record.revision)
    return record.revision


def _revision(tag: str) -> int | None:
    number = tag.partition("-")[0]
    return int(number) if number.isdecimal() and number.isascii() and len(number) < 20 else None
