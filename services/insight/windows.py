"""The windows of the charts: how far they look back, and how long one bar is."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class Window:
    key: str
    words: str
    hours: int
    step: timedelta  # of one bar
    form: str  # of an instant on the axis

    def begin_of(self, local: datetime) -> datetime:
        """Of the bar in which a local instant lies: bars begin at full hours, and those of days at midnight."""
        begin = local.replace(second=0, microsecond=0)
        if self.step < timedelta(hours=1):
            return begin
        hours = round(self.step.total_seconds() / 3600)
        return begin.replace(hour=local.hour // hours * hours, minute=0)


WINDOWS = {
    window.key: window
    for window in (
        Window("1h", "1 hour", 1, timedelta(minutes=1), "%H:%M"),
        Window("24h", "24 hours", 24, timedelta(hours=1), "%H:%M"),
        Window("7d", "7 days", 7 * 24, timedelta(hours=6), "%a %H:%M"),
        Window("30d", "30 days", 30 * 24, timedelta(days=1), "%d %b"),
    )
}
HOUR = WINDOWS["1h"]


def window_of(key: Any) -> Window:
    """An unknown key counts as the hour."""
    return WINDOWS.get(key, HOUR)
