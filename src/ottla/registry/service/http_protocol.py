"""uvicorn's HTTP protocol with limits, and with requests that offer another protocol.

Three things that uvicorn with httptools does not do:
- Headers are limited in size and in time: the parser keeps them in memory until they are complete.
- A request that offers HTTP/2 (`Upgrade: h2c`), as the first one of Java's HttpClient, is served as HTTP/1.1, as if it
  did not offer anything. The parser would drop its body.
- What is not HTTP gets an error with the body of the registry's errors.
"""

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ottla.registry.service.content_types import V1
from ottla.registry.service.http_messages import error_answer, http_error

HEAD_BYTES_MAX: Final = 64 * 1024
"""Size of the request line, headers and trailers of a request. Chunked bodies may take as much again as their data."""
_HEADER_OVERHEAD_BYTES: Final = 4
"""The colon, a space and the end of the line."""
HEAD_SECONDS = 30.0
"""How long a new connection may take until the headers of its first request are complete."""

Header = tuple[bytes, bytes]


class HttpProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_bytes = 0
        """Bytes of the request that is being read, without its body."""
        self._body_bytes = 0
        self._url_and_header_bytes = 0
        """Of the request that is being read; what was received may have other requests too."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the time limit for the first request."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """Parses what was received. The time limit of an idle connection ends when headers are complete, not here."""
        self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(HTTPStatus.BAD_REQUEST, "the request is not valid HTTP")
        else:
            if self._head_bytes > HEAD_BYTES_MAX + self._body_bytes:
                self._refuse_head()

    # Called by the parser

    def on_url(self, url: bytes) -> None:
        """A part of the URL."""
        self._url_and_header_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        self._url_and_header_bytes += len(name) + len(value) + _HEADER_OVERHEAD_BYTES
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Starts to serve the request, unless it must be parsed again without its offer of another protocol."""
        self._unset_keepalive_if_required()
        if self._url_and_header_bytes > HEAD_BYTES_MAX:
            # Its end may be in the same read, so that data_received would see it too late.
            self._refuse_head()
        if self.transport.is_closing():
            return
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._head_bytes -= len(body)
        self._body_bytes += len(body)
        if not self.transport.is_closing():  # a request that was refused is not served
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._head_bytes = self._body_bytes = self._url_and_header_bytes = 0
        if not self.transport.is_closing() and not self.parser.should_upgrade():
            super().on_message_complete()

    # Refusals

    def _decline_upgrade(self, rest: bytes) -> None:
        """Parses the request again as one that does not offer another protocol. `rest` is what follows its headers."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            self._refuse(HTTPStatus.BAD_REQUEST, "the registry is not a proxy")
            return
        lines = [b"%s %s HTTP/%s\r\n" % (method, self.url, version)]
        lines += [b"%s: %s\r\n" % header for header in _without_upgrade(self.headers)]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(b"".join((*lines, b"\r\n", rest)))

    def _refuse_head(self) -> None:
        message = f"the headers of the request have more than {HEAD_BYTES_MAX} bytes"
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message)

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answers with an error and closes the connection."""
        if self.transport.is_closing():
            return
        body = error_answer(http_error(status, message)).body
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {V1}\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def _without_upgrade(headers: Iterable[Header]) -> Iterable[Header]:
    for name, value in headers:
        if name == b"connection":
            tokens = [each.strip() for each in value.split(b",")]
            kept = b", ".join(each for each in tokens if each.lower() not in (b"upgrade", b"http2-settings"))
            if kept:
                yield name, kept
        elif name not in (b"upgrade", b"http2-settings"):
            yield name, value
