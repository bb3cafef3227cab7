"""Web host names: validation, and the canonical spelling (bare, lower case, ASCII)."""

import ipaddress
import re
from contextlib import suppress

import idna

MAX_LENGTH = 253
# Most names are plain: lower-case ASCII labels, not yet encoded, ending in letters. They need no further checks.
PLAIN = re.compile(r"(?=.{4,253}\Z)(?:(?!xn--)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}")
# IDNA allows hyphens there only in xn--; real hosts have them (qa--site.netlify.app), and browsers open them.
HYPHENS_IN_THIRD_PLACE = re.compile(r"(?!xn--)[a-z0-9]{2}--(?:[a-z0-9-]{0,58}[a-z0-9])?")
# Clients read a name that ends in a number as an IP address: 127.1, 0x7f.1, and digits of other scripts.
NUMBER = re.compile(r"\d+|0x[0-9a-f]*")


def bare_host(name: str) -> str:
    """`Bücher.example` -> `xn--bcher-kva.example`; ValueError says why a name is not a public host name."""
    if PLAIN.fullmatch(name):
        return name
    host = name.strip().removesuffix(".")
    _refuse_what_is_more_than_a_host(host)
    if _is_ip_address(host):
        raise ValueError(f"{host} is an IP address; a domain name is required")
    try:
        ascii_host = ascii_spelling(host)
    except idna.IDNAError as error:
        raise ValueError(f"{host!r} is not a valid domain name: {str(error).rstrip('.').lower()}") from None
    if ascii_host.endswith("."):  # a second dot, or a dot of another script; idna takes it for the root
        raise ValueError(f"{host!r} is not a valid domain name: empty label")
    if len(ascii_host) > MAX_LENGTH:
        raise ValueError(f"has {len(ascii_host)} characters; a domain name has at most {MAX_LENGTH}")
    if "." not in ascii_host:
        raise ValueError(f"{host!r} has no dot; a public domain name such as example.com is required")
    if NUMBER.fullmatch(ascii_host.rpartition(".")[2]):
        raise ValueError(f"{host} would be read as an IP address; a domain name is required")
    return ascii_host


def ascii_spelling(host: str) -> str:
    """The labels in their DNS form; raises IDNAError."""
    labels = idna.uts46_remap(host.lower(), std3_rules=False, transitional=False).split(".")
    if not any(map(HYPHENS_IN_THIRD_PLACE.fullmatch, labels)):
        return idna.encode(host.lower(), uts46=True).decode()
    return ".".join(
        label if HYPHENS_IN_THIRD_PLACE.fullmatch(label) else idna.encode(label).decode() for label in labels
    )


def spellings(name: str) -> list[str]:
    """The forms in which a name that a user typed may be stored: unchanged, in lower case, or as the bare host."""
    found = [name, name.lower()]
    with suppress(ValueError):  # not a host: the readable name of another kind of job
        found.append(bare_host(name))
    return list(dict.fromkeys(found))


def _refuse_what_is_more_than_a_host(host: str) -> None:
    if not host:
        raise ValueError("must not be empty")
    if "://" in host:
        rest = host.split("://", 1)[1].split("/")[0].split("?")[0].rpartition("@")[2]
        bare = rest.partition("]")[0] + "]" if rest.startswith("[") else rest.partition(":")[0]
        if _is_ip_address(bare):
            raise ValueError(f"{bare} is an IP address; a domain name is required")
        raise ValueError(f"must be the bare domain without a scheme: {bare!r}")
    if any(character.isspace() for character in host):
        raise ValueError(f"{host!r} contains whitespace")
    for sign, what in (("/", "a path"), ("?", "a query"), ("@", "a user name"), ("#", "a fragment")):
        if sign in host:
            raise ValueError(f"must be the bare domain without {what}, got {host!r}")
    if ":" in host and not _is_ip_address(host):
        raise ValueError(f"must be the bare domain without a port: {host.partition(':')[0]!r}")


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
