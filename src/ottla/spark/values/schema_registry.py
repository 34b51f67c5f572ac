"""Schemas by their ids, from a registry that speaks Confluent's REST interface: asked once each, and remembered.

A registry that is away, or overloaded, is asked again until a deadline, and then the question fails: that is no fault
of the records, so nobody may put them aside for it. An id that the registry does not know is: that is remembered, too,
for a while. Values and their framing: `registry_values.py`.
"""

import base64
import json
import random
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.model.errors import DeniedError, InvalidRequestError, RetriableError

_ANSWER_BYTES_MAX: Final = 16 << 20
_REFERENCE_DEPTH_MAX: Final = 32
_UNKNOWN_KEPT_MAX: Final = 10_000
_UNKNOWN_KEPT_S: Final = 60.0
_RETRY_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryUnreachableError(RetriableError):
    """The registry did not answer in time; the records that need it are not lost, only not read yet."""


class RegistryRefusedError(DeniedError):
    """The registry wants other credentials, or is no schema registry. Says what it answered."""


class UnknownSchemaError(InvalidRequestError):
    """The registry has no such schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema as it was registered."""

    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    references: tuple[str, ...]
    """The texts of the schemas it names, each after those that it names itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAddress:
    """Where registries are, and how to be let in; one is enough, the others are asked when it is away."""

    urls: tuple[str, ...]
    credentials: str | None = field(default=None, repr=False)
    """As `user:password`."""
    timeout_ms: int = 30_000
    """How long a question is tried, over all registries and retries."""


class SchemaRegistry:
    """Asks for schemas and remembers them. Serves one thread at a time."""

    def __init__(
        self,
        address: RegistryAddress,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address = address
        self._now = now
        self._sleep = sleep
        self._known: dict[int, RegisteredSchema] = {}
        self._unknown: dict[int, float] = {}

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema of that id; raises `UnknownSchemaError`, `RegistryUnreachableError` or `RegistryRefusedError`."""
        known = self._known.get(schema_id)
        if known is not None:
            return known
        unknown_since = self._unknown.get(schema_id)
        if unknown_since is None or self._now() - unknown_since > _UNKNOWN_KEPT_S:
            answer = self._ask(f"/schemas/ids/{schema_id}")
            if answer is not None:
                found = self._known[schema_id] = self._registered(answer)
                return found
            if len(self._unknown) >= _UNKNOWN_KEPT_MAX:
                self._unknown.clear()
            self._unknown[schema_id] = self._now()
        raise UnknownSchemaError(f"the registry has no schema with the id {schema_id}")

    def newest(self, subject: str) -> RegisteredSchema:
        """The newest schema of a subject; raises as `schema` does."""
        answer = self._ask(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")
        if answer is None:
            raise UnknownSchemaError(f"the registry has no subject {subject}")
        return self._registered(answer)

    def _registered(self, answer: Mapping[str, Any]) -> RegisteredSchema:
        references: dict[str, str] = {}
        self._collect(answer, references, 0)
        kind, text = str(answer.get("schemaType") or "AVRO"), answer.get("schema")
        if not isinstance(text, str):
            raise RegistryRefusedError("the registry's answer has no schema in it; is this a schema registry?")
        return RegisteredSchema(kind=kind, text=text, references=tuple(references.values()))

    def _collect(self, answer: Mapping[str, Any], found: dict[str, str], depth: int) -> None:
        if depth > _REFERENCE_DEPTH_MAX:
            raise RegistryRefusedError("the schema's references go deeper than any sensible ones do")
        for each in answer.get("references") or ():
            subject, version, name = str(each["subject"]), int(each["version"]), str(each["name"])
            if name in found:
                continue
            inner = self._ask(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}?deleted=true")
            if inner is None:
                raise UnknownSchemaError(f"the registry has no version {version} of {subject}, which a schema names")
            self._collect(inner, found, depth + 1)
            found[name] = str(inner["schema"])

    def _ask(self, path: str) -> Mapping[str, Any] | None:
        """The answer; None if there is no such thing. Tries all registries in turn until the deadline."""
        deadline = self._now() + self._address.timeout_ms / 1000
        tries = 0
        while True:
            url = self._address.urls[tries % len(self._address.urls)]
            tries += 1
            left = deadline - self._now()
            try:
                return self._ask_once(url.rstrip("/") + path, max(left, 0.01))
            except RegistryUnreachableError as error:
                pause = min(0.1 * 2 ** min(tries, 6), 5.0) * random.uniform(0.5, 1.0)
                if self._now() + pause > deadline:
                    raise RegistryUnreachableError(
                        f"{error}; gave up after {tries} tries in {self._address.timeout_ms} ms. "
                        "Is schemaRegistryUrl right, and does the registry run?"
                    ) from error
                self._sleep(pause)

    def _ask_once(self, url: str, timeout_s: float) -> Mapping[str, Any] | None:
        request = urllib.request.Request(url, headers={"Accept": _ACCEPT})
        if self._address.credentials is not None:
            token = base64.b64encode(self._address.credentials.encode()).decode()
            request.add_header("Authorization", f"Basic {token}")
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                body = answer.read(_ANSWER_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(url, error)
        except (OSError, urllib.error.URLError, ValueError) as error:
            raise RegistryUnreachableError(f"the schema registry at {url} does not answer: {error}") from error
        return _parsed(url, body)

    @staticmethod
    def _refused(url: str, error: urllib.error.HTTPError) -> None:
        said = error.read(500).decode(errors="replace")
        if error.code in _RETRY_STATUSES:
            raise RegistryUnreachableError(f"the schema registry at {url} answers {error.code}: {said}")
        if error.code == 404 and '"error_code"' in said:
            return
        advice = "; set schemaRegistryUser and schemaRegistryPassword" if error.code in (401, 403) else ""
        raise RegistryRefusedError(f"the schema registry at {url} answers {error.code}: {said}{advice}")


def _parsed(url: str, body: bytes) -> Mapping[str, Any]:
    if len(body) > _ANSWER_BYTES_MAX:
        raise RegistryRefusedError(f"the answer of {url} is larger than any schema")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RegistryRefusedError(f"the answer of {url} is not JSON; is this a schema registry?") from error
    if not isinstance(found, dict):
        raise RegistryRefusedError(f"the answer of {url} is no object; is this a schema registry?")
    return found
