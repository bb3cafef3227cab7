"""What others did to the API's schedules since the last sync: edits, deletes, switching on and off, also by SQL."""

from sqlalchemy import Connection, text

# A schedule that the sync did not leave like this, one that it does not know, or one that it knew and that is gone.
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
# Noticed now, because the history of changes is not kept for ever: whom somebody has switched on or off since it
# vanished is no longer ours to switch on again.
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
    """Then "nothing new" from the API is no answer: what differs has to be compared with the whole."""
    return bool(connection.execute(IS_CHANGED).scalar_one())


def notice_changes(connection: Connection) -> None:
    connection.execute(NOTICE_SWITCHING)
    connection.execute(FORGET_THE_DELETED)
