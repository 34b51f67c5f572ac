"""HTTP requests to an identity provider, for keys and for tokens, and the URLs that may be asked.

Redirects are not followed. URLs that lead into a private network are refused unless the caller allows them (brokers
those in org.apache.kafka.sasl.oauthbearer.allowed.urls); http: is for this machine only. Sizes and times are bounded.
"""

import asyncio
import ipaddress
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Final
from urllib.parse import urlsplit

from ottla.model.errors import InvalidConfigError, InvalidRequestError

_FETCH_SECONDS: Final = 10.0
_PART_BYTES: Final = 64 * 1024


class CannotFetchError(InvalidRequestError):
    """It cannot be fetched now, or must not be fetched from there."""

    def __init__(self, words: str, *, status: int | None = None) -> None:
        super().__init__(words)
        self.status = status
        """The HTTP status, if there was an answer."""


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
    return await asyncio.to_thread(_fetch, url, allowed_urls, bytes_max, dict(headers or {}), form)


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
    url: str, allowed_urls: tuple[str, ...], bytes_max: int, headers: Mapping[str, str], form: bytes | None
) -> bytes:
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = _address_of(host, port, is_listed=url in allowed_urls)
    # Connected here, to the address that was checked: another look at the name could find another address.
    with closing(HTTPConnection(host, port, timeout=_FETCH_SECONDS)) as connection:
        plain = socket.create_connection((address, port), timeout=_FETCH_SECONDS)
        connection.sock = plain
        if parts.scheme == "https":
            connection.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
        path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        sent = {"Host": parts.netloc, "Accept": "application/json", **headers}
        try:
            connection.request("GET" if form is None else "POST", path, form, sent)
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                raise CannotFetchError(f"HTTP status {response.status}", status=response.status)
            return _read_body(response, bytes_max)
        except HTTPException as error:
            raise CannotFetchError(f"{type(error).__name__}: {error}") from error


def _read_body(response: HTTPResponse, bytes_max: int) -> bytes:
    deadline = time.monotonic() + _FETCH_SECONDS
    content = bytearray()
    while len(content) <= bytes_max and (part := response.read1(_PART_BYTES)):
        content += part
        if time.monotonic() > deadline:
            raise CannotFetchError(f"the response was not complete within {_FETCH_SECONDS:g} s")
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
