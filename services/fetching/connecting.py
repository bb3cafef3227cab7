"""Connections of a guarded session.

Every connection checks the address that the socket really connects to. This refuses both DNS rebinding (a name that
resolves differently a moment later) and redirects to private addresses.
"""

import socket
import ssl
import sys
from functools import cache
from typing import Any

from requests.adapters import HTTPAdapter
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.poolmanager import PoolManager
from urllib3.util.connection import create_connection
from urllib3.util.ssl_ import create_urllib3_context

from services.errors import BlockedAddress
from services.fetching.addresses import Guard, parse_address
from services.fetching.answers import Answer
from services.fetching.deadline import Deadline
from services.fetching.detours import Detours
from services.fetching.resolving import resolving


class GuardedAdapter(HTTPAdapter):
    def __init__(self, guard: Guard, detours: Detours) -> None:
        self._guard, self._detours = guard, detours
        super().__init__(max_retries=0)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:
        self.poolmanager = PoolManager(num_pools=connections, maxsize=maxsize, block=block, **options)
        self.poolmanager.pool_classes_by_scheme = _pool_classes(self._guard, self._detours)

    def build_response(self, req: Any, resp: Any) -> Any:
        """Skips the cookies: the session reads them. requests would read them again, for `response.cookies`."""
        answer, resp._original_response = resp._original_response, None
        try:
            return super().build_response(req, resp)
        finally:
            resp._original_response = answer

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Loads the certificate authorities once per process: loading takes 25 ms, longer than many a page."""
        super().cert_verify(conn, url, verify, cert)  # type: ignore[no-untyped-call]
        if verify is True and isinstance(conn, HTTPSConnectionPool):
            conn.ca_certs, conn.conn_kw["ssl_context"] = None, _usual_authorities()


@cache
def _usual_authorities() -> ssl.SSLContext:
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
    return context


def _pool_classes(guard: Guard, detours: Detours) -> dict[str, type[HTTPConnectionPool]]:
    class Http(HTTPConnection):
        response_class = Answer

        def _new_conn(self) -> socket.socket:
            return _connected(guard, detours, self)

    class Https(HTTPSConnection):
        response_class = Answer

        def _new_conn(self) -> socket.socket:
            return _connected(guard, detours, self)

    class HttpPool(HTTPConnectionPool):
        ConnectionCls = Http

    class HttpsPool(HTTPSConnectionPool):
        ConnectionCls = Https

    return {"http": HttpPool, "https": HttpsPool}


def _connected(guard: Guard, detours: Detours, connection: HTTPConnection) -> socket.socket:
    """Like urllib3's own method, but connects to a checked address."""
    try:
        connected = _connect(guard, detours, connection)
    except socket.gaierror as error:
        raise NameResolutionError(connection.host, connection, error) from error
    except TimeoutError as error:
        raise ConnectTimeoutError(connection, f"Connection to {connection.host} timed out") from error
    except OSError as error:
        raise NewConnectionError(connection, f"Failed to establish a new connection: {error}") from error
    sys.audit("http.client.connect", connection, connection.host, connection.port)
    return connected


def _connect(guard: Guard, detours: Detours, connection: HTTPConnection) -> socket.socket:
    host = connection._dns_host.strip("[]")
    options = connection.source_address, connection.socket_options
    return connect(guard, detours, host, connection.port or 0, connection.timeout, *options)


def connect(
    guard: Guard, detours: Detours, host: str, port: int, timeout_seconds: float | None, *options: Any
) -> socket.socket:
    """Resolve, check, and connect to exactly the checked address. All addresses share the time."""
    deadline = Deadline(timeout_seconds)
    target, target_port = detours.of(host, port)
    addresses = resolving(target, target_port).result(deadline.left())
    allowed = [address for address in addresses if guard.allows(host, parse_address(address), port)]
    if not allowed:
        raise BlockedAddress(host, addresses[0])
    for others, address in zip(range(len(allowed) - 1, -1, -1), allowed, strict=True):
        try:
            seconds = deadline.left() / (others + 1)
            connected = create_connection((address, target_port), seconds, *options)
        except OSError:
            if not others:
                raise
        else:
            connected.settimeout(deadline.left())  # for the TLS handshake
            return connected
    raise AssertionError("unreachable: the last address returns or raises")
