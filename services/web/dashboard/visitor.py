"""The visitor of a page, authenticated by the session cookie when the page is built and before every action."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import Request
from fastapi.responses import RedirectResponse
from nicegui import ui
from sqlalchemy.exc import DBAPIError
from starlette.concurrency import run_in_threadpool

from services.errors import SchedulerError
from services.web.auth.roles import Identity, Refusal, Role
from services.web.dashboard import outage
from services.web.parts import Parts
from services.wording.refusals import refusal

REFUSED = "The database refuses the change right now"
ZONE_COOKIE, UTC_COOKIE = "tz", "utc"
HAS_WORKFLOWS = """
SELECT EXISTS (SELECT FROM workflow_queues) OR EXISTS (SELECT FROM contacts) OR EXISTS (SELECT FROM places_staging)
"""
T = TypeVar("T")


class _Mounted:
    """The parts of the app that the pages belong to; NiceGUI has one set of pages per process."""

    parts: Parts | None = None


def use(parts: Parts) -> None:
    _Mounted.parts = parts


def parts() -> Parts:
    if _Mounted.parts is None:
        raise RuntimeError("the dashboard is not mounted")
    return _Mounted.parts


class LoggedOut(Exception):
    """The session of a page that is still open has ended."""


@dataclass(frozen=True, slots=True)
class Visitor:
    identity: Identity
    cookies: Mapping[str, str]
    zone: ZoneInfo  # of the browser
    path: str
    has_workflows: bool = False  # otherwise their pages are hidden

    @property
    def parts(self) -> Parts:
        return parts()

    def may(self, role: Role) -> bool:
        return self.identity.may(role)

    def local(self, at: datetime) -> datetime:
        return at.astimezone(self.zone)

    async def read(self, question: Callable[[], T]) -> T:
        """Call a service outside the event loop, if the session is still valid."""
        await self._present()
        answer = await run_in_threadpool(question)
        outage.note_answer()
        return answer

    async def act(self, role: Role, action: Callable[[], T]) -> T | None:
        """Change something, if the visitor still has the role; None, with a message on the page, if it failed."""
        try:
            present = await self._present()
            if not present.may(role):
                ui.notify(f"This requires the role {role}; you have {present.role or 'none'}", type="negative")
                return None
            return await run_in_threadpool(action)
        except LoggedOut:
            return None
        except SchedulerError as error:
            ui.notify(str(error), type="negative", multi_line=True, timeout=10_000, close_button="OK")
            return None
        except DBAPIError as error:
            if refusal(error) is None:
                raise
            ui.notify(f"{REFUSED}; try again", type="negative", timeout=10_000, close_button="OK")
            return None

    async def _present(self) -> Identity:
        """The visitor's current identity; otherwise goes to the login page and raises LoggedOut."""
        found = await run_in_threadpool(parts().authenticator.identify, {}, self.cookies)
        if isinstance(found, Refusal) or not found.may(Role.VIEWER):
            ui.navigate.to(login_path(self.path))
            raise LoggedOut
        return found


async def admit(request: Request) -> Visitor | RedirectResponse:
    """The visitor, or a redirect to the login page, which leads back here."""
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    found = await run_in_threadpool(parts().authenticator.identify, {}, dict(request.cookies))
    if isinstance(found, Refusal) or not found.may(Role.VIEWER):
        return RedirectResponse(login_path(path))
    return Visitor(found, dict(request.cookies), zone_of(request), path, await run_in_threadpool(_has_workflows))


def _has_workflows() -> bool:
    """Decided by the tables: the settings of this process may differ from those of the replicas."""
    with parts().db.transaction() as connection:
        return bool(connection.exec_driver_sql(HAS_WORKFLOWS).scalar_one())


def login_path(back_to: str) -> str:
    return f"/login?to={quote(back_to)}"


def safe_path(path: str) -> str:
    """Only paths of this site: anyone can craft a link to the login page."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours else "/"


def zone_of(request: Request) -> ZoneInfo:
    """The browser's time zone; UTC until it is known, and if the visitor has chosen it."""
    if request.cookies.get(UTC_COOKIE) == "1":
        return ZoneInfo("UTC")
    try:
        return ZoneInfo(unquote(request.cookies.get(ZONE_COOKIE, "")))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")
