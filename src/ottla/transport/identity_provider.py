"""HTTP requests to an identity provider, for keys and for tokens, and the URLs that may be asked.

Redirects are not followed. URLs that lead into a private network are refused unless the caller allows them (brokers
those in org.apache.kafka.sasl.oauthbearer.allowed.urls); http: is for this machine only. Sizes and times are bounded.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Final
from urllib.parse import urlsplit

from ottla.model.errors import InvalidConfigError, InvalidRequestError

_FETCH_SECONDS: Final = 10.0
_PART_BYTES: Final = 64 * 1024
_REFUSAL_BYTES_MAX: Final = 4096


class CannotFetchError(InvalidRequestError):
    """It cannot be fetched now, or must not be fetched from there."""

    def __init__(self, words: str, *, status: int | None = None, content: bytes = b"") -> None:
        super().__init__(words)
        self.status = status
        """The HTTP status, if there was an answer."""
        self.content = content
        """The beginning of the answer, if there was one."""


class _Sockets:
    """The sockets of one fetch. Their own timeouts begin again with each byte, so a thread that reads from them is
    stopped from outside."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self._is_over = False

    def add(self, opened: socket.socket) -> None:
        """One that the thread has opened. Raises `CannotFetchError` if it is too late."""
        self._sockets.append(opened)
        if self._is_over:
            raise CannotFetchError("it took too long")

    def shut_down(self) -> None:
        """Wakes the thread, which then ends."""
        self._is_over = True
        for each in self._sockets:
            with suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)


async def fetch(
    url: str,
    allowed_urls: tuple[str, ...],
    *,
    bytes_max: int,
    headers: Mapping[str, str] | None = None,
    form: bytes | None = None,
) -> bytes:
    """What is at a http: or https: URL; with a form, the response to posting it. At most a byte more than `bytes_max`.

    Raises `CannotFetchError` or OSError.
    """
    sockets = _Sockets()
    try:
        async with asyncio.timeout(_FETCH_SECONDS):
            return await asyncio.to_thread(_fetch, url, allowed_urls, bytes_max, dict(headers or {}), form, sockets)
    except TimeoutError:
        raise CannotFetchError(f"there was no complete response within {_FETCH_SECONDS:g} s") from None
    finally:
        sockets.shut_down()


def check_url(config: str, url: str, allowed_urls: tuple[str, ...]) -> None:
    """Raises `InvalidConfigError` if the URL of a config must not be asked, as far as the URL itself says it."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path.startswith("/") and parts.netloc in ("", "localhost"):
        return
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.username is not None:
        raise InvalidConfigError(f"{config}: {parts.scheme or 'it'} is not supported; use an https: or file: URL")
    if parts.scheme == "http" and not _is_loopback(parts.hostname) and url not in allowed_urls:
        raise InvalidConfigError(
            f"{config}: http: is allowed only for this machine, because data sent without TLS can be read and changed"
            " in transit; use https:"
        )


def _fetch(
    url: str,
    allowed_urls: tuple[str, ...],
    bytes_max: int,
    headers: Mapping[str, str],
    form: bytes | None,
    sockets: "_Sockets",
) -> bytes:
    """Runs in a thread, until its sockets are shut down."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        address = _address_of(host, port, is_listed=url in allowed_urls)
        # Connected here, to the address that was checked: another look at the name could find another address.
        with closing(HTTPConnection(host, port, timeout=_FETCH_SECONDS)) as connection:
            plain = socket.create_connection((address, port), timeout=_FETCH_SECONDS)
            connection.sock = plain
            sockets.add(plain)
            if parts.scheme == "https":
                context = ssl.create_default_context()
                wrapped = context.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
                connection.sock = wrapped
                sockets.add(wrapped)
                wrapped.do_handshake()
            path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
            sent = {"Host": parts.netloc, "Accept": "application/json", **headers}
            connection.request("GET" if form is None else "POST", path, form, sent)
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                content = _read_body(response, _REFUSAL_BYTES_MAX)
                raise CannotFetchError(f"HTTP status {response.status}", status=response.status, content=content)
            return _read_body(response, bytes_max)
    except HTTPException as error:
        raise CannotFetchError(f"{type(error).__name__}: {error}") from error
    except ValueError as error:
        # An odd port, a name that the DNS cannot have, characters that a request cannot have.
        raise CannotFetchError(f"the URL cannot be used: {error}") from None


def _read_body(response: HTTPResponse, bytes_max: int) -> bytes:
    content = bytearray()
    while len(content) <= bytes_max and (part := response.read1(_PART_BYTES)):
        content += part
    return bytes(content[: bytes_max + 1])


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _address_of(host: str, port: int, *, is_listed: bool) -> str:
    """The address of a host. Raises `CannotFetchError` if one is neither public nor this machine's, unless it is listed
    as allowed."""
    found = [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for text in found if not is_listed else ():
        ip = ipaddress.ip_address(text.partition("%")[0])
        mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
        known = mapped or ip
        if known.is_loopback:
            if _is_loopback(host):
                continue
        elif known.is_global and not known.is_multicast:
            continue
        raise CannotFetchError(
            f"{host} has the address {ip}, which is in a private network; to allow it, add the URL to"
            " org.apache.kafka.sasl.oauthbearer.allowed.urls"
        )
    return found[0]
