"""Local changes to the API's schedules since the last sync: edits, deletions, enabling and disabling, by SQL too."""

from sqlalchemy import Connection, text

# Schedules that differ from what the sync left, that the sync does not know, or that it knew and that are gone.
IS_CHANGED = text(
    """
    SELECT EXISTS (
        SELECT FROM schedules LEFT JOIN api_sync_items AS item ON item.schedule_id = schedules.schedule_id
        WHERE schedules.source = 'api' AND item.revision IS DISTINCT FROM schedules.revision
    ) OR EXISTS (
        SELECT FROM api_sync_items AS item
        WHERE NOT EXISTS (SELECT FROM schedules WHERE schedules.schedule_id = item.schedule_id AND source = 'api')
    )
    """
)
# Recorded now, because the history of changes is deleted after a while: the sync must not enable a schedule again that
# an operator has enabled or disabled since it vanished.
NOTICE_SWITCHING = text(
    """
    UPDATE api_sync_items AS item
    SET disabled_revision = CASE
            WHEN schedules.enabled OR EXISTS (
                SELECT FROM schedule_changes AS change
                WHERE change.schedule_id = item.schedule_id AND change.revision > item.disabled_revision
                  AND change.old->'enabled' IS DISTINCT FROM change.new->'enabled'
            ) THEN NULL
            ELSE item.disabled_revision END,
        revision = schedules.revision
    FROM schedules
    WHERE schedules.schedule_id = item.schedule_id AND item.vanished_at IS NOT NULL
      AND item.revision <> schedules.revision
    """
)
FORGET_THE_DELETED = text(
    """
    DELETE FROM api_sync_items AS item
    WHERE NOT EXISTS (SELECT FROM schedules WHERE schedules.schedule_id = item.schedule_id AND source = 'api')
    """
)


def is_anything_changed(connection: Connection) -> bool:
    """True: a 304 from the API is not enough, because the differences have to be compared with the whole response."""
    return bool(connection.execute(IS_CHANGED).scalar_one())


def notice_changes(connection: Connection) -> None:
    connection.execute(NOTICE_SWITCHING)
    connection.execute(FORGET_THE_DELETED)
