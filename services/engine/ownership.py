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
        return self._turn_away(claim)

    def is_sure(self, context: ExecutionContext) -> bool:
        """As far as this process can tell without asking anybody; False: `may_run` has to be asked."""
        claim = self._held.find(proof_of(context))
        return claim is not None and not self._stopping.is_set() and self._heart.is_sure(claim)

    def answer(self, context: ExecutionContext) -> bool | None:
        """`may_run` for those who ask for many at once: None instead of waiting."""
        claim = self._held.find(proof_of(context))
        if claim is None:
            return False
        if self._stopping.is_set():
            return self._turn_away(claim)
        confirmed = self._confirms(claim)
        if confirmed is False:
            self._dropped([claim])
        return confirmed

    def _turn_away(self, claim: Claim) -> bool:
        self.turned_away.append(claim)
        self._dropped([claim])
        return False

    def _confirms(self, claim: Claim) -> bool | None:
        try:
            return self._heart.confirms(claim)
        except (Unavailable, DBAPIError):  # also a lock or a timeout: that is no fault of the execution
            return None
