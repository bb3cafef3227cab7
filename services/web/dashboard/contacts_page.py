"""Contacts: the results of the pipeline, newest first, each with the page where it was found."""

from collections.abc import Mapping
from typing import Any

from database.workflow_statuses import ContactCurationStatus, EmailType
from services.web.dashboard.list_page import ROWS, ListPage, list_at, text_of
from services.web.dashboard.look import NOTHING, clock
from services.web.dashboard.tables import OUTSIDE_CELL, columns
from services.web.dashboard.visitor import Visitor
from services.workflows.contact_store import ContactFilter, ContactPage, ContactRecord, ContactStore

SHOWN = columns(
    "email",
    "type",
    "name",
    "phone",
    "domain",
    "found_on",
    "status",
    "found_at",
    lead="email",
    short=("phone", "found_at"),
    wide=("found_on",),
)


@list_at("/contacts", "Contacts")
class _Contacts(ListPage[ContactPage]):
    columns = SHOWN
    empty = (
        "No contacts match",
        "The last workflow finds contacts on pages set to Selected. The filters may hide some.",
    )

    def __init__(self, visitor: Visitor, asked: Mapping[str, str]) -> None:
        super().__init__(visitor, asked)
        self.table.add_slot("body-cell-found_on", OUTSIDE_CELL)

    def build_filters(self, asked: Mapping[str, str]) -> None:
        self._email = self.text_filter("Email contains", asked.get("email", ""))
        self._domain = self.text_filter("Domain", asked.get("domain", ""))
        self._type = self.choice_filter("Type", {word.value: word.lower() for word in EmailType})
        self._status = self.choice_filter("Status", {word.value: word.value for word in ContactCurationStatus})

    def look(self, cursor: str | None) -> ContactPage:
        kind, status = self._type.value, self._status.value
        wanted = ContactFilter(
            email=text_of(self._email),
            domain=text_of(self._domain),
            email_type=EmailType(kind) if kind else None,
            contact_curation_status=ContactCurationStatus(status) if status else None,
        )
        return ContactStore(self.visitor.parts.db).list(wanted, limit=ROWS, cursor=cursor)

    def row(self, record: ContactRecord) -> dict[str, Any]:
        return {
            "id": str(record.id),
            "email": record.email,
            "type": record.email_type.lower(),
            "name": record.name or NOTHING,
            "phone": record.phone_number or NOTHING,
            "domain": record.domain,
            "found_on": record.source_url or NOTHING,
            "outside": outside_address(record.source_url),
            "status": record.contact_curation_status,
            "found_at": clock(self.visitor.local(record.created_at), with_seconds=False),
        }


def outside_address(url: str | None) -> str | None:
    """A safe link target: whoever may write contacts could have stored a script instead of a URL."""
    return url if url and url.lower().startswith(("http://", "https://")) else None
