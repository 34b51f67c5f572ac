"""The names under which an HTTP service answers. Pure.

A web page can make a browser send requests to a service that only this machine, or this network, can reach. It names
the service by its own name, which it lets resolve to the service's address (DNS rebinding), or sends the request across
origins. The first is seen in the Host header, the second in the Origin header. Other clients send no Origin, and the
name with which they were configured.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")
_SHOWN_MAX: Final = 100


def host_name(header: str) -> str | None:
    """The name or address in a Host header, in lower case; None if it is not a name with or without a port."""
    given = _HOST.fullmatch(header)
    return None if given is None else given[1].strip("[]").lower()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class HostNames:
    """The names of a service without pages of its own."""

    def __init__(self, listen_host: str, names: Iterable[str] = (), *, other_names: Iterable[str] = ()) -> None:
        """`names` were given by an operator: requests for others are refused, and pages under these names may send
        requests. `other_names` are answered to, too. Without `names` a service on loopback answers to names of this
        machine, and any other service to every name."""
        self._pages = frozenset(each.lower() for each in names)
        self._answered = self._pages | LOOPBACK_NAMES | {listen_host.lower(), *(each.lower() for each in other_names)}
        self._is_limited = bool(self._pages) or is_loopback(listen_host)

    def host_refusal(self, header: str) -> str | None:
        """Why a request with this Host header is refused; None if it is not."""
        if not self._is_limited:
            return None
        name = host_name(header)
        if name is None:
            return "the Host header is not a name with or without a port"
        if name in self._answered or _cannot_be_rebound(name):
            return None
        return f"this service does not answer to the name {name[:_SHOWN_MAX]!r}"

    def origin_refusal(self, header: str) -> str | None:
        """Why a request with this Origin header is refused; None if it is not."""
        try:
            name = urlsplit(header).hostname
        except ValueError:
            name = None
        return None if name in self._pages else f"the request was sent by a web page of {header[:_SHOWN_MAX]!r}"


def _cannot_be_rebound(name: str) -> bool:
    """Whether a site cannot let the name resolve to another address: it is an address, or has no domain."""
    return "." not in name.rstrip(".") or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
