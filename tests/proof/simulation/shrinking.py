"""A failing history made small: without the faults, then the schedules, then the replicas that it does not need."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.proof.simulation.options import Options, Result

Play = Callable[[int, Options], Result]
MOST_PLAYS = 120


class Shrinking:
    def __init__(self, play: Play, most_plays: int = MOST_PLAYS) -> None:
        self._play, self._left = play, most_plays

    def __call__(self, failed: Result) -> Result:
        """The smallest history found that breaks one of the same promises."""
        best = self._try(failed, replace(failed.options, only=frozenset(each.key for each in failed.faults))) or failed
        best = self._fewer_faults(best)
        best = self._fewer_schedules(best)
        return self._fewer_faults(self._fewer_replicas(best))

    def _fewer_faults(self, best: Result) -> Result:
        """Halves, quarters and so on are left out, as long as something is still broken without them."""
        keys = [each.key for each in best.faults]
        size = max(1, len(keys) // 2)
        while keys and self._left > 0:
            for start in range(0, len(keys), size):
                kept = [*keys[:start], *keys[start + size :]]
                if (found := self._try(best, replace(best.options, only=frozenset(kept)))) is not None:
                    best, keys = found, kept
                    break
            else:
                if size == 1:
                    return best
                size = max(1, size // 2)
                continue
            size = min(size, max(1, len(keys) // 2))
        return best

    def _fewer_schedules(self, best: Result) -> Result:
        for number in best.schedules:
            kept = frozenset(best.schedules) - {number}
            if kept and (found := self._try(best, replace(best.options, schedules=kept))) is not None:
                best = found
        return best

    def _fewer_replicas(self, best: Result) -> Result:
        for count in range(1, best.replicas):
            if (found := self._try(best, replace(best.options, replicas=count))) is not None:
                return found
        return best

    def _try(self, failed: Result, options: Options) -> Result | None:
        if self._left <= 0:
            return None
        self._left -= 1
        found = self._play(failed.seed, options)
        return found if found.kinds & failed.kinds else None


def told(result: Result, everything: bool = False) -> Sequence[str]:
    """The history, as people read it: without the questions that every replica asks all the time."""
    lines = [f"{at:9.4f}  {text}" for at, text in result.lines if everything or not _is_idle(text)]
    return [f"seed {result.seed}: {', '.join(sorted(result.kinds)) or 'nothing broken'}", *lines]


IDLE = ("LANES", "LOCK_TO_SETTLE", "CHANGED", "SESSIONS", "LOCK_DEAD", "OWN_ROWS", "MEMBERS", "BEAT", "COMMIT",
        "ATTENDED_SINCE", "WATCHED", "MISSING", "FORMER", "WATCHED_UNTIL", "WATCHED_BY_ALL", "LAGGING")  # fmt: skip


def _is_idle(text: str) -> bool:
    return text.rpartition(" ")[2] in IDLE
