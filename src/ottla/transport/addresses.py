"""Addresses of brokers as people write them: `host:port`, several with commas, IPv6 in brackets."""

from typing import Final, NamedTuple

from ottla.model.errors import InvalidRequestError

DEFAULT_PORT: Final = 9092
_PORT_MAX: Final = 65535


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BadAddressError(InvalidRequestError):
    """The text is not an address."""


def parse_address(text: str) -> Address:
    """`host`, `host:port` or `[v6]:port`; without a port, Kafka's 9092."""
    text = text.strip()
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if closed else "?"
    else:
        host, _, port = text.partition(":")
    if not port and not text.endswith(":"):
        port = str(DEFAULT_PORT)
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= _PORT_MAX:
        raise BadAddressError(f"{text!r} is not an address; write host:port, as in localhost:{DEFAULT_PORT}")
    return Address(host, int(port))


def parse_listen_address(text: str) -> Address:
    """An address to listen on, as `parse_address`; its port may be 0, which takes a free one."""
    host, colon, port = text.strip().rpartition(":")
    return Address(host.strip("[]"), 0) if colon and host and port == "0" else parse_address(text)


def parse_bootstrap(text: str) -> list[Address]:
    """Addresses with commas between them, at least one, in their order and each once."""
    found = list(dict.fromkeys(parse_address(part) for part in text.split(",") if part.strip()))
    if not found:
        raise BadAddressError(f"{text!r} names no broker; write host:port, as in localhost:{DEFAULT_PORT}")
    return found
