"""Parser of Set-Cookie: the cookie that a browser would keep, or the reason why it would keep none (RFC 6265bis).

No input raises. Cookies that every browser refuses are not recorded. The value is dropped at once.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import ip_address
from urllib.parse import urlsplit

from services.checks.page_addresses import MAX_PAGE_ADDRESS
from services.fetching.sites.urls import host_of, is_address, is_public_suffix
from services.scanning.cookies.dates import parse_cookie_date
from services.scanning.findings import SeenCookie

MAX_PAIR_BYTES, MAX_ATTRIBUTE_BYTES = 4096, 1024
MAX_AGE_SECONDS = 100 * 365 * 86_400
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PROMISE = re.compile(r"__(?:secure-|http-|host-(?:http-)?)", re.IGNORECASE)
_SAME_SITE = {"strict": "Strict", "lax": "Lax", "none": "None"}


class NoCookie(StrEnum):
    """Why a browser stores nothing for a header."""

    DELETED = "deletes a cookie"  # not counted as a refusal
    EMPTY = "has neither name nor value"
    CONTROL = "contains control characters"
    TOO_LARGE = "is larger than 4096 bytes"
    FOREIGN_DOMAIN = "names a domain that is not the server's own"
    INSECURE = "is Secure, but came over plain http"
    BAD_PREFIX = "breaks the rules of its name prefix, such as __Host-"


@dataclass(frozen=True, slots=True)
class _Attributes:
    values: dict[str, str]  # lower-case names; the last of several wins

    @classmethod
    def read(cls, text: str) -> "_Attributes":
        pairs = (part.partition("=") for part in text.split(";"))
        named = ((name.strip().lower(), value.strip()) for name, _, value in pairs)
        return cls({name: value for name, value in named if len(value) <= MAX_ATTRIBUTE_BYTES})

    def has(self, name: str) -> bool:
        return name in self.values

    def expires_at(self, now: datetime) -> datetime | None:
        """None: a session cookie."""
        age = self.values.get("max-age", "")
        if re.fullmatch(r"-?[0-9]+", age):  # takes precedence over Expires
            seconds = MAX_AGE_SECONDS if len(age) > 12 else min(int(age), MAX_AGE_SECONDS)
            return now + timedelta(seconds=seconds) if seconds > 0 and age[0] != "-" else now
        return parse_cookie_date(self.values.get("expires", ""))

    def domain(self) -> str:
        """A bare dot is kept: it matches no host, so no browser stores the cookie."""
        said = self.values.get("domain", "").lower()
        return said if said == "." else said.removeprefix(".")

    def path(self, request_url: str) -> str:
        path = self.values.get("path", "")
        return _text(path) if path.startswith("/") else urlsplit(request_url).path.rpartition("/")[0] or "/"

    def same_site(self) -> str | None:
        return _SAME_SITE.get(self.values.get("samesite", "").lower())


def read_set_cookie(raw: str, *, request_url: str, page_url: str, now: datetime) -> SeenCookie | NoCookie:
    """`raw` is the header's value as requests returns it: bytes decoded as Latin-1."""
    pair, _, rest = raw.partition(";")
    before, equals, after = pair.partition("=")
    name, value = (before.strip(), after.strip()) if equals else ("", pair.strip())
    attributes = _Attributes.read(rest)
    refused = _refused_pair(raw, name, value) or _refused(attributes, name, value, request_url)
    if refused is not None:
        return refused
    expires_at = attributes.expires_at(now)
    if expires_at is not None and expires_at <= now:
        return NoCookie.DELETED
    host = host_of(request_url)
    host_only = _is_host_only(attributes.domain(), host)
    return SeenCookie(
        name=_text(name),
        domain=host if host_only else attributes.domain(),
        path=attributes.path(request_url),
        host_only=host_only,
        expires_at=expires_at,
        secure=attributes.has("secure"),
        http_only=attributes.has("httponly"),
        same_site=attributes.same_site(),
        page_url=page_url,
        request_url=request_url[:MAX_PAGE_ADDRESS],
    )


def _refused_pair(raw: str, name: str, value: str) -> NoCookie | None:
    if _CONTROL.search(raw):
        return NoCookie.CONTROL
    if not name and not value:
        return NoCookie.EMPTY
    return NoCookie.TOO_LARGE if len(name) + len(value) > MAX_PAIR_BYTES else None


def _refused(attributes: _Attributes, name: str, value: str, request_url: str) -> NoCookie | None:
    host, domain = host_of(request_url), attributes.domain()
    if domain and not _covers(domain, host):
        return NoCookie.FOREIGN_DOMAIN
    if attributes.has("secure") and not _is_trustworthy(request_url):
        return NoCookie.INSECURE
    return None if _keeps_promise(attributes, name, value) else NoCookie.BAD_PREFIX


def _keeps_promise(attributes: _Attributes, name: str, value: str) -> bool:
    """Checks the rules of the name prefixes __Secure-, __Host-, __Http- and __Host-Http-."""
    promise = _PROMISE.match(name or value)
    if promise is None:
        return True
    of_host = not attributes.domain() and attributes.values.get("path") == "/"
    return (
        bool(name)
        and attributes.has("secure")
        and (of_host or "host-" not in promise[0].lower())
        and (attributes.has("httponly") or "http-" not in promise[0].lower())
    )


def _covers(domain: str, host: str) -> bool:
    """Whether this host may set a cookie for that domain."""
    if domain == host:
        return True
    return host.endswith(f".{domain}") and not is_address(host) and not is_public_suffix(domain)


def _is_host_only(domain: str, host: str) -> bool:
    return not domain or (domain == host and (is_address(host) or is_public_suffix(host)))


def _is_trustworthy(url: str) -> bool:
    """https, or localhost, which browsers trust as well."""
    host = host_of(url)
    if urlsplit(url).scheme == "https" or host == "localhost" or host.endswith(".localhost"):
        return True
    return is_address(host) and ip_address(host.strip("[]")).is_loopback


def _text(latin: str) -> str:
    """Text from bytes of unknown encoding."""
    octets = latin.encode("latin-1", errors="replace")
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets.decode("latin-1")
