"""Adaptive batch size: grows while the queue is deep and items are fast, shrinks when items are slow. Pure."""

from dataclasses import dataclass, replace

SPAN = 4  # from a quarter of the setting to four times as much


@dataclass(frozen=True, slots=True)
class AdaptiveBatch:
    size: int
    least: int
    most: int
    fast_seconds: float  # a round that takes less may grow
    slow_seconds: float  # a round that takes more shrinks

    @classmethod
    def of(cls, setting: int, remembered: int | None, *, fast_seconds: float, slow_seconds: float) -> "AdaptiveBatch":
        least, most = max(1, setting // SPAN), setting * SPAN
        size = min(max(remembered or setting, least), most)
        return cls(size, least, most, fast_seconds, slow_seconds)

    def after(self, seconds: float, *, deep: bool) -> "AdaptiveBatch":
        """`deep`: the queue gave all the rows that were asked for."""
        if seconds > self.slow_seconds:
            return replace(self, size=max(self.least, self.size // 2))
        if deep and seconds < self.fast_seconds:
            return replace(self, size=min(self.most, self.size * 2))
        return self


class BatchPace:
    """Adapts after whole batches, so that a few slow items among fast ones change nothing."""

    def __init__(self, batch: AdaptiveBatch, *, by_item: bool) -> None:
        self._batch, self._by_item = batch, by_item
        self._items, self._seconds = 0, 0.0

    @property
    def size(self) -> int:
        return self._batch.size

    def ended(self, items: int, seconds: float, *, deep: bool) -> None:
        """`seconds` is the total over `items`; the batch adapts to the mean per item, or to the total per batch."""
        self._items, self._seconds = self._items + items, self._seconds + seconds
        if self._items >= self._batch.size:
            self._batch = self._batch.after(self._seconds / (self._items if self._by_item else 1), deep=deep)
            self._items, self._seconds = 0, 0.0
