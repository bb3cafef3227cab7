"""Who looks at a page: found by the session cookie when the page is built, and again before every action."""

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
ZONE_COOKIE = "tz"
HAS_WORKFLOWS = """
SELECT EXISTS (SELECT FROM workflow_queues) OR EXISTS (SELECT FROM contacts) OR EXISTS (SELECT FROM places_staging)
"""
T = TypeVar("T")


class _Mounted:
    """The parts of the app that the pages belong to: NiceGUI's pages are one set per process."""

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
    zone: ZoneInfo  # the browser's own
    path: str
    has_workflows: bool = False  # else their pages are not in the way

    @property
    def parts(self) -> Parts:
        return parts()

    def may(self, role: Role) -> bool:
        return self.identity.may(role)

    def local(self, at: datetime) -> datetime:
        return at.astimezone(self.zone)

    async def read(self, question: Callable[[], T]) -> T:
        """Ask the services outside of the event loop, for a visitor whose session still holds."""
        await self._present()
        answer = await run_in_threadpool(question)
        outage.note_answer()
        return answer

    async def act(self, role: Role, action: Callable[[], T]) -> T | None:
        """Change something, if the visitor still may; None (and a message on the page) when that did not work."""
        try:
            present = await self._present()
            if not present.may(role):
                ui.notify(f"this requires the role {role}; you have {present.role or 'none'}", type="negative")
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
        """Who the visitor is by now; raises LoggedOut, on the way to the login page, if that is nobody."""
        found = await run_in_threadpool(parts().authenticator.identify, {}, self.cookies)
        if isinstance(found, Refusal) or not found.may(Role.VIEWER):
            ui.navigate.to(login_path(self.path))
            raise LoggedOut
        return found


async def admit(request: Request) -> Visitor | RedirectResponse:
    """The visitor, or the way to the login page and back."""
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    found = await run_in_threadpool(parts().authenticator.identify, {}, dict(request.cookies))
    if isinstance(found, Refusal) or not found.may(Role.VIEWER):
        return RedirectResponse(login_path(path))
    return Visitor(found, dict(request.cookies), zone_of(request), path, await run_in_threadpool(_has_workflows))


def _has_workflows() -> bool:
    """The replicas have them, whatever this process's own settings say."""
    with parts().db.transaction() as connection:
        return bool(connection.exec_driver_sql(HAS_WORKFLOWS).scalar_one())


def login_path(back_to: str) -> str:
    return f"/login?to={quote(back_to)}"


def safe_path(path: str) -> str:
    """Only back to a page of ours: the address comes from a link that anybody can make."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours else "/"


def zone_of(request: Request) -> ZoneInfo:
    """The browser's own, once it has said so."""
    try:
        return ZoneInfo(unquote(request.cookies.get(ZONE_COOKIE, "")))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")
