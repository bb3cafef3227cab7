"""Contacts by hand: create, read, change, delete, list."""

from typing import Any
from uuid import uuid4

import pytest

from database.connection import DatabaseConnection
from tests.support.places import query
from tests.support.web import Web, problem


@pytest.fixture
def domain_id(db: DatabaseConnection) -> str:
    ((found,),) = query(db, "INSERT INTO domains (domain) VALUES ('bakery.example') RETURNING id")
    return str(found)


def create(web: Web, domain_id: str, email: str, **more: Any) -> dict[str, Any]:
    answer = web.post("/contacts", {"domain_id": domain_id, "email": email, **more})
    assert answer.status_code == 201, answer.text
    contact: dict[str, Any] = answer.json()
    return contact


def test_a_contact_can_be_added_and_read(web: Web, domain_id: str) -> None:
    made = create(web, domain_id, " Anna@Bakery.Example ", name="Anna")
    assert (made["email"], made["email_type"], made["domain"]) == ("anna@bakery.example", "CORPORATE", "bakery.example")
    assert made["created_by"].startswith("token:")
    assert web.get(f"/contacts/{made['id']}").json() == made


def test_one_contact_for_each_address_of_a_domain(web: Web, domain_id: str) -> None:
    create(web, domain_id, "anna@bakery.example")
    bert = create(web, domain_id, "bert@bakery.example")
    again = web.post("/contacts", {"domain_id": domain_id, "email": "ANNA@bakery.example"})
    assert problem(again)["detail"] == "the domain has a contact anna@bakery.example already"
    renamed = web.ask("PATCH", f"/contacts/{bert['id']}", "operator", json={"email": "anna@bakery.example"})
    assert (again.status_code, renamed.status_code) == (409, 409)


def test_only_what_is_named_changes(web: Web, domain_id: str) -> None:
    made = create(web, domain_id, "anna@bakery.example", name="Anna", phone_number="+17165550100")
    changed = web.ask(
        "PATCH", f"/contacts/{made['id']}", "operator", json={"name": None, "contact_curation_status": "Complete"}
    ).json()
    assert {name for name in made if made[name] != changed[name]} == {"name", "contact_curation_status", "updated_at"}
    assert web.ask("PATCH", f"/contacts/{made['id']}", "operator", json={}).json()["name"] is None


def test_a_contact_can_be_deleted(web: Web, domain_id: str) -> None:
    made = create(web, domain_id, "anna@bakery.example")
    assert web.ask("DELETE", f"/contacts/{made['id']}", "admin").status_code == 204
    assert web.get(f"/contacts/{made['id']}").status_code == 404
    assert web.ask("DELETE", f"/contacts/{made['id']}", "admin").status_code == 404
    assert web.ask("PATCH", f"/contacts/{made['id']}", "operator", json={"name": "x"}).status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"email": "nobody"}, "email"),
        ({"email": "a@b"}, "email"),
        ({"email": "a@bakery.example", "name": "a\0b"}, "name"),
        ({"email": "a@bakery.example", "email_type": "PRIVATE"}, "email_type"),
        ({"email": "a@bakery.example", "domain_id": str(uuid4())}, "domain_id"),
        ({"email": "a@bakery.example", "page_id": str(uuid4())}, "page_id"),
        ({"email": "a@bakery.example", "contact_curation_status": None}, "contact_curation_status"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_field(
    web: Web, domain_id: str, body: dict[str, Any], field: str
) -> None:
    answer = problem(web.post("/contacts", {"domain_id": domain_id, **body}))
    assert (answer["status"], answer["errors"][0]["field"].rpartition(".")[2]) == (422, field)


def test_lists_have_filters_and_pages(web: Web, domain_id: str, db: DatabaseConnection) -> None:
    for number in range(5):
        create(web, domain_id, f"a{number}@bakery.example")
    create(web, domain_id, "info@bakery.example", contact_curation_status="Complete")
    ((other,),) = query(db, "INSERT INTO domains (domain) VALUES ('other.example') RETURNING id")
    create(web, str(other), "z@gmail.com")

    def listed(**params: Any) -> list[str]:
        found, cursor = [], None
        while True:
            page = web.get("/contacts", params={**params, "limit": 2, **({"cursor": cursor} if cursor else {})}).json()
            found += [item["email"].partition("@")[0] for item in page["items"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    assert listed() == ["z", "info", "a4", "a3", "a2", "a1", "a0"]
    assert listed(domain="Other.example") == ["z"]
    assert listed(email="A1@") == ["a1"]
    assert listed(email_type="SERVICE") == ["info"]
    assert listed(contact_curation_status="Complete") == ["info"]
    assert problem(web.get("/contacts?cursor=x"))["errors"][0]["field"] == "cursor"
