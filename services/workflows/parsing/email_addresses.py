"""E-mail addresses: find obfuscated ones, reject look-alikes, classify the rest. Pure.

The deciding words are in contact_rules.yaml.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import yaml

from database.workflow_statuses import EmailType
from services.checks.hostnames import bare_host
from services.fetching.sites.urls import is_top_level_domain, registrable_domain

MAX_LENGTH = 254
RULES = Path(__file__).with_name("contact_rules.yaml")

_ADDRESS = re.compile(
    r"(?<![\w.+%@-])(?<!\w')([a-z0-9][a-z0-9._+'%-]{0,63})@"
    r"((?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_][\w-]{1,23})(?![\w@])",
    re.IGNORECASE,
)
_USER_OF_URL = re.compile(r"(?<=://)[^\s/@]{1,300}@")
_PHONE_BEFORE = re.compile(r"^(?=\d*[.-])[\d.-]{7,}(?=[a-z])", re.IGNORECASE)
_WORD_BEHIND = re.compile(r"(?<=[a-z])[A-Z]\w*$")
_LOCAL_PART = re.compile(r"[a-z0-9][a-z0-9._+'%-]{0,63}")
_HINT = re.compile(r"[@\uff20&]|%40|\b(?:at|ät|arroba)\b", re.IGNORECASE)
_ENCODED_AT = re.compile(r"(?<=\w)%40(?=\w)")
# A few blanks, not any number: otherwise the search would restart at each of 20,000 blanks.
_AT = re.compile(r"\s{0,4}[\[({<]\s{0,4}(?:at|@|ät|arroba)\s{0,4}[\])}>]\s{0,4}|\s{0,4}\uff20\s{0,4}", re.IGNORECASE)
_DOT = re.compile(r"\s{0,4}[\[({<]\s{0,4}(?:dot|\.|punkt|punto|point)\s{0,4}[\])}>]\s{0,4}", re.IGNORECASE)
_SPELLED = re.compile(
    r"([\w.+-]{1,64})\s{1,4}at\s{1,4}([\w-]{1,63}(?:\s{1,4}dot\s{1,4}[\w-]{2,63}){1,4})(?!\w)", re.IGNORECASE
)
_SPELLED_DOT = re.compile(r"\s{1,4}dot\s{1,4}", re.IGNORECASE)
_SPACED = re.compile(r"([\w.+-]{1,64})\s{1,3}@\s{1,3}([\w-]{1,63}(?:\.[\w-]{1,63}){1,8})(?![\w@])")
_LAST_WORD = re.compile(r"([^\W_][\w-]*)\s*\Z")
_BEFORE_CHARACTERS = 40  # characters that may contain the word before an address

_NAME = re.compile(r"[^\W\d_][\w.'\u2019-]*(?: [^\W\d_][\w.'\u2019-]*)*")
_NO_REPLY = re.compile(
    r"(?:^|[._+-])(?:no|do[._-]?not|dont|never)[._-]?(?:reply|respond|answer)|^mailer-daemon|^bounces?\b"
)
_MACHINE_MADE = re.compile(r"[0-9a-f]{20,}|\d{16,}")


@dataclass(frozen=True, slots=True)
class _Rules:
    file_endings: frozenset[str]
    placeholder_domains: frozenset[str]
    placeholder_names: frozenset[str]
    service_names: frozenset[str]
    not_names: frozenset[str]
    free_domains: frozenset[str]
    prose_words: frozenset[str]
    introductions: frozenset[str]


@cache
def _rules() -> _Rules:
    lists = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return _Rules(**{each.name: frozenset(lists[each.name]) for each in fields(_Rules)})


def addresses_in(text: str, site_domain: str = "") -> Iterator[str]:
    """Normalised addresses; the same one may occur twice."""
    return (address for each in candidates_in(text) if (address := real_address(each, site_domain)))


def candidates_in(text: str) -> Iterator[str]:
    """Text with the form of an address, as written; `real_address` decides."""
    if _HINT.search(text) is None:  # most lines contain none
        return
    for found in _ADDRESS.finditer(plain(text)):
        # `716-555-0100info@bakery.comCall`: removes text that adjoins an address without a blank.
        yield _WORD_BEHIND.sub("", _PHONE_BEFORE.sub("", found[0]))


def plain(text: str) -> str:
    """Decodes `name [at] example [dot] com`, `name&#64;example.com` and the like."""
    text = _ENCODED_AT.sub("@", _USER_OF_URL.sub("", html.unescape(text)))
    text = _DOT.sub(".", _AT.sub("@", text))
    return _SPACED.sub(_join_words, _SPELLED.sub(_join_words, text))


def _join_words(found: re.Match[str]) -> str:
    """`anna at bakery dot example`, `anna @ bakery.example`; ordinary prose stays unchanged."""
    host = _SPELLED_DOT.sub(".", found[2])
    before = found.string[max(0, found.start() - _BEFORE_CHARACTERS) : found.start()]
    return found[0] if _is_prose(before, found[1].lower(), host.lower()) else f"{found[1]}@{host}"


def _is_prose(before: str, name: str, host: str) -> bool:
    """`I worked at a dot com`: a sentence instead of a name and a host."""
    rules = _rules()
    if name in rules.prose_words or host.partition(".")[0] in rules.prose_words or not re.search(r"[^\W\d_]", name):
        return True
    if re.search(r"[\d._+-]", name):
        return False
    word_before = _LAST_WORD.search(before)
    return word_before is not None and word_before[1].lower() not in rules.introductions


def candidates_of_link(href: str) -> Iterator[str]:
    """`mailto:a@x.example,b@x.example?subject=Hi`."""
    recipients = unquote(href.partition(":")[2].partition("?")[0])
    return (candidate for each in re.split(r"[,;]", recipients) for candidate in candidates_in(each))


def uncovered(code: str) -> str | None:
    """Decodes an address protected by Cloudflare: two hex digits of a key, then each letter XOR the key."""
    try:
        octets = bytes.fromhex(code)
        return bytes(octet ^ octets[0] for octet in octets[1:]).decode()
    except (ValueError, IndexError):
        return None


def real_address(text: str, site_domain: str = "") -> str | None:
    """The normalised address, or None for a look-alike. `site_domain` is known to exist, and so is its top-level
    domain, whatever the list says.
    """
    address = spelled_address(text)
    if address is None or _is_nobody(*address.split("@")):
        return None
    top_level = address.rpartition(".")[2]
    return address if top_level == site_domain.rpartition(".")[2] or is_top_level_domain(top_level) else None


def spelled_address(text: str) -> str | None:
    """The normalised address, whether or not it is a person's; None if it is not an address."""
    found = _ADDRESS.fullmatch(text.strip().strip(".,;:"))
    if found is None or len(text) > MAX_LENGTH:
        return None
    name, host = unquote(found[1], errors="replace").lower().strip("'."), found[2].lower()
    try:
        domain = bare_host(host)
    except ValueError:
        return None
    return f"{name}@{domain}" if _LOCAL_PART.fullmatch(name) else None


def _is_nobody(name: str, domain: str) -> bool:
    rules = _rules()
    return (
        domain.rpartition(".")[2] in rules.file_endings
        or registrable_domain(domain) in rules.placeholder_domains
        or name in rules.placeholder_names
        or _NO_REPLY.search(name) is not None
        or _MACHINE_MADE.search(name) is not None
    )


def is_name(text: str) -> bool:
    """True for `Anna van Dyke`, False for `Write to us` and `Contact Us`: the text of a link to an address."""
    words = text.split()
    if not 2 <= len(words) <= 5 or not _NAME.fullmatch(text) or _rules().not_names & set(text.lower().split()):
        return False
    return words[0][0].isupper() and words[-1][0].isupper()


def type_of(address: str, site_domain: str) -> EmailType:
    name, _, domain = address.partition("@")
    if domain in _rules().free_domains:
        return EmailType.FREE
    if re.sub(r"[\d._-]+$", "", name) in _rules().service_names:
        return EmailType.SERVICE
    if registrable_domain(domain) == registrable_domain(site_domain):
        return EmailType.CORPORATE
    return EmailType.UNKNOWN
