"""A registry that answers as a test says: late, wrong, or not at all."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

NOT_FOUND = 404, b'{"error_code": 40403, "message": "Schema not found"}'


class ScriptedRegistry:
    """Answers every request with `answer`, while `is_open` is set; until then requests wait."""

    def __init__(self, answer: tuple[int, bytes]) -> None:
        self.answer = answer
        self.is_open = threading.Event()
        self.is_open.set()
        self.asked = threading.Event()
        self.paths: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.paths.append(self.path)
                registry.asked.set()
                registry.is_open.wait(60)
                status, body = registry.answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Location", registry.url + "/elsewhere")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_open.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
