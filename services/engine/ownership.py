"""The gate before a handler: checks that the execution still belongs to this process.

The pool asks right before each call. While Postgres is down there is no answer, so the execution waits in its worker.
"""

from collections.abc import Callable, Sequence
from threading import Event

from sqlalchemy.exc import DBAPIError

from services.engine.heart import Heart
from services.engine.held_claims import HeldClaims, proof_of
from services.errors import Unavailable
from services.jobs import ExecutionContext
from services.ledger.fires import Claim

UNCONFIRMED_SECONDS = 0.5


class Gate:
    """`dropped` is called with each claim that must not run."""

    def __init__(
        self, heart: Heart, held: HeldClaims, stopping: Event, dropped: Callable[[Sequence[Claim]], None]
    ) -> None:
        self._heart, self._held, self._stopping, self._dropped = heart, held, stopping, dropped
        self.turned_away: list[Claim] = []  # still ours when the process was asked to end

    def may_run(self, context: ExecutionContext) -> bool:
        claim = self._held.find(proof_of(context))
        if claim is None:
            return False
        while not self._stopping.is_set():
            match self._confirms(claim):
                case True:
                    return True
                case False:
                    self._dropped([claim])
                    return False
            self._stopping.wait(UNCONFIRMED_SECONDS)
        self.turned_away.append(claim)
        self._dropped([claim])
        return False

    def _confirms(self, claim: Claim) -> bool | None:
        try:
            return self._heart.confirms(claim)
        except (Unavailable, DBAPIError):  # also a lock or a timeout: that is no fault of the execution
            return None
