"""What is done with one row: load -> work -> save. Only `work` may be slow, and it never sees a session."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from sqlalchemy.orm import Session

from services.workflows.outcomes import K

Load = Callable[[Session, K], Any]
Work = Callable[[Any], Any]
Save = Callable[[Session, K, Any], None]
Process = Callable[[K, Session], None]
OnFailed = Callable[[Session, K, str], None]


@dataclass(frozen=True, kw_only=True)  # without slots: Python 3.11 could not make a Steps[int](…)
class Steps(Generic[K]):
    """`load` and `save` may be called again for the same item, after a rollback: they only read and write the session.

    load(session, key) -> snapshot      what `work` needs, as plain values
    work(snapshot) -> result            in a thread of its own, under the item timeout, without a session
    save(session, key, result)          in the transaction that also ends the item; without `work`, of the snapshot
    on_failed(session, key, error)      in the transaction that fails the item for good
    own_sites                           every item asks a site of its own: one that fails says nothing about the others
    """

    save: Save[K]
    load: Load[K] | None = None
    work: Work | None = None
    on_failed: OnFailed[K] | None = None
    own_sites: bool = False

    @classmethod
    def plain(cls, process: Process[K], on_failed: OnFailed[K] | None = None) -> "Steps[K]":
        """For work without slow I/O: everything happens in the one transaction that also ends the item."""

        def save(session: Session, key: K, _result: None) -> None:
            process(key, session)

        return cls(save=save, on_failed=on_failed)
