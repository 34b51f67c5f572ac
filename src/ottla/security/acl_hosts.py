"""The hosts of ACLs: `*`, an address, or a CIDR range with its network and broadcast addresses. Pure.

Addresses are compared by value, not as text: Java writes IPv6 addresses uncompressed, Python does not, and an ACL of
either spelling must hold. An IPv4 address that a socket shows as an IPv6 one counts as the IPv4 address.
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from ottla.security.acls import WILDCARD

Host = str | IPv4Address | IPv6Address
"""An address; text if it is not one, which only equal text matches."""
_CLIENTS_KEPT_MAX: Final = 10_000


@lru_cache(maxsize=_CLIENTS_KEPT_MAX)
def host_of(address: str) -> Host:
    """The host of a client's `address:port`."""
    return parse_host(address.rpartition(":")[0].strip("[]"))


def parse_host(text: str) -> Host:
    """An address by its text."""
    try:
        found = ip_address(text)
    except ValueError:
        return text
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


class HostPattern:
    """The clients that an ACL's host stands for."""

    __slots__ = ("_exact", "_mask", "_network", "_version", "is_any")

    def __init__(self, text: str) -> None:
        self.is_any = text == WILDCARD
        """Whether it stands for all."""
        self._exact = parse_host(text)
        self._version = 0
        """Of the addresses in a range; 0 if it is not one."""
        self._network = self._mask = 0
        if "/" in text:
            try:
                found = ip_network(text, strict=False)
            except ValueError:
                # Refused when an ACL is created; in a store that was edited by hand it matches nothing.
                return
            # A comparison of numbers takes a tenth of the time of `address in network`.
            self._version = found.version
            self._network, self._mask = int(found.network_address), int(found.netmask)

    def matches(self, host: Host) -> bool:
        """Whether this client is one of them."""
        if self._version and not isinstance(host, str):
            return host.version == self._version and int(host) & self._mask == self._network
        return self.is_any or self._exact == host
