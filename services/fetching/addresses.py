"""Address guard: requests may reach public addresses, and those that the settings allow."""

import ipaddress
import re
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Self
from urllib.parse import urlsplit

from services.errors import ConfigurationError

Address = IPv4Address | IPv6Address
PORTS = {"http": 80, "https": 443}

# Written out: `ipaddress.is_global` differs between Python versions.
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
_NOT_PUBLIC_V6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))  # Teredo is in the first one
_NAT64 = IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Guard:
    allow_private: bool
    networks: tuple[IPv4Network | IPv6Network, ...]
    hosts: frozenset[str]
    configured: frozenset[tuple[str, int]] = frozenset()  # hosts and ports of URLs configured by an operator

    @classmethod
    def parse(cls, allow_private: bool, allowed_networks: str) -> Self:
        """`allowed_networks`: CIDRs, addresses and host names, separated by commas."""
        entries = [entry.strip() for entry in allowed_networks.split(",") if entry.strip()]
        networks = {entry: _network(entry) for entry in entries}
        return cls(
            allow_private,
            tuple(network for network in networks.values() if network is not None),
            frozenset(_bare(entry) for entry, network in networks.items() if network is None),
        )

    def allowing(self, url: str) -> Self:
        """Also allows this URL, even on a private address: it is configuration, not input. Redirects from it are input.

        A server at the usual port may redirect to its own https.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or PORTS.get(parts.scheme, 0)
        except ValueError:
            return self  # an invalid URL: the request itself reports it
        ports = {port, PORTS["https"]} if port == PORTS["http"] else {port}
        return replace(self, configured=self.configured | {(_bare(parts.hostname or ""), port) for port in ports})

    def allows(self, host: str, address: Address, port: int | None = None) -> bool:
        if self.allow_private or _bare(host) in self.hosts or (_bare(host), port) in self.configured:
            return True
        if is_public(address):
            return True
        spellings = {address, _embedded(address) or address}
        return any(spelling in network for spelling in spellings for network in self.networks)


def is_public(address: Address) -> bool:
    embedded = _embedded(address)
    if embedded is not None:
        return is_public(embedded)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    return address in _PUBLIC_V6 and not any(address in network for network in _NOT_PUBLIC_V6)


def parse_address(text: str) -> Address:
    return ipaddress.ip_address(text.partition("%")[0])


def _embedded(address: Address) -> IPv4Address | None:
    """The IPv4 address inside an IPv6 address: mapped, 6to4, or NAT64."""
    if isinstance(address, IPv4Address):
        return None
    nat64 = IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
    return address.ipv4_mapped or address.sixtofour or nat64


def _network(entry: str) -> IPv4Network | IPv6Network | None:
    """None for a host name."""
    try:
        return ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        if not re.fullmatch(r"[\w.-]*[^\W\d][\w.-]*", entry):  # 10.0.0.256 is not a host name either
            raise ConfigurationError(
                f"FETCH_ALLOWED_NETWORKS: {entry!r} is not a network, an address or a host name"
            ) from None
        return None


def _bare(host: str) -> str:
    return host.lower().rstrip(".")
