"""Requests and answers of the REST interface, as the routes see them. Pure."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs

import msgspec

from ottla.registry.state.errors import RegistryError

T = TypeVar("T")
_INT_MAX: Final = 2**31 - 1
_NUMBER: Final = re.compile("[+-]?[0-9]{1,10}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is sent back. `body` is JSON, or the text of a schema."""

    status: int = 200
    body: bytes = b""
    content_type: str | None = None
    """None for the type that the client accepts."""
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Query:
    """The parameters of a query string. Values that cannot be read are treated as Confluent's registry does."""

    def __init__(self, values: Mapping[str, list[str]]) -> None:
        self._values = values

    @classmethod
    def parse(cls, text: bytes) -> "Query":
        """The parameters of an encoded query string. Raises `RegistryError` (400) if it has too many."""
        if not text:
            return _NO_QUERY
        try:
            found = parse_qs(text.decode("latin-1"), keep_blank_values=True, max_num_fields=_QUERY_FIELDS_MAX)
        except ValueError as error:
            raise http_error(400, f"the query string cannot be read: {error}") from None
        return cls(found)

    def text(self, name: str, default: str = "") -> str:
        """The first value."""
        return self._values[name][0] if name in self._values else default

    def optional(self, name: str) -> str | None:
        """The first value, None without one."""
        return self._values[name][0] if name in self._values else None

    def all(self, name: str) -> list[str]:
        """All values, in order."""
        return self._values.get(name, [])

    def flag(self, name: str) -> bool:
        """Whether the value is `true`, in any case; everything else is false."""
        return self.text(name).lower() == "true"

    def number(self, name: str, default: int) -> int:
        """The value as a number. Raises `RegistryError` (404) if it is not one."""
        return default if name not in self._values else whole_number(self._values[name][0])

    def replacing(self, name: str, *values: str) -> "Query":
        """The query with other values of one parameter."""
        return Query({**self._values, name: list(values)})


_QUERY_FIELDS_MAX: Final = 1_000
_NO_QUERY: Final = Query({})


def whole_number(text: str) -> int:
    """A number in a path or query. Raises `RegistryError` (404), as for a path that does not exist."""
    if not _NUMBER.fullmatch(text) or not -_INT_MAX - 1 <= int(text) <= _INT_MAX:
        raise http_error(404)
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request with its path taken apart."""

    method: str
    path: Mapping[str, str] = field(default_factory=dict)
    """The parameters in the path, decoded."""
    query: Query = _NO_QUERY
    body: bytes = b""
    raw_path: str = ""
    """Path and query string as they were sent, to forward them."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    client: str = ""
    """Who takes turns with others where work has to wait: a principal, or an address."""

    def decoded(self, decoder: "msgspec.json.Decoder[T]") -> T:
        """The body; numbers and booleans are taken as text where text is expected.

        Raises `RegistryError`: 422 without a body, 400 if it is not the JSON that is expected.
        """
        if self.body.strip() in (b"", b"null"):
            raise http_error(422, "the request needs a body: a JSON object")
        try:
            return decoder.decode(self.body)
        except msgspec.ValidationError as error:
            with suppress(ValueError, RecursionError):
                return msgspec.convert(_scalars_as_text(self.body), decoder.type, strict=False)
            raise http_error(400, f"the body is not what is expected here: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise http_error(400, f"the body is not valid JSON: {error}") from None


def _scalars_as_text(body: bytes) -> Any:
    """The JSON of a body with its numbers and booleans as they are written. Raises `ValueError`, `RecursionError`."""

    def with_texts(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: str(value).lower() if isinstance(value, bool) else value for name, value in pairs}

    return json.loads(body, object_pairs_hook=with_texts, parse_int=str, parse_float=str, parse_constant=str)


def http_error(status: int, message: str | None = None) -> RegistryError:
    """An error of the HTTP layer; its error code is its status, as in Confluent's registry."""
    return RegistryError(
        status, status, message or f"HTTP {status} {_REASONS.get(status) or HTTPStatus(status).phrase}"
    )


_REASONS: Final = {422: "Unprocessable Entity"}


_LOGIN: Final = ((b"www-authenticate", b'Basic realm="ottla"'),)


def error_answer(error: RegistryError) -> Answer:
    """The answer with the body that clients expect of every error."""
    return Answer(
        status=error.status,
        body=encoded({"error_code": error.error_code, "message": error.message}),
        headers=_LOGIN if error.status == HTTPStatus.UNAUTHORIZED else (),
    )


def encoded(value: Any) -> bytes:
    """JSON, without spaces."""
    return _ENCODER.encode(value)


_ENCODER: Final = msgspec.json.Encoder()
