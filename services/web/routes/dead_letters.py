"""/api/v3/dead-letters: items that failed their last attempt, and requeueing them."""

from typing import Annotated

from fastapi import Path, Query

from services.queues.dead_letters import DeadLetters, LetterFilter
from services.queues.requeue import Requeue
from services.web.auth.guard import IdempotencyKey, Operator, Viewer
from services.web.problems import not_found
from services.web.routing import API, Instant, Limit, PartsOf, router
from services.web.schemas.dead_letters import LetterId, LetterList, LetterOut, RequeuedOut, RequeueLetters
from services.workflows import queues

dead_letters = router(f"{API}/dead-letters", "dead-letters")


@dead_letters.get("")
def list_dead_letters(
    parts: PartsOf,
    who: Viewer,
    queue: Annotated[str | None, Query(max_length=100, description="Name of the queue, or the id of its job.")] = None,
    error: Annotated[str | None, Query(max_length=200, description="Part of the error, case-insensitive.")] = None,
    since: Annotated[Instant | None, Query(description="At or after this time.")] = None,
    closed: Annotated[bool, Query(description="List requeued dead letters instead of open ones.")] = False,
    limit: Limit = 50,
    before: Annotated[LetterId | None, Query(description="`next_before` of the previous page.")] = None,
) -> LetterList:
    """A page of dead letters, newest first."""
    where = LetterFilter(queue=_name(queue), error=error, since=since, closed=closed)
    letters = DeadLetters(parts.db).page(where, limit=limit, before=before)
    more = letters[-1].id if len(letters) == limit else None
    return LetterList(items=[LetterOut.model_validate(letter) for letter in letters], next_before=more)


@dead_letters.get("/{letter_id}")
def read_dead_letter(letter_id: Annotated[LetterId, Path()], parts: PartsOf, who: Viewer) -> LetterOut:
    """A dead letter."""
    found = DeadLetters(parts.db).get(letter_id)
    if found is None:
        raise not_found(f"dead letter {letter_id}")
    return LetterOut.model_validate(found)


@dead_letters.post("/requeue")
def requeue_dead_letters(
    body: RequeueLetters, parts: PartsOf, who: Operator, key: IdempotencyKey = None
) -> RequeuedOut:
    """Requeue dead letters, oldest first. Their attempts are counted from zero again."""
    where = LetterFilter(queue=_name(body.queue), error=body.error, since=body.since, ids=body.ids)
    requeue = Requeue(parts.db, who.actor)
    found = requeue.count_letters(where, body.limit)
    done = {} if body.dry_run else requeue.letters(where, body.limit, body.per_second)
    return RequeuedOut(found=found, requeued=done, dry_run=body.dry_run)


def _name(queue: str | None) -> str | None:
    return None if queue is None else queues.find(queue).name
