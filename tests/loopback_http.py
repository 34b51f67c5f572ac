"""An HTTP server on loopback, for tests that play a service of their own."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, received whole."""

    method: str
    path: str
    """Without the query."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: str

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form in the body."""
        return dict(parse_qsl(self.body))


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What to answer."""

    status: int = 200
    text: str = ""
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


class LoopbackServer:
    """Use as a context manager. Answers each request with what `answer` returns, each in a thread of its own."""

    def __init__(self, answer: Callable[[Request], Response]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer("GET", "")

            def do_POST(self) -> None:
                self._answer("POST", self.rfile.read(int(self.headers["Content-Length"])).decode())

            def _answer(self, method: str, body: str) -> None:
                target = urlsplit(self.path)
                response = answer(
                    Request(
                        method=method,
                        path=target.path,
                        query=dict(parse_qsl(target.query)),
                        headers=dict(self.headers),
                        body=body,
                    )
                )
                content = response.text.encode()
                self.send_response(response.status)
                self.send_header("Content-Type", response.media_type)
                for name, value in response.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.server_port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
