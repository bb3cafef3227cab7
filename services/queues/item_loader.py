"""Reads the snapshots of rows that were just claimed, in one transaction; a row that cannot be read fails alone."""

from collections.abc import Sequence
from typing import Any, Generic, cast

from enhanced_scheduler.containment import Outcome, Raised, Returned, contained
from services.errors import Unavailable
from services.queues.async_steps import Sessions
from services.queues.outcomes import Claim, K
from services.queues.steps import Load

Loaded = list[tuple[Claim[K], Outcome[Any]]]


class ItemLoader(Generic[K]):
    def __init__(self, sessions: Sessions, load: Load[K] | None) -> None:
        self._sessions, self._load = sessions, cast(Any, load)

    def load(self, claims: Sequence[Claim[K]]) -> Loaded[K]:
        """Each claim with its snapshot, or with the exception that loading it raised."""
        if self._load is None or not claims:
            return [(claim, Returned(None)) for claim in claims]
        match contained(lambda: self._sessions.run(lambda: self._load_together(claims))):
            case Returned(loaded):
                return loaded
            case Raised(Unavailable() | KeyboardInterrupt() as error):
                raise error
            case Raised(error) if len(claims) == 1:
                return [(claims[0], Raised(error))]
            case Raised():
                return [alone for claim in claims for alone in self.load([claim])]

    def _load_together(self, claims: Sequence[Claim[K]]) -> Loaded[K]:
        with self._sessions.get_background_session() as session:
            return [(claim, Returned(self._load(session, claim.key))) for claim in claims]
