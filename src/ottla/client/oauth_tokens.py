"""Token providers for OAUTHBEARER from Kafka's configs: a file, a token endpoint, or an unsecured token for tests.

The file is the most general: whatever renews the token writes it there. A token endpoint is asked with the client
credentials grant (RFC 6749, section 4.4).
"""

import asyncio
import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from ottla.model.errors import MisuseError
from ottla.security.sasl.authentication_error import AuthenticationError

_URL: Final = "sasl.oauthbearer.token.endpoint.url"
UNSECURED_SUBJECT: Final = "unsecuredLoginStringClaim_sub"
"""The option of sasl.jaas.config with the user of a token without a signature."""
_CREDENTIALS: Final = "sasl.oauthbearer.client.credentials."
RESPONSE_BYTES_MAX: Final = 1024 * 1024
_TIMEOUT_SECONDS: Final = 10.0
_UNSECURED_SECONDS: Final = 3600


def token_provider_of(
    configs: Mapping[str, str], jaas: Mapping[str, str]
) -> Callable[[], str] | Callable[[], Awaitable[str]]:
    """The provider that these configs and the options of sasl.jaas.config describe. Raises `MisuseError`."""
    url = configs.get(_URL, "").strip()
    subject = jaas.get(UNSECURED_SUBJECT)
    if url.startswith("file:"):
        path = Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path))
        return lambda: read_token(path)
    if url.startswith(("https://", "http://")):
        credentials = ClientCredentials.parse(configs, jaas)
        return lambda: asyncio.to_thread(_fetch, credentials)
    if url:
        raise MisuseError(f"{_URL}: expected an https:// or file:// URL")
    if subject:
        return lambda: unsecured_token(subject)
    raise MisuseError(f"OAUTHBEARER needs {_URL}: an https:// endpoint, or file:// and a path to the token")


def read_token(path: Path) -> str:
    """The token in a file. Raises `AuthenticationError`."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AuthenticationError(f"cannot read the token in {path}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """What a token endpoint is asked with."""

    url: str
    client: str
    secret: str = field(repr=False)
    scope: str | None = None

    @classmethod
    def parse(cls, configs: Mapping[str, str], jaas: Mapping[str, str]) -> Self:
        """From Kafka's configs, or the options of sasl.jaas.config. Raises `MisuseError`."""
        client = configs.get(f"{_CREDENTIALS}client.id") or jaas.get("clientId")
        secret = configs.get(f"{_CREDENTIALS}client.secret") or jaas.get("clientSecret")
        if not client or not secret:
            raise MisuseError(f"{_URL} needs {_CREDENTIALS}client.id and {_CREDENTIALS}client.secret")
        scope = configs.get("sasl.oauthbearer.scope") or jaas.get("scope")
        return cls(url=configs.get(_URL, "").strip(), client=client, secret=secret, scope=scope)

    @property
    def headers(self) -> dict[str, str]:
        """Of the HTTP request."""
        credentials = ":".join(urllib.parse.quote(each, safe="") for each in (self.client, self.secret))
        return {
            "Accept": "application/json",
            "Authorization": "Basic " + base64.b64encode(credentials.encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
        }

    @property
    def form(self) -> bytes:
        """Its body."""
        fields = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        return urllib.parse.urlencode(fields).encode()

    @property
    def where(self) -> str:
        """The host of the endpoint, for messages."""
        return urllib.parse.urlsplit(self.url).netloc

    def token_in(self, content: bytes) -> str:
        """The token in a response. Raises `AuthenticationError`."""
        try:
            token = json.loads(content).get("access_token")
        except (ValueError, AttributeError) as error:
            raise AuthenticationError(f"the token endpoint at {self.where} cannot be used: {error}") from None
        if not isinstance(token, str):
            raise AuthenticationError(f"the token endpoint at {self.where} answered without an access_token")
        return token


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Another place must not get the client's secret."""

    def redirect_request(self, *_: object) -> None:
        return None


def _fetch(credentials: ClientCredentials) -> str:
    request = urllib.request.Request(credentials.url, credentials.form, credentials.headers)
    where = credentials.where
    try:
        opener = urllib.request.build_opener(_NoRedirects)
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
            return credentials.token_in(response.read(RESPONSE_BYTES_MAX))
    except urllib.error.HTTPError as error:
        raise AuthenticationError(
            f"the token endpoint at {where} refused the request: {error.code} {error.reason}"
        ) from None
    except (OSError, ValueError) as error:
        raise AuthenticationError(f"the token endpoint at {where} cannot be used: {error}") from None


def unsecured_token(subject: str) -> str:
    """A token without a signature; only brokers that are configured to accept it do."""
    now = int(time.time())
    claims = {"sub": subject, "iat": now, "exp": now + _UNSECURED_SECONDS}
    parts = (json.dumps(each, separators=(",", ":")).encode() for each in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in parts) + "."
