"""An identity provider on loopback: OpenID Connect's discovery, keys, authorization code flow, refresh tokens.

People sign in by opening `/approve` in place of `/authorize`, which shows a page with the link. Attributes make it lie.
"""

import base64
import hashlib
import json
import secrets
import threading
import time
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

from joserfc.jwk import RSAKey

from tests.loopback_http import LoopbackServer, Request, Response
from tests.unit.broker.logins.secured import AUDIENCE, KEY, jwks_text, token

CLIENT: Final = "console"
SECRET: Final = "se:cret/ø"


class IdentityProvider(LoopbackServer):
    """Use as a context manager."""

    def __init__(self) -> None:
        super().__init__(self.answer)
        self.user = "alice"
        """Who signs in next."""
        self.lifetime_seconds = 3600.0
        """Of access tokens."""
        self.key: RSAKey = KEY
        """Signs tokens."""
        self.published: RSAKey = KEY
        """What `/jwks` shows."""
        self.id_claims: dict[str, Any] = {}
        """In place of the right ones; the same for access tokens."""
        self.access_claims: dict[str, Any] = {}
        self.is_unsigned = False
        """Whether ID tokens have the algorithm none."""
        self.document: dict[str, Any] = {}
        """In place of what the discovery document says."""
        self.refuses_renewal = False
        self.refuses_revocation = False
        self.is_away = False
        """Whether the token endpoint cannot be used."""
        self.is_opaque = False
        """Whether access tokens are not JSON Web Tokens."""
        self.answers: dict[str, Response] = {}
        """In place of what a path answers."""
        self.may_answer = threading.Event()
        """The token endpoint waits for it."""
        self.may_answer.set()
        self.is_asked = threading.Event()
        """Set when the token endpoint is asked."""
        self.renewals = 0
        self.requests = 0
        """How many there were."""
        self.asked: list[dict[str, str]] = []
        """The forms of requests to the token endpoint."""
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh_tokens: set[str] = set()

    @property
    def url(self) -> str:
        """The issuer: another site than 127.0.0.1, for a browser."""
        return f"http://localhost:{self.port}"

    def answer(self, request: Request) -> Response:
        """The response to a request."""
        self.requests += 1
        if request.path in self.answers:
            return self.answers[request.path]
        if request.method == "POST":
            authorization = request.headers.get("Authorization", "")
            if request.path == "/revoke":
                return Response(status=self.revoke(request.form, authorization))
            status, content = self.give_tokens(request.form, authorization)
            return Response(status=status, text=json.dumps(content))
        given = request.query
        match request.path:
            case "/.well-known/openid-configuration":
                document = {
                    "issuer": self.url,
                    "authorization_endpoint": f"{self.url}/authorize?tenant=1",
                    "token_endpoint": f"{self.url}/token",
                    "jwks_uri": f"{self.url}/jwks",
                    "end_session_endpoint": f"{self.url}/end",
                    "revocation_endpoint": f"{self.url}/revoke",
                    **self.document,
                }
                return Response(text=json.dumps(document))
            case "/jwks":
                return Response(text=jwks_text(self.published))
            case "/authorize":
                link = f"/approve?{urlencode(given)}".replace("&", "&amp;")
                return _page(f'<a href="{link}">Approve</a>')
            case "/approve":
                code = secrets.token_urlsafe(16)
                self._codes[code] = {**given, "user": self.user}
                answer = urlencode({"code": code, "state": given["state"], "iss": self.url})
                return Response(status=302, headers={"Location": f"{given['redirect_uri']}?{answer}"})
            case "/end":
                return _page("Signed out of the provider")
            case _:
                return Response(status=404)

    @property
    def refresh_tokens(self) -> frozenset[str]:
        """Those that can be used."""
        return frozenset(self._refresh_tokens)

    def forget_logins(self) -> None:
        """No refresh token can be used any more."""
        self._refresh_tokens.clear()

    def revoke(self, form: dict[str, str], authorization: str) -> int:
        """The status of the revocation endpoint's answer."""
        if self.refuses_revocation:
            return 503
        if not _is_client(authorization):
            return 401
        assert "refresh_token" == form["token_type_hint"]
        self._refresh_tokens.discard(form["token"])
        return 200

    def give_tokens(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Status and content of the token endpoint's answer."""
        self.asked.append(form)
        self.is_asked.set()
        assert self.may_answer.wait(60)
        if self.is_away:
            return 503, {}
        if not _is_client(authorization):
            return 401, {"error": "invalid_client"}
        if form["grant_type"] == "refresh_token":
            user, _, _ = form["refresh_token"].partition(":")
            if self.refuses_renewal or form["refresh_token"] not in self._refresh_tokens:
                return 400, {"error": "invalid_grant"}
            self._refresh_tokens.discard(form["refresh_token"])
            self.renewals += 1
            return 200, self._answer(user)
        begun = self._codes.pop(form.get("code", ""), None)
        if begun is None or begun["redirect_uri"] != form.get("redirect_uri"):
            return 400, {"error": "invalid_grant"}
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if begun["code_challenge"] != base64.urlsafe_b64encode(digest).decode().rstrip("="):
            return 400, {"error": "invalid_grant"}
        assert ("S256", "code") == (begun["code_challenge_method"], begun["response_type"])
        assert "openid" in begun["scope"].split()
        claims = {"aud": unquote(begun["client_id"]), "nonce": begun["nonce"], **self.id_claims}
        made = token(self.key, **{"sub": begun["user"], "iss": self.url, **claims})
        return 200, {**self._answer(begun["user"]), "id_token": _unsigned(made) if self.is_unsigned else made}

    def _answer(self, user: str) -> dict[str, Any]:
        expires = time.time() + self.lifetime_seconds
        claims = {"sub": user, "iss": self.url, "aud": AUDIENCE, "exp": expires, **self.access_claims}
        refresh_token = f"{user}:{secrets.token_urlsafe(8)}"
        self._refresh_tokens.add(refresh_token)
        access_token = secrets.token_urlsafe(32) if self.is_opaque else token(self.key, **claims)
        return {"access_token": access_token, "token_type": "Bearer", "refresh_token": refresh_token}


def _is_client(authorization: str) -> bool:
    basic = base64.b64decode(authorization.removeprefix("Basic ")).decode()
    return basic == f"{quote(CLIENT)}:{quote(SECRET, safe='')}"


def _page(html: str) -> Response:
    return Response(text=f"<title>id</title>{html}", media_type="text/html")


def _unsigned(made: str) -> str:
    header = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    return f"{header}.{made.split('.')[1]}."
