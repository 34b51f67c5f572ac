"""A small HTTP server in the place of Prometheus: answers range queries with a line, or as a test wants."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import msgspec

VALUE = 4711.0


class PrometheusServer:
    """`answer` writes the response; `asked` are the parameters of all requests."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.logins: list[str | None] = []
        self.answer: Callable[[BaseHTTPRequestHandler, dict[str, str]], None] = send_line
        self.at_once = 0
        self.at_once_max = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.address}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                given = {name: values[0] for name, values in parse_qs(parts.query).items()}
                with server._lock:
                    server.paths.append(parts.path)
                    server.asked.append(given)
                    server.logins.append(self.headers.get("Authorization"))
                    server.at_once += 1
                    server.at_once_max = max(server.at_once_max, server.at_once)
                try:
                    server.answer(self, given)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True
                finally:
                    with server._lock:
                        server.at_once -= 1

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def serve(self) -> None:
        """Until `stop`."""
        self._server.serve_forever(poll_interval=0.01)

    def stop(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()


def send(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    """One response."""
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def send_line(handler: BaseHTTPRequestHandler, asked: dict[str, str]) -> None:
    """The same value at all times of the range."""
    times = range(int(asked["start"]), int(asked["end"]) + 1, int(asked["step"]))
    result = [{"metric": {}, "values": [[at, str(VALUE)] for at in times]}]
    send(handler, msgspec.json.encode({"status": "success", "data": {"resultType": "matrix", "result": result}}))


@contextmanager
def running_prometheus() -> Iterator[PrometheusServer]:
    """A server on a free port."""
    server = PrometheusServer()
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
