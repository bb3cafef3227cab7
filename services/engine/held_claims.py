"""The executions held by this process, from claim to written result, and which of them are in the pool.

Dispatcher, pool, finisher and heart share it; each method is atomic. At most one process acts on a row, because a claim
is either accepted or disowned here, never both: the heart disowns an unknown row *before* it hands the row back, and a
claim whose answer arrives after that is discarded.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from services.jobs import ExecutionContext
from services.ledger.fires import Claim

Proof = tuple[UUID, int]  # execution id and fencing token


def proof_of(context: ExecutionContext) -> Proof:
    return context.execution_id, context.fencing_token


class HeldClaims:
    """`forgotten` is called with claims that are over for this process: written, refused or let go."""

    def __init__(self, forgotten: Callable[[Sequence[Claim]], None] = lambda claims: None) -> None:
        self._lock, self._forgotten = threading.Lock(), forgotten
        self._claims: dict[UUID, Claim] = {}
        self._in_pool: set[Proof] = set()
        self._in_loop: set[Proof] = set()  # of those: in the event loop, or on the way to it
        self._disowned: set[Proof] = set()

    def __len__(self) -> int:
        return len(self._claims)

    def accept(self, started: Sequence[Claim], claims: Sequence[Claim]) -> tuple[list[Claim], list[Claim]]:
        """Hold what a call has claimed; returns it without what was disowned while the answer was on its way.

        One thread claims, one call at a time: with this answer no earlier one can still arrive, so the list of
        disowned proofs starts anew.
        """
        with self._lock:
            gone, self._disowned = self._disowned, set()
            ours = tuple([claim for claim in some if claim.proof not in gone] for some in (started, claims))
            self._claims.update((claim.execution_id, claim) for some in ours for claim in some)
        return ours[0], ours[1]

    def replace(self, claim: Claim) -> None:
        """The same claim under a newer definition of its schedule."""
        with self._lock:
            self._claims[claim.execution_id] = claim

    def disown(self, proofs: Iterable[Proof]) -> list[Proof]:
        """Refuse these proofs from now on, as far as we do not hold them; returns those."""
        with self._lock:
            unknown = [proof for proof in proofs if not self._holds(proof)]
            self._disowned.update(unknown)
        return unknown

    def strangers(self, proofs: Iterable[Proof]) -> set[Proof]:
        """Those of these proofs that we do not hold."""
        with self._lock:
            return {proof for proof in proofs if not self._holds(proof)}

    def find(self, proof: Proof) -> Claim | None:
        with self._lock:
            return self._claims[proof[0]] if self._holds(proof) else None

    def holds_execution(self, execution_id: UUID) -> bool:
        with self._lock:
            return execution_id in self._claims

    def forget(self, claims: Iterable[Claim]) -> None:
        """Their ends are written, or this replica no longer holds them (unless it has claimed them again meanwhile)."""
        claims = list(claims)
        with self._lock:
            for claim in claims:
                if self._holds(claim.proof):
                    del self._claims[claim.execution_id]
        self._forgotten(claims)

    # --- the pool ---

    @property
    def in_pool(self) -> int:
        return len(self._in_pool)

    @property
    def in_loop(self) -> int:
        return len(self._in_loop)

    def enter_pool(self, claims: Iterable[Claim], *, in_loop: bool = False) -> None:
        proofs = [claim.proof for claim in claims]
        with self._lock:
            self._in_pool.update(proofs)
            if in_loop:
                self._in_loop.update(proofs)

    def leave_pool(self, proofs: Iterable[Proof]) -> None:
        proofs = list(proofs)
        with self._lock:
            self._in_pool.difference_update(proofs)
            if self._in_loop:
                self._in_loop.difference_update(proofs)

    def _holds(self, proof: Proof) -> bool:
        claim = self._claims.get(proof[0])
        return claim is not None and claim.fencing_token == proof[1]
