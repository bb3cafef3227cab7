"""JOB_SECRETS: the environment variables that jobs may use as `${env:NAME}`, each with the hosts it may be sent to.

An allow-list, because editing a schedule must not be enough to send every secret of the process elsewhere.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Self

REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST = re.compile(r"[A-Za-z0-9.*:\[\]-]+")


@dataclass(frozen=True, slots=True)
class JobSecrets:
    """Variable -> host patterns; without a pattern, every host."""

    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """`NAME@host,host,NAME`: a word without dots is a variable, so a host without dots needs its own `NAME@`.

        Raises ValueError with the reason.
        """
        found: dict[str, tuple[str, ...]] = {}
        name = ""
        for entry in (part.strip() for part in text.split(",") if part.strip()):
            head, at, host = entry.partition("@")
            if _NAME.fullmatch(head):
                name = head
                if name in found and bool(found[name]) != bool(at):
                    raise ValueError(f"{name!r} appears with and without hosts; keep only one")
                found.setdefault(name, ())
                if not at:
                    continue
            elif at or not found.get(name):
                raise ValueError(f"{entry!r} is neither the name of a variable nor a host after NAME@")
            else:
                host = entry
            if not _HOST.fullmatch(host):
                raise ValueError(f"{entry!r} has no valid host")
            found[name] = (*found[name], _plain(host))
        return cls(found)

    def refusal(self, name: str, host: str) -> str | None:
        """The reason why a request to this host may not contain the variable; None when it may."""
        if name not in self.hosts:
            return f"JOB_SECRETS does not list the environment variable {name}, so jobs cannot use it"
        patterns = self.hosts[name]
        if patterns and not any(fnmatchcase(_plain(host), pattern) for pattern in patterns):
            return f"JOB_SECRETS allows {name} for {', '.join(patterns)} only, not for {host}"
        return None


def _plain(host: str) -> str:
    return host.lower().strip("[]").rstrip(".")
