"""Detours: connect to another address than the host's own, for demos, tests and staging.

`*.example=127.0.0.1:8080` sends every request for a host below `example` to that address, whatever its port. The
request keeps its Host header and its TLS name. The address is guarded like any other.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Self

from services.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Detours:
    """The first matching pattern decides."""

    targets: tuple[tuple[str, str, int], ...] = ()  # pattern, host, port

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(tuple(_target(entry.strip()) for entry in text.split(",") if entry.strip()))

    def of(self, host: str, port: int) -> tuple[str, int]:
        for pattern, target_host, target_port in self.targets:
            if fnmatchcase(host.lower().rstrip("."), pattern):
                return target_host, target_port
        return host, port


def _target(entry: str) -> tuple[str, str, int]:
    pattern, _, target = entry.partition("=")
    host, _, port = target.rpartition(":")
    if not pattern or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"FETCH_CONNECT_TO: {entry!r} is not of the form `*.example=127.0.0.1:8080`")
    return pattern.strip().lower(), host.strip().strip("[]"), int(port)
