"""Page URLs: normalisation, which URLs belong to a site, and which look like a crawler trap. Pure.

The site of example.com is that host, its `www.` twin and the hosts below it, on the usual ports and the port that the
scan started on.
"""

import ipaddress
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Self
from urllib.parse import SplitResult, quote, urljoin, urlsplit, urlunsplit

from publicsuffixlist import PublicSuffixList

from services.checks.hostnames import ascii_spelling
from services.checks.page_addresses import MAX_PAGE_ADDRESS

DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_PATH_SEGMENTS, MAX_REPEATED_SEGMENTS = 16, 3
LEAST_ID_CHARACTERS = 16  # length from which a hexadecimal word counts as an id

# Tracking and session parameters: the page is the same without them.
_VISIT = re.compile(
    r"(utm_\w+|gclid|gbraid|wbraid|dclid|fbclid|msclkid|ttclid|twclid|li_fat_id|yclid|igshid|mc_[ce]id|_ga|_gl|_hs\w+"
    r"|mkt_tok|phpsessid|jsessionid)",
    re.IGNORECASE,
)
_SESSION_IN_PATH = re.compile(r";(jsessionid|phpsessid)=[^/;]*", re.IGNORECASE)
_UNQUOTED = "/%:@!$&'()*+,;=~-._[]|"


def normal_url(address: str, base: str | None = None) -> str | None:
    """The normalised URL of a page; None if it cannot be a page."""
    if len(address) > 4 * MAX_PAGE_ADDRESS:
        return None
    try:
        parts = urlsplit(urljoin(base or "", re.sub(r"[\t\r\n]", "", address.strip())))
        netloc = _netloc(parts)
    except (ValueError, UnicodeError):
        return None
    if netloc is None:
        return None
    query = "&".join(pair for pair in parts.query.split("&") if pair and not _VISIT.fullmatch(pair.partition("=")[0]))
    url = urlunsplit(
        (parts.scheme, netloc, _path(parts.path), quote(query, safe=_UNQUOTED + "?", errors="replace"), "")
    )
    return url if len(url) <= MAX_PAGE_ADDRESS else None


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def host_of(url: str) -> str:
    return (urlsplit(url).hostname or "").rstrip(".")


def shape_of(url: str) -> str:
    """The shape that pages of one kind share: `/news/2024/17?page=3` -> `/news/#/#?page`."""
    parts = urlsplit(url)
    path = re.sub(r"\d+", "#", "".join(map(_without_id, re.split(r"([/._])", parts.path))))
    names = sorted({pair.partition("=")[0] for pair in parts.query.split("&") if pair})
    return f"{parts.netloc}{path}{'?' if names else ''}{'&'.join(names)}"


def looks_endless(url: str) -> bool:
    """Crawler trap: paths that grow with every click, because relative links resolve to the same page again."""
    segments = [segment for segment in urlsplit(url).path.split("/") if segment]
    most = max(Counter(segments).values(), default=0)
    return len(segments) > MAX_PATH_SEGMENTS or most > MAX_REPEATED_SEGMENTS


@dataclass(frozen=True, slots=True)
class Site:
    host: str  # without www.
    ports: frozenset[int]

    @classmethod
    def of(cls, start_url: str) -> Self:
        parts = urlsplit(start_url)
        host = host_of(start_url)
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        return cls(host.removeprefix("www."), frozenset({80, 443, port}))

    def has(self, url: str) -> bool:
        """Whether a normalised URL belongs to the site."""
        parts, host = urlsplit(url), host_of(url)
        below = host.endswith(f".{self.host}") and not is_address(self.host)
        return (host == self.host or below) and (parts.port or DEFAULT_PORTS.get(parts.scheme)) in self.ports

    def owns(self, domain: str) -> bool:
        """Whether the domain has the same owner, by the public suffix list."""
        return registrable_domain(domain) == registrable_domain(self.host)


@lru_cache(4096)
def registrable_domain(host: str) -> str:
    """The registered part of a host name: `shop.example.co.uk` -> `example.co.uk`."""
    return host if is_address(host) else _suffixes().privatesuffix(host) or host


def is_public_suffix(host: str) -> bool:
    """True for `com`, `co.uk` and `github.io`: names below them have different owners."""
    return not is_address(host) and _suffixes().privatesuffix(host) is None


def is_top_level_domain(label: str) -> bool:
    """True for `com` and `xn--p1ai`, False for `local`, `example` and `png`: the list contains the whole root zone."""
    return _top_level_domains().publicsuffix(f"any.{label}") is not None


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


@cache
def _suffixes() -> PublicSuffixList:
    """The list bundled with the package; nothing is fetched."""
    return PublicSuffixList()


@cache
def _top_level_domains() -> PublicSuffixList:
    """The registries' part of the list, without company hosts; a name under none of them has no suffix."""
    return PublicSuffixList(only_icann=True, accept_unknown=False)


def _without_id(word: str) -> str:
    """`report-3f2a90c1d4e5f678` -> `report-#`"""
    rest = word.rstrip("0123456789abcdef-")
    head, tail = rest, word[len(rest) :]
    if rest:  # a hexadecimal id starts after a hyphen
        letters, _, tail = tail.partition("-")
        head = f"{rest}{letters}-"
    return f"{head}#" if len(tail) >= LEAST_ID_CHARACTERS else word


def _netloc(parts: SplitResult) -> str | None:
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme not in DEFAULT_PORTS or not host or "@" in parts.netloc:
        return None
    if not host.isascii():
        host = ascii_spelling(host)
    if not re.fullmatch(r"[a-z0-9._:%-]+", host):
        return None
    shown = f"[{host}]" if ":" in host else host
    return shown if parts.port in (None, DEFAULT_PORTS[parts.scheme]) else f"{shown}:{parts.port}"


def _path(path: str) -> str:
    bare = _SESSION_IN_PATH.sub("", path) or "/"
    if "/." in bare and not bare.startswith("//"):
        bare = urlsplit(urljoin("http://host/", bare)).path or "/"
    return quote(bare, safe=_UNQUOTED, errors="replace")
