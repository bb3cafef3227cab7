"""Browser state after a page -> sightings of the scan. Pure; only names are kept, never values."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from services.fetching.sites.urls import host_of
from services.scanning.findings import SeenCookie, Storage

MAX_CHARACTERS = 2048
FAR_FUTURE = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Setter:
    """A response or a script that set a cookie of that name for that host."""

    name: str
    host: str
    url: str


@dataclass(frozen=True, slots=True)
class FrameFacts:
    """One frame of the page, by its own account."""

    url: str
    origin: str
    names: Mapping[Storage, tuple[str, ...]]
    writes: tuple[Setter, ...]

    @classmethod
    def read(cls, told: Any) -> "FrameFacts":
        """Validates the types: a page can return anything."""
        facts = told if isinstance(told, dict) else {}
        url = _text(facts.get("url"))
        host = _host(url)
        pairs = [pair for pair in _items(facts.get("writes")) if isinstance(pair, list) and len(pair) == 2]
        return cls(
            url=url,
            origin=_text(facts.get("origin")),
            names={storage: tuple(_names(facts.get(storage))) for storage in (Storage.LOCAL, Storage.SESSION)},
            writes=tuple(Setter(_text(name), host, _text(script) or url) for name, script in pairs),
        )


def cookies_seen(jar: Iterable[Mapping[str, Any]], page_url: str) -> list[SeenCookie]:
    """`jar`: cookies as the DevTools protocol describes them."""
    return [_cookie(cookie, page_url) for cookie in jar]


def storage_seen(frames: Iterable[FrameFacts], page_url: str) -> list[SeenCookie]:
    found: dict[tuple[str, str, str, str], SeenCookie] = {}
    for frame in frames:
        host = _host(frame.origin)
        for storage, names in frame.names.items() if host else ():
            for name in names:
                seen = SeenCookie(
                    name=name,
                    domain=host,
                    path="/",
                    storage=storage,
                    secure=frame.origin.startswith("https:"),
                    page_url=page_url,
                    request_url=frame.url,
                )
                found.setdefault(seen.key, seen)
    return list(found.values())


def belongs_to(cookie: SeenCookie, hosts: Collection[str]) -> bool:
    """Whether one of these hosts would receive the cookie."""
    below = f".{cookie.domain}"
    return cookie.domain in hosts or (not cookie.host_only and any(host.endswith(below) for host in hosts))


def attributed(cookie: SeenCookie, setters: Iterable[Setter]) -> SeenCookie | None:
    """With the first request or script that set it; None if unknown."""
    for setter in setters:
        if setter.name == cookie.name and belongs_to(cookie, {setter.host}):
            return replace(cookie, request_url=setter.url)
    return None


def _cookie(told: Mapping[str, Any], page_url: str) -> SeenCookie:
    domain = str(told["domain"]).lower()
    return SeenCookie(
        name=str(told["name"]),
        domain=domain.removeprefix("."),
        path=str(told["path"]),
        host_only=not domain.startswith("."),
        expires_at=None if told.get("session") else _instant(float(told["expires"])),
        secure=bool(told["secure"]),
        http_only=bool(told["httpOnly"]),
        same_site=told.get("sameSite"),
        page_url=page_url,
        request_url=page_url,
    )


def _instant(seconds: float) -> datetime | None:
    if seconds < 0:
        return None
    return datetime.fromtimestamp(seconds, UTC) if seconds < FAR_FUTURE.timestamp() else FAR_FUTURE


def _text(value: Any) -> str:
    return value[:MAX_CHARACTERS] if isinstance(value, str) else ""


def _names(value: Any) -> list[str]:
    return [_name(item) for item in _items(value) if isinstance(item, str)]


def _name(text: str) -> str:
    """Shortened, but still unique among names with the same beginning."""
    if len(text) <= MAX_CHARACTERS:
        return text
    end = f"…{blake2b(text.encode(errors='surrogatepass'), digest_size=8).hexdigest()}"
    return text[: MAX_CHARACTERS - len(end)] + end


def _host(url: str) -> str:
    try:
        return host_of(url)
    except ValueError:
        return ""


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
