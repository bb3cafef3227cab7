"""Whether a summary row covers a fire: one SQL condition for every writer of first attempts.

A summary (Reason.CATCHUP_CAP) records every fire between its first and its last that had no row as missed. It fences
all of them, as its own row fences a fire. No summary covers a fire of the last seconds: a writer of such a row need
not ask (YOUNGEST).
"""

from services.ledger.verdicts import Reason

# Newest first, so many of the summaries that begin before a fire are looked at. They follow each other, but an old hole
# may be found around younger ones; no summary is written around so many that it would not be looked at.
LOOKED_AT = 8


def recorded_as_missed(fire: str) -> str:
    """A condition on the row `fire`, which has schedule_id and scheduled_for; by job_executions_summary_idx alone."""
    return f"""EXISTS (
        SELECT FROM (
            SELECT m.metadata FROM job_executions AS m
            WHERE m.schedule_id = {fire}.schedule_id AND m.scheduled_for <= {fire}.scheduled_for
              AND m.reason = '{Reason.CATCHUP_CAP}'
            ORDER BY m.scheduled_for DESC LIMIT {LOOKED_AT}
        ) AS summary
        WHERE (summary.metadata->>'last')::timestamptz >= {fire}.scheduled_for
    )"""
