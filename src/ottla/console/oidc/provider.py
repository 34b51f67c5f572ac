"""An identity provider: its discovery document and keys, and tokens for a code or a refresh token, which are verified.

The issuer is the operator's choice, and its document names the other URLs: all are https:, or http: on this machine.
Redirects are not followed; sizes and times are bounded (`ottla.transport.identity_provider`).
"""

import asyncio
import base64
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from ottla.console.oidc.shared_call import SharedCall
from ottla.console.settings import OidcSettings
from ottla.model.errors import InvalidRequestError, RetriableError
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.jwt_validation import (
    BadTokenError,
    TokenKeys,
    TokenRules,
    TokenTimeError,
    UnknownKeyError,
    WrongSignatureError,
    read_keys,
    verified_claims,
)
from ottla.transport.http_hosts import is_loopback
from ottla.transport.identity_provider import CannotFetchError, fetch

_ANSWER_BYTES_MAX: Final = 1024 * 1024
_DOCUMENT_SECONDS: Final = 3600.0
"""How long the discovery document and the keys are used before they are fetched again."""
_UNKNOWN_KEY_SECONDS: Final = 5.0
"""The shortest time between two fetches of the keys that unknown keys asked for."""
_REFUSED: Final = frozenset({400, 401, 403})
"""Statuses of a token endpoint that does not accept the code or the refresh token."""
_ERROR_CODE: Final = re.compile("[a-z_]{1,60}")


class ProviderAwayError(RetriableError):
    """The identity provider does not answer, or not as one does; try again later."""


class LoginRefusedError(AuthenticationError):
    """The identity provider does not accept the code or the refresh token, or its tokens are not accepted here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """What the discovery document says."""

    authorization: str
    token: str
    keys: str
    end_session: str | None
    revocation: str | None
    posts_secret: bool
    """Whether the client's secret is sent in the form, because the provider does not take it in a header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Verified tokens of one user."""

    user: str
    access_token: str = field(repr=False)
    expires_ms: int
    refresh_token: str | None = field(repr=False)
    id_token: str | None = field(repr=False)


class Provider:
    """The identity provider of the settings; it is asked when it is needed first."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._endpoints: Endpoints | None = None
        self._keys: TokenKeys | None = None
        self._fetched_at = float("-inf")
        self._keys_fetched_at = float("-inf")
        self._discovery = SharedCall(self._discover)
        self._key_fetch = SharedCall(self._fetch_keys)

    async def endpoints(self) -> Endpoints:
        """The URLs of the provider. Raises `ProviderAwayError`."""
        if self._endpoints is not None and time.monotonic() - self._fetched_at < _DOCUMENT_SECONDS:
            return self._endpoints
        try:
            return await self._discovery()
        except ProviderAwayError:
            if self._endpoints is None:
                raise
            return self._endpoints

    async def authorization_url(self, *, redirect_url: str, state: str, nonce: str, challenge: str) -> str:
        """Where a browser signs in. `challenge` is that of PKCE, method S256."""
        endpoint = (await self.endpoints()).authorization
        fields = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_url,
            "scope": " ".join(self._settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        if self._settings.audience is not None:
            # Not in the standard, but what providers with several APIs ask for.
            fields["audience"] = self._settings.audience
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(fields)}"

    async def exchange(self, *, code: str, verifier: str, redirect_url: str, nonce: str) -> Grant:
        """The tokens for a code. Raises `LoginRefusedError` and `ProviderAwayError`."""
        answer = await self._ask(
            {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": redirect_url,
                "code_verifier": verifier,
            }
        )
        id_token = answer.get("id_token")
        if not isinstance(id_token, str):
            raise LoginRefusedError("the identity provider sent no ID token; its scopes must contain openid")
        subject = await self._verified(id_token, nonce)
        return await self._grant(answer, subject=subject, refresh_token=None, id_token=id_token)

    async def renew(self, grant: Grant) -> Grant:
        """Newer tokens of the same user. Raises `LoginRefusedError` and `ProviderAwayError`."""
        if grant.refresh_token is None:
            raise LoginRefusedError("the login has expired")
        answer = await self._ask({"grant_type": "refresh_token", "refresh_token": grant.refresh_token})
        renewed = await self._grant(answer, subject=None, refresh_token=grant.refresh_token, id_token=grant.id_token)
        if renewed.user != grant.user:
            raise LoginRefusedError("the identity provider renewed the login with a token of another user")
        return renewed

    async def revoke(self, grant: Grant) -> None:
        """Ends the refresh token at the provider (RFC 7009), if it has one and the provider offers it. Raises
        `LoginRefusedError` and `ProviderAwayError`."""
        endpoint = (await self.endpoints()).revocation
        if endpoint is None or grant.refresh_token is None:
            return
        await self._post(endpoint, {"token": grant.refresh_token, "token_type_hint": "refresh_token"})

    async def end_session_url(self, id_token: str | None, redirect_url: str) -> str | None:
        """Where the browser can sign out of the provider, too; None if the provider has no such page."""
        endpoint = (await self.endpoints()).end_session
        if endpoint is None:
            return None
        fields = {"client_id": self._settings.client_id, "post_logout_redirect_uri": redirect_url}
        if id_token is not None:
            fields["id_token_hint"] = id_token
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(fields)}"

    async def _discover(self) -> Endpoints:
        issuer = self._settings.issuer
        place = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        document = _object(place, await self._fetch(place))
        if document.get("issuer") != issuer:
            raise ProviderAwayError(
                f"the discovery document of {issuer} is that of another issuer:"
                f" {str(document.get('issuer'))[:200]!r}; --oidc-issuer must be the same text"
            )
        listed = document.get("token_endpoint_auth_methods_supported")
        methods = listed if isinstance(listed, list) else ["client_secret_basic"]
        end_session, revocation = document.get("end_session_endpoint"), document.get("revocation_endpoint")
        found = Endpoints(
            authorization=self._url(document, "authorization_endpoint"),
            token=self._url(document, "token_endpoint"),
            keys=self._url(document, "jwks_uri"),
            end_session=None if end_session is None else self._url(document, "end_session_endpoint"),
            revocation=None if revocation is None else self._url(document, "revocation_endpoint"),
            posts_secret="client_secret_basic" not in methods and "client_secret_post" in methods,
        )
        self._endpoints, self._keys, self._fetched_at = found, None, time.monotonic()
        return found

    def _url(self, document: Mapping[str, Any], name: str) -> str:
        url = document.get(name)
        try:
            parts = urlsplit(url) if isinstance(url, str) else None
        except ValueError:
            parts = None
        is_safe = parts is not None and (
            parts.scheme == "https"
            or (
                parts.scheme == "http"
                and is_loopback(parts.hostname or "")
                and urlsplit(self._settings.issuer).scheme == "http"
            )
        )
        if not isinstance(url, str) or parts is None or not is_safe or not parts.hostname or parts.fragment:
            raise ProviderAwayError(
                f"the discovery document of {self._settings.issuer} has no usable {name}: it must be an https: URL"
            )
        return url

    async def _verified(self, id_token: str, nonce: str) -> str:
        """The subject of an ID token that was made for this login at this console."""
        client = self._settings.client_id
        rules = TokenRules(
            audiences=(client,),
            issuer=self._settings.issuer,
            issuer_config="--oidc-issuer",
            audience_config="--oidc-client-id",
        )
        claims = await self._claims("ID token", id_token, rules)
        if claims.get("nonce") != nonce:
            raise LoginRefusedError("the ID token was made for another login (nonce)")
        party, audience = claims.get("azp"), claims.get("aud")
        if (party is not None or (isinstance(audience, list) and len(audience) > 1)) and party != client:
            raise LoginRefusedError("the ID token was made for another client (azp)")
        return str(claims["sub"])

    async def _grant(
        self, answer: Mapping[str, Any], *, subject: str | None, refresh_token: str | None, id_token: str | None
    ) -> Grant:
        access_token, newer = answer.get("access_token"), answer.get("refresh_token")
        if not isinstance(access_token, str) or str(answer.get("token_type", "bearer")).lower() != "bearer":
            raise LoginRefusedError("the identity provider sent no access token of type Bearer")
        settings = self._settings
        rules = TokenRules(
            audiences=() if settings.audience is None else (settings.audience,),
            issuer=settings.issuer,
            name_claim=settings.user_claim,
            issuer_config="--oidc-issuer",
            audience_config="--oidc-audience",
        )
        if access_token.count(".") != 2:
            raise LoginRefusedError(
                "the access token of the identity provider is not a JSON Web Token, so brokers cannot verify it;"
                " configure the provider to issue JWT access tokens for this client, at many providers by naming an API"
                " with --oidc-audience"
            )
        claims = await self._claims("access token", access_token, rules)
        if subject is not None and claims.get("sub") != subject:
            raise LoginRefusedError("the access token is that of another user than the ID token")
        return Grant(
            user=str(claims[settings.user_claim]),
            access_token=access_token,
            expires_ms=int(claims["exp"] * 1000),
            # Only these characters can be sent back (RFC 6749, appendix A.17).
            refresh_token=newer if isinstance(newer, str) and newer.isascii() else refresh_token,
            id_token=id_token,
        )

    async def _claims(self, what: str, token: str, rules: TokenRules) -> Mapping[str, Any]:
        """The claims of a token, if it is right. The keys are fetched again if they lack the token's."""
        try:
            try:
                return verified_claims(token, await self._current_keys(), rules, _now_ms())
            except (UnknownKeyError, WrongSignatureError):
                if time.monotonic() - self._keys_fetched_at < _UNKNOWN_KEY_SECONDS:
                    raise
                self._keys = None
                return verified_claims(token, await self._current_keys(), rules, _now_ms())
        except BadTokenError as error:
            advice = "; compare the clocks of the provider and the console" if isinstance(error, TokenTimeError) else ""
            raise LoginRefusedError(f"the {what} of the identity provider is not accepted: {error}{advice}") from None

    async def _current_keys(self) -> TokenKeys:
        await self.endpoints()
        return await self._key_fetch() if self._keys is None else self._keys

    async def _fetch_keys(self) -> TokenKeys:
        place = (await self.endpoints()).keys
        content = await self._fetch(place)
        try:
            keys = await asyncio.to_thread(read_keys, content)
        except InvalidRequestError as error:
            raise ProviderAwayError(f"{place}: {error}") from None
        self._keys, self._keys_fetched_at = keys, time.monotonic()
        return keys

    async def _ask(self, fields: Mapping[str, str]) -> dict[str, Any]:
        """The answer of the token endpoint. Raises `LoginRefusedError` if it refuses."""
        url = (await self.endpoints()).token
        return _object(url, await self._post(url, fields))

    async def _post(self, url: str, fields: Mapping[str, str]) -> bytes:
        """Posts a form as this client. Raises `LoginRefusedError` if it is refused."""
        endpoints, settings = await self.endpoints(), self._settings
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        form = {**fields, "client_id": settings.client_id}
        if settings.client_secret is not None and endpoints.posts_secret:
            form["client_secret"] = settings.client_secret
        elif settings.client_secret is not None:
            pair = ":".join(quote(each, safe="") for each in (settings.client_id, settings.client_secret))
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        try:
            return await self._fetch(url, headers=headers, form=urlencode(form).encode())
        except CannotFetchError as error:
            raise LoginRefusedError(f"the identity provider refused the login: {error}{_code(error)}") from None

    async def _fetch(self, url: str, **request: Any) -> bytes:
        """Raises `CannotFetchError` only if a form was refused, else `ProviderAwayError`."""
        try:
            # The operator chose the issuer, and the issuer the other URLs: private networks are allowed.
            content = await fetch(url, (url,), bytes_max=_ANSWER_BYTES_MAX, **request)
        except CannotFetchError as error:
            if "form" in request and error.status in _REFUSED:
                raise
            raise ProviderAwayError(f"the identity provider at {_place(url)} cannot be used: {error}") from None
        except OSError as error:
            raise ProviderAwayError(f"the identity provider at {_place(url)} cannot be reached: {error}") from None
        if len(content) > _ANSWER_BYTES_MAX:
            raise ProviderAwayError(f"the identity provider's answer at {_place(url)} is too large")
        return content


def _object(url: str, content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise ProviderAwayError(f"the identity provider's answer at {_place(url)} is not a JSON object")
    return answer


def _code(error: CannotFetchError) -> str:
    """The error code of a token endpoint's refusal (RFC 6749, 5.2), such as invalid_client."""
    try:
        code = json.loads(error.content)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""


def _place(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.netloc}{parts.path}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
