"""/api/v3/contacts: the results of the pipeline, and contacts added manually."""

from typing import Annotated
from uuid import UUID

from fastapi import Query, Response

from database.workflow_statuses import ContactCurationStatus, EmailType
from services.web.auth.guard import Admin, IdempotencyKey, Operator, Viewer
from services.web.problems import CONFLICT, HttpProblem, not_found
from services.web.routing import API, Cursor, Limit, PartsOf, router
from services.web.schemas.workflows import ContactChanges, ContactList, ContactOut, NewContact
from services.workflows.contact_store import ContactExists, ContactFilter, ContactStore

contacts = router(f"{API}/contacts", "contacts")


@contacts.get("")
def list_contacts(
    parts: PartsOf,
    who: Viewer,
    domain: Annotated[str | None, Query(max_length=255)] = None,
    email: Annotated[str | None, Query(max_length=254, description="Part of the email address.")] = None,
    email_type: EmailType | None = None,
    contact_curation_status: ContactCurationStatus | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ContactList:
    """A page of contacts, newest first."""
    wanted = ContactFilter(
        domain=domain, email=email, email_type=email_type, contact_curation_status=contact_curation_status
    )
    return ContactList.model_validate(ContactStore(parts.db).list(wanted, limit=limit, cursor=cursor))


@contacts.post("", status_code=201)
def create_contact(
    body: NewContact, response: Response, parts: PartsOf, who: Operator, key: IdempotencyKey = None
) -> ContactOut:
    """Create a contact. 409 if the domain already has this email address."""
    given = body.given()
    try:
        created = ContactStore(parts.db).create(given.pop("domain_id"), given, who.actor)
    except ContactExists as error:
        raise HttpProblem(CONFLICT, str(error)) from None
    response.headers["Location"] = f"{API}/contacts/{created.id}"
    return ContactOut.model_validate(created)


@contacts.get("/{contact_id}")
def read_contact(contact_id: UUID, parts: PartsOf, who: Viewer) -> ContactOut:
    """A contact."""
    found = ContactStore(parts.db).get(contact_id)
    if found is None:
        raise not_found(f"contact {contact_id}")
    return ContactOut.model_validate(found)


@contacts.patch("/{contact_id}", responses={409: {"description": "Another contact has this email address"}})
def change_contact(contact_id: UUID, body: ContactChanges, parts: PartsOf, who: Operator) -> ContactOut:
    """Change individual fields of a contact."""
    try:
        changed = ContactStore(parts.db).update(contact_id, body.given())
    except ContactExists as error:
        raise HttpProblem(CONFLICT, str(error)) from None
    if changed is None:
        raise not_found(f"contact {contact_id}")
    return ContactOut.model_validate(changed)


@contacts.delete("/{contact_id}", status_code=204)
def delete_contact(contact_id: UUID, parts: PartsOf, who: Admin) -> None:
    """Delete a contact. The pipeline adds it again if it reads a page that still contains it."""
    if not ContactStore(parts.db).delete(contact_id):
        raise not_found(f"contact {contact_id}")
