"""WF8: rows of `contacts`, found by the pipeline or entered manually: one for each address of a domain."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, delete, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from database.connection import DatabaseConnection
from database.pages import Keyset, PageOf
from database.workflow_models import Contact, Domain, Page
from database.workflow_statuses import ContactCurationStatus, EmailType
from database.writing import write_as
from enhanced_scheduler.texts import storable_json
from services.checks.hostnames import spellings
from services.errors import InvalidInput, Problem, SchedulerError
from services.schedules.spec import plain_text
from services.workflows.parsing.contacts import FoundContact
from services.workflows.parsing.email_addresses import spelled_address, type_of

FILLED = ("name", "phone_number", "source_url", "context", "page_id")
WRITABLE = ("email", "email_type", "name", "phone_number", "source_url", "context", "contact_curation_status")


class ContactExists(SchedulerError):
    def __init__(self, email: str) -> None:
        super().__init__(f"the domain has a contact {email} already")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContactRecord:
    id: UUID
    domain_id: UUID
    domain: str
    page_id: UUID | None
    email: str
    email_type: str
    name: str | None
    phone_number: str | None
    source_url: str | None
    context: str | None
    contact_curation_status: str
    created_by: str | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ContactFilter:
    domain: str | None = None
    email: str | None = None  # a substring
    email_type: EmailType | None = None
    contact_curation_status: ContactCurationStatus | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = []
        if self.domain is not None:
            found.append(Domain.domain.in_(spellings(plain_text("domain", self.domain))))
        if self.email is not None:
            found.append(Contact.email.contains(plain_text("email", self.email).lower(), autoescape=True))
        if self.email_type is not None:
            found.append(Contact.email_type == self.email_type)
        if self.contact_curation_status is not None:
            found.append(Contact.contact_curation_status == self.contact_curation_status)
        return found


ContactPage = PageOf[ContactRecord]


NEWEST_FIRST = Keyset(columns=(Contact.created_at, Contact.id))
_COLUMNS = [getattr(Domain if item.name == "domain" else Contact, item.name) for item in fields(ContactRecord)]
_SELECT = select(*_COLUMNS).join(Domain, Domain.id == Contact.domain_id)


class ContactStore:
    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def get(self, contact_id: UUID) -> ContactRecord | None:
        with self._db.transaction() as connection:
            row = connection.execute(_SELECT.where(Contact.id == contact_id)).one_or_none()
        return None if row is None else _record(row)

    def list(
        self, where: ContactFilter = ContactFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> ContactPage:
        """Newest first."""
        query = NEWEST_FIRST.page(_SELECT.where(*where.conditions()), limit, cursor)
        with self._db.transaction() as connection:
            found = [_record(row) for row in connection.execute(query)]
        return NEWEST_FIRST.cut(found, limit)

    def create(self, domain_id: UUID, given: Mapping[str, Any], actor: str) -> ContactRecord:
        """Raises InvalidInput or ContactExists."""
        values = _valid_fields(given)

        def create(connection: Connection) -> ContactRecord:
            domain = connection.scalar(select(Domain.domain).where(Domain.id == domain_id))
            if domain is None:
                raise InvalidInput(Problem("domain_id", f"domain {domain_id} not found"))
            values.setdefault("email_type", type_of(values["email"], domain))
            new = insert(Contact).values(domain_id=domain_id, **values).on_conflict_do_nothing()
            created = connection.scalar(new.returning(Contact.id))
            if created is None:
                raise ContactExists(values["email"])
            return _record(connection.execute(_SELECT.where(Contact.id == created)).one())

        return write_as(self._db, actor, create)

    def update(self, contact_id: UUID, given: Mapping[str, Any]) -> ContactRecord | None:
        """None: no such contact. Raises InvalidInput or ContactExists."""
        values = _valid_fields(given)
        try:
            with self._db.transaction() as connection:
                if values:
                    connection.execute(update(Contact).where(Contact.id == contact_id).values(values))
                row = connection.execute(_SELECT.where(Contact.id == contact_id)).one_or_none()
        except IntegrityError:
            raise ContactExists(str(values.get("email"))) from None
        return None if row is None else _record(row)

    def delete(self, contact_id: UUID) -> bool:
        with self._db.transaction() as connection:
            return connection.execute(delete(Contact).where(Contact.id == contact_id)).rowcount > 0


def save_found(session: Session, page: Page, found: Sequence[FoundContact]) -> None:
    """One for each address of the domain; a known contact gets only values for its empty fields."""
    if found:
        rows = json.dumps([storable_json(asdict(each)) for each in found])
        values = {"rows": rows, "domain_id": page.domain_id, "page_id": page.id, "url": page.url}
        session.connection().exec_driver_sql(SAVE_FOUND, values)


SAVE_FOUND = f"""
INSERT INTO contacts AS c (domain_id, page_id, source_url, email, email_type, name, phone_number, context)
SELECT %(domain_id)s, %(page_id)s, %(url)s, f.email, f.email_type, f.name, f.phone_number, f.context
FROM json_populate_recordset(NULL::contacts, %(rows)s::json) AS f ORDER BY f.email
ON CONFLICT (domain_id, email) DO UPDATE SET
    {", ".join(f"{name} = coalesce(c.{name}, excluded.{name})" for name in FILLED)},
    email_type = CASE WHEN c.email_type = 'UNKNOWN' THEN excluded.email_type ELSE c.email_type END
WHERE {" OR ".join(f"(c.{name} IS NULL AND excluded.{name} IS NOT NULL)" for name in FILLED)}
   OR (c.email_type = 'UNKNOWN' AND excluded.email_type <> 'UNKNOWN')
"""  # noqa: S608 - made of constants


def _valid_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: plain_text(name, value) if isinstance(value, str) else value for name, value in given.items()}
    unknown = [Problem(name, "is not a field that can be set") for name in values if name not in WRITABLE]
    missing = [
        Problem(name, "must not be null")
        for name in ("email", "email_type", "contact_curation_status")
        if name in values and values[name] is None
    ]
    if unknown or missing:
        raise InvalidInput(*unknown, *missing)
    if "email" in values:
        email = spelled_address(values["email"])
        if email is None:
            raise InvalidInput(Problem("email", f"{values['email']!r} is not an e-mail address"))
        values["email"] = email
    return values


def _record(row: Row[Any]) -> ContactRecord:
    return ContactRecord(**row._mapping)
