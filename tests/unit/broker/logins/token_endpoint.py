"""A token endpoint on loopback: signs tokens for clients that show their id and secret (RFC 6749, section 4.4)."""

import base64
import http.server
import json
import threading
import time
import urllib.parse
from typing import Any, Final, Self

from tests.unit.broker.logins.secured import token

CLIENT: Final = "broker"
SECRET: Final = "se:cret/ø"
SCOPE: Final = "replication"


class TokenEndpoint:
    """Use as a context manager. `status` other than 200 is a failure that a test wants."""

    def __init__(self, lifetime_seconds: float = 3600) -> None:
        self.lifetime_seconds = lifetime_seconds
        self.status = 200
        self.location = ""
        """Where it redirects to, with a status that does."""
        self.asked: list[dict[str, str]] = []
        """The forms of all requests."""
        self.refused = 0
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, content = endpoint.answer(body.decode(), self.headers.get("Authorization", ""))
                self.send_response(status)
                if endpoint.location:
                    self.send_header("Location", endpoint.location)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_GET(self) -> None:
                # What a redirect would lead to.
                endpoint.asked.append({"method": "GET", **dict(self.headers)})
                self.send_error(404)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, body: str, authorization: str) -> tuple[int, bytes]:
        """Status and content of a response."""
        form = dict(urllib.parse.parse_qsl(body))
        self.asked.append(form)
        if self.status != 200:
            return self.status, b""
        basic = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        client, secret = (urllib.parse.unquote(each) for each in basic.split(":"))
        if (client, secret, form.get("grant_type")) != (CLIENT, SECRET, "client_credentials"):
            self.refused += 1
            return 401, json.dumps({"error": "invalid_client"}).encode()
        made = token(sub=client, scope=form.get("scope"), exp=time.time() + self.lifetime_seconds)
        return 200, json.dumps({"access_token": made, "expires_in": self.lifetime_seconds}).encode()
