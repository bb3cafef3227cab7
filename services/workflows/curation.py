"""Curation: a status that a curator sets; `Selected` also puts the row into the next queue.

A row that is already queued or being processed keeps its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert

from database.connection import DatabaseConnection
from database.models import Base
from database.workflow_models import Domain, LocalBusiness, Page, Place, SitemapFile
from database.workflow_statuses import ContactScrapeStatus, PageProcessingStatus, PlaceStatus
from database.writing import write_as
from services.errors import InvalidInput, Problem
from services.jobs import PermanentFailure
from services.queues.queue import Queue
from services.schedules.spec import plain_text
from services.workflows.deep_scan import DEEP_SCAN
from services.workflows.domain_extraction import DOMAIN_EXTRACTION, domain_of
from services.workflows.page_curation import PAGE_CURATION
from services.workflows.sitemap_import import SITEMAP_IMPORT
from services.workflows.sitemap_submission import SITEMAP_SUBMISSION

MOST_AT_ONCE = 1000
MOST_DOMAINS = 100
# Shorter than Postgres' deadlock timeout of one second: a transaction that waits for one row while holding others gives
# up before a plain UPDATE of another session could become the deadlock's victim.
IMPATIENT = text("SET LOCAL lock_timeout = '700ms'")
UNFIT = {
    "page_processing_status": PageProcessingStatus.FILTERED,
    "contact_scrape_status": ContactScrapeStatus.NOT_A_FIT,
}


@dataclass(frozen=True, slots=True)
class Curated:
    updated_count: int
    queued_count: int


@dataclass(frozen=True, slots=True)
class Submitted:
    id: UUID
    domain: str
    created: bool  # False: it was already known, and stays unchanged


class Curation:
    def __init__(self, db: DatabaseConnection, actor: str) -> None:
        self._db, self._actor = db, actor

    def places(self, ids: Sequence[int | str], status: PlaceStatus) -> Curated:
        return self._curate(DEEP_SCAN, _places(ids), {"status": status})

    def queue_deep_scans(self, ids: Sequence[int | str]) -> Curated:
        return self._curate(DEEP_SCAN, _places(ids), {})

    def businesses(self, ids: Sequence[UUID], status: PlaceStatus) -> Curated:
        return self._curate(DOMAIN_EXTRACTION, LocalBusiness.id.in_(ids), {"status": status})

    def domains(self, ids: Sequence[UUID], status: PlaceStatus) -> Curated:
        return self._curate(SITEMAP_SUBMISSION, Domain.id.in_(ids), {"sitemap_curation_status": status})

    def sitemap_files(self, ids: Sequence[UUID], status: PlaceStatus) -> Curated:
        return self._curate(SITEMAP_IMPORT, SitemapFile.id.in_(ids), {"sitemap_import_curation_status": status})

    def pages(self, ids: Sequence[UUID], status: PlaceStatus) -> Curated:
        """`Not a Fit` also takes a page out of its queue permanently."""
        unfit = UNFIT if status is PlaceStatus.NOT_A_FIT else {}
        return self._curate(PAGE_CURATION, Page.id.in_(ids), {"page_curation_status": status}, unfit)

    def submit_domains(self, names: Sequence[str]) -> list[Submitted]:
        """Domains as people type them; each once, in the given order. Raises InvalidInput with every invalid one."""
        domains = list(dict.fromkeys(_domains(names)))

        def submit(connection: Connection) -> list[Submitted]:
            new = insert(Domain).values([{"domain": name} for name in sorted(domains)]).on_conflict_do_nothing()
            created = set(connection.scalars(new.returning(Domain.domain)))
            known = {
                row.domain: row.id
                for row in connection.execute(select(Domain.domain, Domain.id).where(Domain.domain.in_(domains)))
            }
            return [Submitted(known[name], name, name in created) for name in domains]

        return write_as(self._db, self._actor, submit)

    def _curate(
        self,
        queue: Queue[Any],
        which: ColumnElement[bool],
        word: dict[str, PlaceStatus],
        unfit: dict[str, Any] | None = None,
    ) -> Curated:
        """`word` is the status set on every row; without one, rows are only queued. `unfit` is for rows in no queue."""
        model, field = queue.model, getattr(queue.model, queue.status_field_name)
        resting = or_(field.is_(None), field.not_in([queue.words.queued, queue.words.processing]))
        selected = PlaceStatus.SELECTED in word.values() or not word

        def curate(connection: Connection) -> Curated:
            keys = _lock_keys(connection, model, which)
            if word:
                _update(connection, model, keys, word)
            if unfit:
                _update(connection, model, keys, unfit, resting)
            if not selected:
                return Curated(len(keys), 0)
            queued = _update(connection, model, keys, {queue.status_field_name: queue.words.queued}, resting)
            return Curated(len(keys) if word else queued, queued)

        return write_as(self._db, self._actor, curate)


def _lock_keys(connection: Connection, model: type[Base], which: ColumnElement[bool]) -> list[Any]:
    """In key order, like every writer that locks several rows."""
    key = model.__mapper__.primary_key[0]
    connection.execute(IMPATIENT)
    return list(connection.scalars(select(key).where(which).order_by(key).with_for_update(key_share=True)))


def _update(
    connection: Connection,
    model: type[Base],
    keys: Sequence[Any],
    values: Mapping[str, Any],
    condition: ColumnElement[bool] | None = None,
) -> int:
    key = model.__mapper__.primary_key[0]
    statement = update(model).where(key.in_(keys)).values(values)
    return connection.execute(statement if condition is None else statement.where(condition)).rowcount


def _places(ids: Sequence[int | str]) -> ColumnElement[bool]:
    """Numbers are row ids, texts are the directory's place ids."""
    texts = [plain_text("ids", name) for name in ids if isinstance(name, str)]
    return or_(Place.id.in_([number for number in ids if isinstance(number, int)]), Place.place_id.in_(texts))


def _domains(names: Sequence[str]) -> list[str]:
    problems, found = [], []
    for number, name in enumerate(names):
        try:
            found.append(domain_of(name))
        except PermanentFailure as error:
            problems.append(Problem(f"domains[{number}]", str(error)))
    if problems:
        raise InvalidInput(*problems)
    return found
