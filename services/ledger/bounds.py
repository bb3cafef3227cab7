"""How long the ordinary ways of a fire may take, by the settings: for everybody who judges what is lost or stuck."""

from dataclasses import dataclass
from datetime import timedelta

from config import Settings
from services.ledger.summary_sql import YOUNGEST

MINUTE = timedelta(minutes=1)
SLACK = timedelta(seconds=2)  # that a rescue takes

HANDED_OVER = 500  # fires of one schedule that a later scan leaves to the dispatcher: more than a grace of one a second


@dataclass(frozen=True, slots=True)
class Bounds:
    settle: timedelta  # until a fire has its row: by a claim, or by the verification after a lost mark and a claim then
    vouch: timedelta  # until a gap scan has seen that it has one, or has handed it over once more
    takeover: timedelta  # until a dead replica's executions are given up or handed back

    @classmethod
    def from_settings(cls, settings: Settings) -> "Bounds":
        settle = timedelta(seconds=settings.verify_after_seconds) + YOUNGEST
        silence = settings.heartbeat_timeout_seconds + settings.rescue_interval_seconds
        return cls(
            settle=settle,
            # A scan looks at what had time to settle, and vouches for what had it twice.
            vouch=2 * settle + timedelta(seconds=settings.gap_scan_seconds),
            takeover=timedelta(seconds=silence) + SLACK,
        )

    @property
    def unfinished(self) -> timedelta:
        """After its own time limit an execution that is still open for so long is stuck."""
        return max(MINUTE, self.takeover)


@dataclass(frozen=True, slots=True)
class CatchupLimits:
    horizon: timedelta  # nothing older is ever run
    history: timedelta  # nothing older is known
    window: timedelta
    max_fires: int
    settle: timedelta  # a fire that is younger still has its ordinary chance: verification, and the claim after it

    @classmethod
    def from_settings(cls, settings: Settings) -> "CatchupLimits":
        horizon = timedelta(seconds=settings.fence_horizon_seconds)
        nearly_all = timedelta(days=settings.history_retention_days - 1)  # the oldest day may be half deleted
        return cls(
            horizon=horizon,
            history=max(horizon, nearly_all),
            window=timedelta(seconds=settings.catchup_window_seconds),
            max_fires=settings.catchup_max_fires,
            settle=Bounds.from_settings(settings).settle,
        )

    @property
    def held(self) -> int:
        """The newest fires of a gap that a plan may name one by one, and the one before them."""
        return self.max_fires + max(HANDED_OVER, self.max_fires) + 1
