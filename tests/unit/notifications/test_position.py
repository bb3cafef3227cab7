"""How far the notifier has walked: clocks that are set back hide no end."""

from datetime import UTC, datetime, timedelta

from services.notifications.position import Position

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def walked(position: Position, snapshot: str, at: datetime) -> Position:
    return position.begin(snapshot, at).done()


def test_after_the_clock_was_set_back_every_round_begins_before_the_present() -> None:
    position = Position()
    for second in range(10):
        position = walked(position, f"{100 + second}:{100 + second}:", NOON + timedelta(seconds=second))
    back = NOON - timedelta(minutes=10)
    for second in range(60):  # a transaction is always open, as on a busy server
        now, xmax = back + timedelta(seconds=second), 120 + second
        position = position.begin(f"{xmax - 2}:{xmax}:{xmax - 2}", now)
        assert position.round is not None
        assert position.round.at < now - timedelta(seconds=1), "what ended since the last look would be hidden"
        position = position.done()
