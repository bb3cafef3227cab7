"""Outgoing requests of jobs: only to public addresses, unless a setting allows more.

The check is made on the address that the socket connects to, for every connection: a name that resolves to something
else a moment later (DNS rebinding) and a redirect to the inside are refused in the same place.
"""

import ipaddress
import re
import socket
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Self
from urllib.parse import urljoin

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.poolmanager import PoolManager
from urllib3.util.connection import create_connection

from services.errors import BlockedAddress, ConfigurationError

Address = IPv4Address | IPv6Address
MAX_REDIRECTS = 10

# Written out: what ipaddress calls global differs between Python versions.
_NOT_PUBLIC_V4 = tuple(
    IPv4Network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
        *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        "224.0.0.0/3",  # multicast, reserved, broadcast
        "168.63.129.16/32",  # Azure's metadata server
    )
)
_PUBLIC_V6 = IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
_NAT64 = IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Guard:
    """Which addresses may be called."""

    allow_private: bool
    networks: tuple[IPv4Network | IPv6Network, ...]
    hosts: frozenset[str]

    @classmethod
    def parse(cls, allow_private: bool, allowed_networks: str) -> Self:
        entries = [entry.strip() for entry in allowed_networks.split(",") if entry.strip()]
        networks = {entry: _network(entry) for entry in entries}
        return cls(
            allow_private,
            tuple(network for network in networks.values() if network is not None),
            frozenset(_bare(entry) for entry, network in networks.items() if network is None),
        )

    def allows(self, host: str, address: Address) -> bool:
        if self.allow_private or _bare(host) in self.hosts or is_public(address):
            return True
        spellings = {address, _embedded(address) or address}
        return any(spelling in network for spelling in spellings for network in self.networks)

    def connect(self, connection: HTTPConnection) -> socket.socket:
        """Resolve, check, and connect to exactly what was checked."""
        host = connection._dns_host.strip("[]")
        found = socket.getaddrinfo(host, connection.port, 0, socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        allowed = [address for address in addresses if self.allows(host, _address(address))]
        if not allowed:
            raise BlockedAddress(host, addresses[0])
        for last, address in enumerate(allowed, 1 - len(allowed)):
            try:
                return create_connection(
                    (address, connection.port or 0),
                    connection.timeout,
                    connection.source_address,
                    connection.socket_options,
                )
            except OSError:
                if last == 0:
                    raise
        raise AssertionError("unreachable: the last address returns or raises")


def is_public(address: Address) -> bool:
    embedded = _embedded(address)
    if embedded is not None:
        return is_public(embedded)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    return address in _PUBLIC_V6 and not any(address in network for network in _NOT_PUBLIC_V6)


class UnsafeRedirect(requests.RequestException):
    """Following it would hand secrets to another site."""


@dataclass(frozen=True, slots=True)
class Private:
    """What carries secrets in a request, and must stay with the site it was meant for."""

    headers: Collection[str] = ()
    body: bool = False


class GuardedSession(requests.Session):
    """Like requests' session, but guarded, without proxies or netrc from the environment, and without retries."""

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self.trust_env = False
        self.adapters.clear()
        self.mount("http://", _GuardedAdapter(guard))
        self.mount("https://", _GuardedAdapter(guard))

    def open(
        self,
        request: requests.PreparedRequest,
        timeout_seconds: Callable[[], float],
        private: Private = Private(),
        max_redirects: int = MAX_REDIRECTS,
    ) -> requests.Response:
        """Send, and follow redirects without reading their bodies (requests would read them whole).

        `timeout_seconds` is asked before every hop and may raise.
        """
        for _ in range(max_redirects + 1):
            response = self.send(request, stream=True, timeout=timeout_seconds(), allow_redirects=False)
            target = self.get_redirect_target(response) if max_redirects else None
            if target is None:
                return response
            response.close()
            request = self._redirected(request, response, urljoin(str(request.url), target), private)
        raise requests.TooManyRedirects(f"more than {max_redirects} redirects", request=request)

    def _redirected(
        self, request: requests.PreparedRequest, response: requests.Response, url: str, private: Private
    ) -> requests.PreparedRequest:
        following = request.copy()
        following.prepare_url(url, None)
        self.rebuild_method(following, response)
        if response.status_code not in (307, 308):
            following.body = None
            for name in ("Content-Length", "Content-Type", "Transfer-Encoding"):
                following.headers.pop(name, None)
        following.headers.pop("Cookie", None)
        if self.should_strip_auth(request.url, following.url):  # type: ignore[no-untyped-call]
            if private.body and following.body is not None:
                raise UnsafeRedirect("redirected to another site, but the body carries secrets", request=request)
            for name in ("Authorization", *private.headers):
                following.headers.pop(name, None)
        following.prepare_cookies(self.cookies)
        return following


def guarded_session(allow_private: bool, allowed_networks: str) -> GuardedSession:
    """`allowed_networks`: CIDRs, addresses and host names, comma-separated."""
    return GuardedSession(Guard.parse(allow_private, allowed_networks))


class _GuardedAdapter(HTTPAdapter):
    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        super().__init__(max_retries=0)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:
        self.poolmanager = PoolManager(num_pools=connections, maxsize=maxsize, block=block, **options)
        self.poolmanager.pool_classes_by_scheme = _pool_classes(self._guard)


def _pool_classes(guard: Guard) -> dict[str, type[HTTPConnectionPool]]:
    class Http(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _connect(guard, self)

    class Https(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _connect(guard, self)

    class HttpPool(HTTPConnectionPool):
        ConnectionCls = Http

    class HttpsPool(HTTPSConnectionPool):
        ConnectionCls = Https

    return {"http": HttpPool, "https": HttpsPool}


def _connect(guard: Guard, connection: HTTPConnection) -> socket.socket:
    """As urllib3's own, which cannot be told to connect to a checked address."""
    try:
        connected = guard.connect(connection)
    except socket.gaierror as error:
        raise NameResolutionError(connection.host, connection, error) from error
    except TimeoutError as error:
        raise ConnectTimeoutError(connection, f"Connection to {connection.host} timed out") from error
    except OSError as error:
        raise NewConnectionError(connection, f"Failed to establish a new connection: {error}") from error
    sys.audit("http.client.connect", connection, connection.host, connection.port)
    return connected


def _embedded(address: Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address leads to: mapped, 6to4, or NAT64."""
    if isinstance(address, IPv4Address):
        return None
    nat64 = IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
    return address.ipv4_mapped or address.sixtofour or nat64


def _address(text: str) -> Address:
    return ipaddress.ip_address(text.partition("%")[0])


def _network(entry: str) -> IPv4Network | IPv6Network | None:
    """None: it is a host name."""
    try:
        return ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        if not re.fullmatch(r"[\w.-]*[^\W\d][\w.-]*", entry):  # 10.0.0.256 is no host name either
            raise ConfigurationError(
                f"FETCH_ALLOWED_NETWORKS: {entry!r} is not a network, an address or a host name"
            ) from None
        return None


def _bare(host: str) -> str:
    return host.lower().rstrip(".")
