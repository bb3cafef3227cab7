"""Which addresses jobs may call. Nothing here leaves the machine: each address is refused, or no socket is opened."""

import socket
from ipaddress import ip_address
from typing import Any

import pytest
import requests

from services.errors import BlockedAddress, ConfigurationError
from services.fetching import Guard, guarded_session, is_public

BLOCKED_URLS = [
    "http://127.0.0.1/",
    "http://127.0.0.2:8080/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://localhost/",
    "http://LOCALHOST/",
    "http://user:password@127.0.0.1/",
    "http://example.com@127.0.0.1/",
    "http://0.0.0.0/",
    "http://0/",
    "http://10.1.2.3/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://100.64.0.1/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://192.0.0.192/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[::1]/",
    "http://[::]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::127.0.0.1]/",
    "http://[fe80::1]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/",
    "http://[ff02::1]/",
    "http://[2002:7f00:1::]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::1]/",
    "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "http://[2001:db8::1]/",
    "https://127.0.0.1/",
    "https://[::1]/",
]


@pytest.mark.parametrize("url", BLOCKED_URLS)
def test_an_address_inside_is_refused_in_every_spelling(url: str) -> None:
    with guarded_session(False, "") as session, pytest.raises(BlockedAddress, match="FETCH_ALLOWED_NETWORKS"):
        session.get(url, timeout=5)


@pytest.mark.parametrize("url", ["http://①②⑦.⓪.⓪.①/", "http://\uff11\uff12\uff17.0.0.1/"])
def test_digits_that_only_look_like_an_address_are_no_url(url: str) -> None:
    with guarded_session(False, "") as session, pytest.raises(requests.exceptions.InvalidURL):
        session.get(url, timeout=5)


def test_the_refusal_names_the_address_behind_the_name() -> None:
    with guarded_session(False, "") as session, pytest.raises(BlockedAddress) as caught:
        session.get("http://2130706433/", timeout=5)
    assert str(caught.value).startswith("2130706433 (127.0.0.1) is not a public address; ")


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "93.184.216.34",
        "172.32.0.1",
        "100.128.0.1",
        "2606:4700:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
    ],
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    ("allowed", "host", "address", "expected"),
    [
        ("10.0.0.0/8", "db", "10.9.9.9", True),
        ("10.0.0.0/8", "db", "::ffff:10.9.9.9", True),
        ("10.0.0.0/8", "db", "192.168.0.1", False),
        ("10.0.0.7", "db", "10.0.0.7", True),
        ("10.0.0.7", "db", "10.0.0.8", False),
        ("fd00::/8, 127.0.0.1", "db", "fd12::1", True),
        ("[::1]", "db", "::1", True),
        ("Intranet.local., 10.0.0.1", "intranet.LOCAL", "192.168.0.1", True),
        ("intranet.local", "other.local", "192.168.0.1", False),
        ("", "db", "10.0.0.1", False),
    ],
)
def test_networks_addresses_and_names_can_be_allowed(allowed: str, host: str, address: str, expected: bool) -> None:
    assert Guard.parse(False, allowed).allows(host, ip_address(address)) is expected


def test_everything_can_be_allowed() -> None:
    assert Guard.parse(True, "").allows("localhost", ip_address("127.0.0.1"))


@pytest.mark.parametrize(
    ("url", "host", "port", "expected"),
    [
        ("http://api.internal:8000/x", "API.internal.", 8000, True),
        ("http://api.internal:8000/x", "api.internal", 443, False),
        ("http://api.internal/x", "api.internal", 443, True),
        ("https://api.internal/x", "api.internal", 80, False),
        ("http://[fd00::1]:8000/x", "fd00::1", 8000, True),
        ("http://api.internal:99999/", "api.internal", 99999, False),
    ],
)
def test_a_configured_url_may_be_private_at_its_own_host_and_port(
    url: str, host: str, port: int, expected: bool
) -> None:
    assert Guard.parse(False, "").allowing(url).allows(host, ip_address("10.0.0.1"), port) is expected


@pytest.mark.parametrize("entry", ["10.0.0.0/99", "10.0.0.256", "http://intranet", "a b", "host:80", "fd00::/200"])
def test_an_entry_that_means_nothing_is_an_error_of_the_configuration(entry: str) -> None:
    with pytest.raises(ConfigurationError, match="FETCH_ALLOWED_NETWORKS"):
        Guard.parse(False, entry)


def test_the_checked_address_is_the_connected_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that answers "public" once and "inside" from then on gains nothing."""
    answers = iter(["93.184.216.34", "127.0.0.1", "127.0.0.1"])
    connected: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: str, *rest: Any) -> Any:
        return real(next(answers) if host == "rebind.example" else host, *rest)

    def connect(self: socket.socket, address: tuple[Any, ...]) -> None:
        connected.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(socket.socket, "connect", connect)
    with guarded_session(False, "") as session:
        with pytest.raises(requests.ConnectionError):
            session.get("http://rebind.example/", timeout=5)
        with pytest.raises(BlockedAddress):
            session.get("http://rebind.example/", timeout=5)
    assert connected == ["93.184.216.34"]


def test_of_several_addresses_only_the_public_ones_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[str] = []

    def resolve(_host: str, port: int, *_: Any) -> Any:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("10.0.0.1", "93.184.216.34", "93.184.216.35")
        ]

    def create(address: tuple[str, int], *_: Any) -> Any:
        connected.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr("services.fetching.connecting.create_connection", create)
    with guarded_session(False, "") as session, pytest.raises(requests.ConnectionError):
        session.get("http://mixed.example/", timeout=5)
    assert connected == ["93.184.216.34", "93.184.216.35"]


@pytest.mark.parametrize("url", ["ftp://example.com/", "file:///etc/passwd", "gopher://127.0.0.1/"])
def test_only_http_and_https_are_spoken(url: str) -> None:
    with guarded_session(True, "") as session, pytest.raises(requests.exceptions.InvalidSchema):
        session.get(url, timeout=5)


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://93.184.216.34:3128")
    with guarded_session(False, "") as session, pytest.raises(BlockedAddress):
        session.get("http://127.0.0.1/", timeout=5)
