"""Asks a registry over HTTP; errors name the registry and say what it answered."""

import os
import ssl
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import httpx

from ottla.cli.registry.registry_options import HOW_TO_LOG_IN, registry_options
from ottla.client.errors import CannotConnectError
from ottla.model.errors import InvalidRequestError, MisuseError, OttlaError
from ottla.registry.serde.registry_login import tls_advice

DEFAULT_URL: Final = "http://localhost:8081"
URL_VARIABLE: Final = "OTTLA_REGISTRY"
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_SECONDS: Final = 60.0
_PAGE: Final = 500


class RefusedByRegistryError(InvalidRequestError):
    """The registry answered with an error."""

    def __init__(self, status: int, error_code: int, message: str) -> None:
        super().__init__(f"{message} ({error_code})")
        self.status = status
        self.error_code = error_code
        self.message = message


class RestClient:
    """One registry. A context manager."""

    def __init__(self, url: str | None) -> None:
        given = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")
        parts = urlsplit(given)
        login, at, place = parts.netloc.rpartition("@")
        # Messages name the URL, which must not contain the password.
        self.url = urlunsplit(parts._replace(netloc=place))
        if parts.scheme not in ("http", "https") or not place:
            raise MisuseError(f"{self.url!r} is not the URL of a registry; write it as http://host:8081")
        user, _, password = login.partition(":")
        options = registry_options(None, None)
        headers = {"content-type": _CONTENT_TYPE}
        if not at and "token" in options:
            headers["authorization"] = f"Bearer {options['token']}"
        self._http = httpx.Client(
            base_url=self.url,
            timeout=_TIMEOUT_SECONDS,
            headers=headers,
            trust_env=False,
            auth=(unquote(user), unquote(password)) if at else options.get("auth"),
            verify=options.get("tls") or ssl.create_default_context(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def ask(self, method: str, *path: str | int, body: Any = None, **query: str | int | bool) -> Any:
        """The JSON of the answer; the parts of the path are encoded here. Raises `RefusedByRegistryError`."""
        where = "/" + "/".join(quote(str(part), safe=":.") for part in path)
        asked = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
        try:
            response = self._http.request(method, where, params=asked, json=body)
        except httpx.ConnectError as error:
            hint = tls_advice(error) or "is one running? `ottla registry serve` starts one"
            raise CannotConnectError(f"cannot reach the registry {self.url}: {error}; {hint}") from error
        except httpx.HTTPError as error:
            advice = tls_advice(error)
            told = "" if advice is None else f"; {advice}"
            raise OttlaError(f"the registry {self.url} did not answer: {error!r}{told}") from error
        return _checked(response, self.url)

    def schemas(self, prefix: str, **query: bool) -> Iterator[dict[str, Any]]:
        """All versions of subjects with this prefix, in all contexts."""
        offset = 0
        while True:
            page = self.ask("GET", "schemas", subjectPrefix=f":*:{prefix}", offset=offset, limit=_PAGE, **query)
            yield from page
            offset += len(page)
            if len(page) < _PAGE:
                return


def _checked(response: httpx.Response, url: str) -> Any:
    if response.status_code == httpx.codes.NO_CONTENT:
        return None
    try:
        told = response.json()
    except ValueError:
        raise OttlaError(f"{url} is not a schema registry: it answered {response.status_code} without JSON") from None
    if response.is_success:
        return told
    if isinstance(told, dict) and "error_code" in told:
        hint = f"; {HOW_TO_LOG_IN}" if response.status_code == httpx.codes.UNAUTHORIZED else ""
        raise RefusedByRegistryError(response.status_code, told["error_code"], f"{told.get('message', '')}{hint}")
    raise OttlaError(f"the registry {url} answered {response.status_code}: {response.text[:200]}")
