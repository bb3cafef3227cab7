"""The statements of queue_table.py, for the names of one queue. All values travel as parameters.

`c` is the list of claims: a statement touches a row only while the row carries the token of its claim.
"""

from dataclasses import dataclass

from database.workflow_models import its_turn_has_come
from services.queues.outcomes import MAX_ERROR_CHARACTERS


@dataclass(frozen=True, slots=True)
class Names:
    table: str
    key: str
    key_type: str
    status: str
    error: str
    prefix: str
    order: str
    one_live_per: tuple[str, ...] = ()  # columns that no two queued or processing rows may share


MOST_ATTEMPTS = 10**9  # a row edited by SQL to the column's maximum must not overflow and stop the whole queue
# Another session's open transaction delays only its own rows: a statement that waits longer than this is retried later.
IMPATIENT = "SET LOCAL lock_timeout = '200ms'; "
# If Postgres crashes and loses the claim, the row is still queued, and the worker that claimed it is fenced.
UNFLUSHED = "SET LOCAL synchronous_commit = off; "


def _claims(n: Names) -> str:
    return f"unnest(%(keys)s::{n.key_type}[], %(tokens)s::uuid[]) WITH ORDINALITY AS c (key, token, place)"


def _held(n: Names) -> str:
    return f"t.{n.key} = c.key AND t.{n.prefix}claim_token = c.token AND t.{n.status} = %(processing)s"


def claim(n: Names) -> str:
    """MATERIALIZED makes Postgres choose the rows once; a plain IN (…) might choose again and lock further rows."""
    return f"""
    {UNFLUSHED} WITH chosen AS MATERIALIZED (
        SELECT {n.key} AS key FROM {n.table}
        WHERE {n.status} = %(queued)s AND {n.prefix}not_before <= clock_timestamp()
        ORDER BY {n.order} LIMIT %(count)s FOR NO KEY UPDATE SKIP LOCKED
    ), c AS (SELECT key, row_number() OVER () AS place FROM chosen)
    UPDATE {n.table} AS t SET {n.status} = %(processing)s, {n.error} = NULL, {n.prefix}claimed_at = clock_timestamp(),
           {n.prefix}claim_token = %(token)s, {n.prefix}attempts = least(t.{n.prefix}attempts, {MOST_ATTEMPTS}) + 1
    FROM c WHERE t.{n.key} = c.key
    RETURNING c.place, c.key, t.{n.prefix}attempts AS attempts
    """


def lock_held(n: Names) -> str:
    """SKIP LOCKED, because waiting for one row while holding others can deadlock with any UPDATE."""
    return f"{wait_for_held(n)} SKIP LOCKED"


def wait_for_held(n: Names) -> str:
    """For one row."""
    return f"""
    {IMPATIENT} SET LOCAL scheduler.actor = %(actor)s;
    SELECT c.place FROM {n.table} AS t JOIN {_claims(n)} ON {_held(n)} FOR NO KEY UPDATE OF t
    """


def complete(n: Names) -> str:
    """`save` may have set another final status itself: a failure keeps its text. The caller has locked the rows, so
    their keys are enough."""
    return f"""
    UPDATE {n.table} AS t SET
        {n.status} = CASE WHEN t.{n.status} = %(processing)s THEN %(completed)s ELSE t.{n.status} END,
        {n.error} = CASE WHEN t.{n.status} = %(failed)s THEN coalesce(
            nullif(left(t.{n.error}, {MAX_ERROR_CHARACTERS}), ''),
            'the processing function set this status and gave no error') END,
        {n.prefix}claim_token = NULL, {n.prefix}claimed_at = NULL
    WHERE t.{n.key} = ANY(%(keys)s::{n.key_type}[])
    RETURNING t.{n.key} AS key, t.{n.error} AS error
    """


def retry(n: Names) -> str:
    return f"""
    {IMPATIENT} UPDATE {n.table} AS t SET {n.status} = %(queued)s, {n.error} = %(error)s, {n.prefix}claim_token = NULL,
           {n.prefix}claimed_at = NULL,
           {n.prefix}not_before = clock_timestamp() + make_interval(secs => %(delay)s)
    FROM {_claims(n)} WHERE {_held(n)}
    """


def fail(n: Names) -> str:
    return f"""
    {IMPATIENT} UPDATE {n.table} AS t SET {n.status} = %(failed)s, {n.error} = %(error)s, {n.prefix}claim_token = NULL,
           {n.prefix}claimed_at = NULL
    FROM {_claims(n)} WHERE {_held(n)}
    """


def hand_back(n: Names) -> str:
    """As if it had never been claimed."""
    return f"""
    {IMPATIENT} UPDATE {n.table} AS t SET {n.status} = %(queued)s, {n.prefix}claim_token = NULL,
           {n.prefix}claimed_at = NULL, {n.prefix}attempts = greatest(t.{n.prefix}attempts - 1, 0)
    FROM {_claims(n)} WHERE {_held(n)}
    """


def _is_stale(n: Names) -> str:
    """A row set to processing by SQL has no claim; its age counts from its last change. A claim in the future is stale
    too: the clock was set back, or SQL wrote it."""
    since = f"coalesce({n.prefix}claimed_at, updated_at)"
    limit = "make_interval(secs => %(stale)s)"
    return f"{since} NOT BETWEEN clock_timestamp() - {limit} AND clock_timestamp() + {limit}"


def take_stale(n: Names) -> str:
    """Take over claims that are too old, with a new token: the previous worker can write nothing from now on."""
    return f"""
    UPDATE {n.table} SET {n.prefix}claim_token = %(token)s, {n.prefix}claimed_at = clock_timestamp()
    WHERE {n.key} = ANY(ARRAY(
        SELECT {n.key} FROM {n.table}
        WHERE {n.status} = %(processing)s AND {_is_stale(n)}
        ORDER BY {n.key} LIMIT %(count)s FOR NO KEY UPDATE SKIP LOCKED
    ))
    RETURNING 0 AS place, {n.key} AS key, {n.prefix}attempts AS attempts
    """


def backlog(n: Names) -> str:
    """Counted up to a limit: the caller only compares it with one."""
    return f"""
    SELECT count(*) FROM (
        SELECT FROM {n.table} WHERE {n.status} = %(queued)s AND {its_turn_has_come(n.prefix)} LIMIT %(limit)s
    ) AS found
    """


def counts(n: Names) -> str:
    """Answered from three partial indexes, none of which contains finished rows."""
    return f"""
    SELECT q.depth, q.due, q.oldest_seconds, p.processing, p.stale, f.failed
    FROM (
        SELECT count(*) AS depth, count(*) FILTER (WHERE {n.prefix}not_before <= clock_timestamp()) AS due,
               coalesce(greatest(extract(epoch FROM clock_timestamp() - min({n.prefix}not_before)), 0), 0)::float8
                   AS oldest_seconds
        FROM {n.table} WHERE {n.status} = %(queued)s
    ) AS q, (
        SELECT count(*) AS processing, count(*) FILTER (WHERE {_is_stale(n)}) AS stale
        FROM {n.table} WHERE {n.status} = %(processing)s
    ) AS p, (SELECT count(*) AS failed FROM {n.table} WHERE {n.status} = %(failed)s) AS f
    """


_MATCHES = """
    {status} = %(failed)s
      AND (%(keys)s::text[] IS NULL OR {key}::text = ANY(%(keys)s::text[]))
      AND (%(error)s::text IS NULL OR position(lower(%(error)s::text) IN lower({error})) > 0)
      AND (%(since)s::timestamptz IS NULL OR updated_at >= %(since)s)
      AND (NOT %(dead)s OR EXISTS (
          SELECT FROM dead_letters AS d
          WHERE d.queue = %(queue)s AND d.item_key = {table}.{key}::text AND d.requeued_at IS NULL
      ))
"""


def _failed_rows(n: Names) -> str:
    matches = _MATCHES.format(key=n.key, table=n.table, status=n.status, error=n.error)
    alone = f"AND {_alone(n, matches)}" if n.one_live_per else ""
    return f"SELECT {n.key} FROM {n.table} WHERE {matches} {alone} ORDER BY updated_at, {n.key} LIMIT %(limit)s"


def _alone(n: Names, matches: str) -> str:
    """Of rows that exclude each other the one that failed last, and none beside a queued or processing row."""
    columns, same = ", ".join(n.one_live_per), " AND ".join(f"o.{name} = {n.table}.{name}" for name in n.one_live_per)
    return f"""
    {n.key} IN (
        SELECT DISTINCT ON ({columns}) {n.key} FROM {n.table} WHERE {matches}
        ORDER BY {columns}, updated_at DESC, {n.key} DESC
    ) AND NOT EXISTS (
        SELECT FROM {n.table} AS o WHERE {same} AND o.{n.status} IN (%(queued)s, %(processing)s)
    )
    """


def count_failed(n: Names) -> str:
    return f"SELECT count(*) FROM ({_failed_rows(n)}) AS found"


def requeue_failed(n: Names) -> str:
    """The rate is expressed in `not_before`: all rows are queued at once and become due one after the other."""
    return f"""
    WITH chosen AS MATERIALIZED ({_failed_rows(n)} FOR NO KEY UPDATE SKIP LOCKED),
         numbered AS (SELECT {n.key} AS key, row_number() OVER () AS number FROM chosen)
    UPDATE {n.table} AS t SET {n.status} = %(queued)s, {n.error} = NULL,
           {n.prefix}not_before = clock_timestamp()
               + make_interval(secs => CASE WHEN %(rate)s > 0 THEN (c.number - 1) / %(rate)s ELSE 0 END)
    FROM numbered AS c WHERE t.{n.key} = c.key
    """
