"""A token endpoint on loopback: signs tokens for clients that show their id and secret (RFC 6749, section 4.4)."""

import base64
import json
import time
import urllib.parse
from typing import Final

from tests.loopback_http import LoopbackServer, Request, Response
from tests.unit.broker.logins.secured import token

CLIENT: Final = "broker"
SECRET: Final = "se:cret/ø"
SCOPE: Final = "replication"


class TokenEndpoint(LoopbackServer):
    """Use as a context manager. `status` other than 200 is a failure that a test wants."""

    def __init__(self, lifetime_seconds: float = 3600) -> None:
        super().__init__(self.answer)
        self.lifetime_seconds = lifetime_seconds
        self.status = 200
        self.location = ""
        """Where it redirects to, with a status that does."""
        self.asked: list[dict[str, str]] = []
        """The forms of all requests."""
        self.refused = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}/token"

    def answer(self, request: Request) -> Response:
        """The response to a request."""
        if request.method == "GET":
            # What a redirect would lead to.
            self.asked.append({"method": "GET", **request.headers})
            return Response(status=404)
        self.asked.append(request.form)
        status, content = self._give_token(request.form, request.headers.get("Authorization", ""))
        headers = {"Location": self.location} if self.location else {}
        return Response(status=status, text=json.dumps(content) if content else "", headers=headers)

    def _give_token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, object]]:
        if self.status != 200:
            return self.status, {}
        basic = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        client, secret = (urllib.parse.unquote(each) for each in basic.split(":"))
        if (client, secret, form.get("grant_type")) != (CLIENT, SECRET, "client_credentials"):
            self.refused += 1
            return 401, {"error": "invalid_client"}
        made = token(sub=client, scope=form.get("scope"), exp=time.time() + self.lifetime_seconds)
        return 200, {"access_token": made, "expires_in": self.lifetime_seconds}
