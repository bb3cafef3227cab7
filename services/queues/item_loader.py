"""Reads the snapshots of rows that were just claimed, in one transaction; a row that cannot be read fails alone."""

from collections.abc import Sequence
from typing import Generic

from database.connection import DatabaseConnection
from services.errors import Unavailable
from services.jobs.containment import Raised, Returned, contained
from services.queues.outcomes import Claimed, Ended, K
from services.queues.steps import Load


class ItemLoader(Generic[K]):
    def __init__(self, db: DatabaseConnection, load: Load[K] | None) -> None:
        self._db, self._load = db, load

    def load(self, claims: Sequence[Claimed[K]]) -> list[Ended[K]]:
        """Each claim with its snapshot, or with what its loading raised."""
        if self._load is None or not claims:
            return [Ended(claim, Returned(None)) for claim in claims]
        match contained(lambda: self._load_together(claims)):
            case Returned(loaded):
                return loaded
            case Raised(Unavailable() | KeyboardInterrupt() as error):
                raise error
            case Raised(error) if len(claims) == 1:
                return [Ended(claims[0], Raised(error))]
            case Raised():
                return [item for claim in claims for item in self.load([claim])]

    def _load_together(self, claims: Sequence[Claimed[K]]) -> list[Ended[K]]:
        assert self._load is not None  # noqa: S101 - asked by `load`
        with self._db.get_background_session() as session:
            return [Ended(claim, Returned(self._load(session, claim.key))) for claim in claims]
