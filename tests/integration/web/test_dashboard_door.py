"""The door of the dashboard: who gets a socket, what it may say, and how many pages somebody may ask for."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import requests
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from database.connection import DatabaseConnection
from services.web.auth.roles import Role
from services.web.auth.tokens import ApiTokens
from tests.integration.web.test_program import Program, Start, start  # noqa: F401 - a fixture

OPEN_MENU = '"model-value":true'


@dataclass
class Page:
    """A page as a browser has it: its id, its cookie, its address."""

    url: str
    cookie: str
    client_id: str
    html: str

    @contextmanager
    def socket(self, **changes: str) -> Iterator[ClientConnection]:
        """Says hello as NiceGUI's script does."""
        query = f"EIO=4&transport=websocket&client_id={self.client_id}&implicit_handshake=true&tab_id=t&document_id=d"
        headers = {"Origin": self.url, "Cookie": self.cookie, **changes}
        address = self.url.replace("http://", "ws://") + f"/_nicegui_ws/socket.io/?{query}&next_message_id=0"
        with connect(address, additional_headers={name: value for name, value in headers.items() if value}) as opened:
            assert opened.recv(30)[:1] == "0"
            opened.send("40")
            yield opened

    def click_on_menu(self) -> str:
        return self._event('"tag":"q-btn","class":["es-menu"]')

    def search_for(self, text: str) -> str:
        return self._event('"label":"Search"', json.dumps(text))

    def _event(self, mark: str, *args: str) -> str:
        """Of the one element that has this in its description."""
        elements = re.split(r'(?="\d+":\{"tag":)', self.html)
        (element,) = [element for element in elements if mark in element]
        number, listener = re.findall(r'^"(\d+)"', element)[0], re.findall(r'"listener_id":"([0-9a-f-]+)"', element)[0]
        said = {"id": int(number), "client_id": self.client_id, "listener_id": listener, "args": args}
        return f"42{json.dumps(['event', said])}"

    def answer(self, **changes: str) -> str:
        """The first word of socket.io: 40 welcome, 44 refused."""
        with self.socket(**changes) as opened:
            return str(opened.recv(30))[:2]


@dataclass
class Visit:
    program: Program
    tokens: ApiTokens

    def visit(self, name: str, path: str) -> Page:
        """As somebody of that name; without a name as a stranger."""
        browser, url = requests.Session(), self.program.url
        if name:
            token = self.tokens.create(name, Role.VIEWER, "test").text
            browser.post(f"{url}/api/v3/session", json={"token": token}, timeout=30).raise_for_status()
        answer = browser.get(url + path, timeout=60)
        (client_id,) = re.findall(r"'client_id': '([0-9a-f-]{36})'", answer.text)
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        return Page(url, cookie, client_id, answer.text)


@pytest.fixture
def dashboard(start: Start, db: DatabaseConnection) -> Visit:  # noqa: F811
    ApiTokens(db).create("so that none is printed", Role.VIEWER, "test")
    return Visit(start(WEB_RATE_LIMIT_PER_MINUTE="40"), ApiTokens(db))


def test_a_socket_needs_our_origin_and_the_cookie_of_its_page(dashboard: Visit) -> None:
    page, other = dashboard.visit("anna", "/schedules"), dashboard.visit("bert", "/schedules")
    for origin in ("https://evil.test", "null", ""):
        with pytest.raises(InvalidStatus, match="403"):
            page.answer(Origin=origin)
    assert page.answer(Cookie="") == "44"
    assert page.answer(Cookie=other.cookie) == "44"
    assert page.answer(Cookie="scheduler_session=x") == "44"
    assert page.answer() == "40"
    assert dashboard.visit("", "/login").answer() == "40"


def test_what_a_socket_says_counts_for_its_own_page_and_never_for_the_log(dashboard: Visit) -> None:
    page, other = dashboard.visit("anna", "/schedules"), dashboard.visit("bert", "/schedules")
    with page.socket() as mine, other.socket() as theirs:
        assert [str(opened.recv(30))[:2] for opened in (mine, theirs)] == ["40", "40"]
        mine.send(other.click_on_menu())
        mine.send('42["event", "rubbish"]')
        mine.send(f'42["log", {{"client_id": "{page.client_id}", "level": "error", "message": "a forged line"}}]')
        mine.send(page.click_on_menu())
        assert OPEN_MENU in _said_until(OPEN_MENU, mine)
        theirs.send(other.search_for("somebody"))
        assert OPEN_MENU not in _said_until("somebody was deleted", theirs)
        theirs.send(other.click_on_menu())
        assert OPEN_MENU in _said_until(OPEN_MENU, theirs)
    assert "a forged line" not in dashboard.program.said


def _said_until(words: str, opened: ClientConnection) -> str:
    """What the server tells a page, up to these words."""
    said = ""
    while words not in said:
        said += str(opened.recv(30))
    return said


def test_pages_have_a_limit_of_their_own_that_files_do_not_use_up(dashboard: Visit) -> None:
    url = dashboard.visit("", "/login").url
    answers = [requests.get(f"{url}/login", timeout=60) for _ in range(45)]
    assert answers[0].status_code == 200
    last = answers[-1]
    assert (last.status_code, last.text[:27]) == (429, "Too Many Requests: retry in")
    assert int(last.headers["Retry-After"]) >= 1
    assert requests.get(f"{url}/_nicegui/nothing", timeout=30).status_code == 404
    assert requests.get(f"{url}/healthz", timeout=30).status_code == 200
    assert dashboard.visit("anna", "/schedules").html
