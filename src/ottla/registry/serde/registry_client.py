"""Clients of a schema registry: `RegistryClient` blocks, `AsyncRegistryClient` is for asyncio.

Both know several URLs and go on to the next one when a registry cannot be reached or fails. What never changes is
cached: schemas by id, GUID and version, and what was registered or looked up. The latest version of a subject is cached
for `latest_cache_seconds`. Callers that ask for the same thing at the same time share one request.
"""

import asyncio
import os
import random
import ssl
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit
from uuid import UUID

import httpx
import msgspec

from ottla.registry.schemas.schema import Schema
from ottla.registry.serde import registry_calls as calls
from ottla.registry.serde.errors import RegistryUnavailableError
from ottla.registry.serde.registry_calls import LATEST, Call, RegisteredSchema, Texts, Version
from ottla.registry.serde.registry_login import tls_advice

T = TypeVar("T")

_RETRIED_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})
_WAIT_SECONDS_MIN: Final = 0.1
_WAIT_SECONDS_MAX: Final = 5.0
_STRIPES: Final = 64
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
"""Larger answers are not those of a registry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryClientConfig:
    """How a registry is reached."""

    urls: tuple[str, ...]
    """The addresses of the instances, with http:// or https://."""
    auth: tuple[str, str] | None = field(default=None, repr=False)
    """User and password; those of a URL (https://user:password@host) if there are some."""
    token: str | Callable[[], str] | None = field(default=None, repr=False)
    """A bearer token, or a function that returns one for each request."""
    tls: ssl.SSLContext | None = None
    """For https: which certificates are trusted, and the client's own."""
    timeout_seconds: float = 10.0
    """For one request to one instance."""
    retries: int = 3
    """How often a request is repeated, each time with the next URL."""
    retry_seconds: float | None = None
    """In place of `retries`: how long a request is repeated."""
    cache_size: int = 1_000
    """How many schemas are kept."""
    latest_cache_seconds: float = 60.0
    """How long the latest version of a subject is used before it is asked for again."""


class RegistryClient:
    """A registry's client for programs without an event loop. Threads may share it. A context manager.

    Methods raise `RegistryAnswerError` if the registry refuses, and `RegistryUnavailableError` if none can be reached.
    """

    def __init__(self, url: str | Sequence[str], **options: Any) -> None:
        """`RegistryClientConfig` has the options."""
        self.config: Final = _configured(url, options)
        self._cache = _Cache(self.config.cache_size)
        self._disconnect()
        _CLIENTS.add(self)

    def _disconnect(self) -> None:
        """Starts without connections: also in a process that was forked, because its parent uses the old ones."""
        self._http: httpx.Client | None = None
        self._opening = threading.Lock()
        self._stripes = [threading.Lock() for _ in range(_STRIPES)]
        self._cache.unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        if self._http is not None:
            self._http.close()

    def ask(self, call: Call[T]) -> T:
        """Sends a request of `registry_calls`, past the cache."""
        tries = _Tries(self.config)
        while True:
            try:
                status, body = self._send(call, tries.url)
            except httpx.RequestError as error:
                time.sleep(tries.on_unreachable(call, error))
                continue
            if status in _RETRIED_STATUSES:
                time.sleep(tries.on_status(status, body))
                continue
            return _read(call, status, body)

    def _send(self, call: Call[Any], url: str) -> tuple[int, bytes]:
        """Status and body of the answer of one instance. Raises `httpx.RequestError`."""
        with self._opening:
            http = self._http = self._http or httpx.Client(**_http_options(self.config))
        body = _Body(self.config)
        with http.stream(
            call.method,
            url + call.path,
            params=dict(call.params),
            content=call.body,
            headers=_token_header(self.config),
        ) as answer:
            for part in answer.iter_bytes():
                body.add(part)
        return answer.status_code, bytes(body.data)

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Makes the schema a version of the subject, unless it is one."""
        key = "register", subject, _key(schema), normalize
        return self._cached(key, calls.register(subject, schema, normalize=normalize))

    def look_up(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """The version of the subject that has this schema."""
        key = "look up", subject, _key(schema), normalize, deleted
        return self._cached(key, calls.look_up(subject, schema, normalize=normalize, deleted=deleted))

    def version(self, subject: str, version: Version = LATEST, *, deleted: bool = False) -> RegisteredSchema:
        """A version of the subject."""
        seconds = self.config.latest_cache_seconds if version == LATEST else None
        return self._cached(
            ("version", subject, version, deleted), calls.version(subject, version, deleted=deleted), seconds
        )

    def schema_by_id(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        """The schema with an id; the subject says in which context."""
        return self._cached(("id", schema_id, subject), calls.schema_by_id(schema_id, subject))

    def schema_by_guid(self, guid: UUID) -> RegisteredSchema:
        """The schema with a GUID."""
        return self._cached(("guid", guid), calls.schema_by_guid(guid))

    def ids_of_guid(self, guid: UUID) -> list[int]:
        """The ids that the schema with a GUID has, one for each context."""
        return [each.id for each in self.ask(calls.ids_of_guid(guid))]

    def references_of(self, schema: Schema, subject: str | None = None) -> Texts:
        """The texts of all that a schema uses, by name; each comes after those that it uses itself."""
        finding = calls.references_of(schema, subject)
        try:
            wanted = next(finding)
            while True:
                wanted = finding.send(self.version(*wanted, deleted=True))
        except StopIteration as found:
            texts: Texts = found.value
            return texts

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """The names of all subjects that begin with the prefix."""
        return self.ask(calls.subjects(prefix, deleted=deleted))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """The numbers of the subject's versions."""
        return self.ask(calls.versions(subject, deleted=deleted))

    def compatibility_problems(
        self, subject: str, schema: Schema, version: Version | None = None, *, normalize: bool = False
    ) -> list[str]:
        """Why the schema cannot be registered under the subject's compatibility level; empty if it can."""
        return self.ask(calls.compatibility_problems(subject, schema, version, normalize=normalize))

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Deletes all versions of the subject and returns their numbers."""
        self._cache.clear()
        return self.ask(calls.delete_subject(subject, permanent=permanent))

    def delete_version(self, subject: str, version: Version, *, permanent: bool = False) -> int:
        """Deletes a version of the subject and returns its number."""
        self._cache.clear()
        return self.ask(calls.delete_version(subject, version, permanent=permanent))

    def set_config(self, settings: Mapping[str, Any], subject: str | None = None) -> dict[str, Any]:
        """Changes the config of a subject, or the global one: `{"compatibility": "FULL"}`."""
        return self.ask(calls.set_config(settings, subject))

    def _cached(self, key: Hashable, call: Call[RegisteredSchema], seconds: float | None = None) -> RegisteredSchema:
        found = self._cache.get(key)
        if found is None:
            with self._stripes[hash(key) % _STRIPES]:
                found = self._cache.get(key)
                if found is None:
                    found = self.ask(call)
                    self._cache.put(key, found, seconds)
        return found


class AsyncRegistryClient:
    """A registry's client for asyncio. The tasks of one event loop may share it. An async context manager.

    Methods raise what those of `RegistryClient` raise.
    """

    def __init__(self, url: str | Sequence[str], **options: Any) -> None:
        """`RegistryClientConfig` has the options."""
        self.config: Final = _configured(url, options)
        self._http = httpx.AsyncClient(**_http_options(self.config))
        self._cache = _Cache(self.config.cache_size)
        self._in_flight: dict[Hashable, asyncio.Task[RegisteredSchema]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def ask(self, call: Call[T]) -> T:
        """Sends a request of `registry_calls`, past the cache."""
        tries = _Tries(self.config)
        while True:
            try:
                status, body = await self._send(call, tries.url)
            except httpx.RequestError as error:
                await asyncio.sleep(tries.on_unreachable(call, error))
                continue
            if status in _RETRIED_STATUSES:
                await asyncio.sleep(tries.on_status(status, body))
                continue
            return _read(call, status, body)

    async def _send(self, call: Call[Any], url: str) -> tuple[int, bytes]:
        """Status and body of the answer of one instance. Raises `httpx.RequestError`."""
        body = _Body(self.config)
        async with self._http.stream(
            call.method,
            url + call.path,
            params=dict(call.params),
            content=call.body,
            headers=_token_header(self.config),
        ) as answer:
            async for part in answer.aiter_bytes():
                body.add(part)
        return answer.status_code, bytes(body.data)

    async def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Makes the schema a version of the subject, unless it is one."""
        key = "register", subject, _key(schema), normalize
        return await self._cached(key, calls.register(subject, schema, normalize=normalize))

    async def look_up(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """The version of the subject that has this schema."""
        key = "look up", subject, _key(schema), normalize, deleted
        return await self._cached(key, calls.look_up(subject, schema, normalize=normalize, deleted=deleted))

    async def version(self, subject: str, version: Version = LATEST, *, deleted: bool = False) -> RegisteredSchema:
        """A version of the subject."""
        seconds = self.config.latest_cache_seconds if version == LATEST else None
        return await self._cached(
            ("version", subject, version, deleted), calls.version(subject, version, deleted=deleted), seconds
        )

    async def schema_by_id(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        """The schema with an id; the subject says in which context."""
        return await self._cached(("id", schema_id, subject), calls.schema_by_id(schema_id, subject))

    async def schema_by_guid(self, guid: UUID) -> RegisteredSchema:
        """The schema with a GUID."""
        return await self._cached(("guid", guid), calls.schema_by_guid(guid))

    async def ids_of_guid(self, guid: UUID) -> list[int]:
        """The ids that the schema with a GUID has, one for each context."""
        return [each.id for each in await self.ask(calls.ids_of_guid(guid))]

    async def references_of(self, schema: Schema, subject: str | None = None) -> Texts:
        """The texts of all that a schema uses, by name; each comes after those that it uses itself."""
        finding = calls.references_of(schema, subject)
        answer: RegisteredSchema | None = None
        while True:
            try:
                wanted = next(finding) if answer is None else finding.send(answer)
            except StopIteration as found:
                texts: Texts = found.value
                return texts
            answer = await self.version(*wanted, deleted=True)

    async def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """The names of all subjects that begin with the prefix."""
        return await self.ask(calls.subjects(prefix, deleted=deleted))

    async def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """The numbers of the subject's versions."""
        return await self.ask(calls.versions(subject, deleted=deleted))

    async def compatibility_problems(
        self, subject: str, schema: Schema, version: Version | None = None, *, normalize: bool = False
    ) -> list[str]:
        """Why the schema cannot be registered under the subject's compatibility level; empty if it can."""
        return await self.ask(calls.compatibility_problems(subject, schema, version, normalize=normalize))

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Deletes all versions of the subject and returns their numbers."""
        self._cache.clear()
        return await self.ask(calls.delete_subject(subject, permanent=permanent))

    async def delete_version(self, subject: str, version: Version, *, permanent: bool = False) -> int:
        """Deletes a version of the subject and returns its number."""
        self._cache.clear()
        return await self.ask(calls.delete_version(subject, version, permanent=permanent))

    async def set_config(self, settings: Mapping[str, Any], subject: str | None = None) -> dict[str, Any]:
        """Changes the config of a subject, or the global one: `{"compatibility": "FULL"}`."""
        return await self.ask(calls.set_config(settings, subject))

    async def _cached(
        self, key: Hashable, call: Call[RegisteredSchema], seconds: float | None = None
    ) -> RegisteredSchema:
        found = self._cache.get(key)
        if found is not None:
            return found
        asking = self._in_flight.get(key)
        if asking is None:
            asking = self._in_flight[key] = asyncio.create_task(self._fill(key, self.ask(call), seconds))
            asking.add_done_callback(partial(self._on_asked, key))
        # Another task may wait for the same answer: it must not be cancelled with this one.
        return await asyncio.shield(asking)

    def _on_asked(self, key: Hashable, asked: "asyncio.Task[RegisteredSchema]") -> None:
        self._in_flight.pop(key, None)
        if not asked.cancelled():
            # If all callers were cancelled, the error is not read elsewhere, and asyncio would log it.
            asked.exception()

    async def _fill(
        self, key: Hashable, asking: Awaitable[RegisteredSchema], seconds: float | None
    ) -> RegisteredSchema:
        found = await asking
        self._cache.put(key, found, seconds)
        return found


_CLIENTS: Final[weakref.WeakSet[RegistryClient]] = weakref.WeakSet()


def _after_fork() -> None:
    """Two processes that use the same connections would read each other's answers."""
    for client in _CLIENTS:
        client._disconnect()


os.register_at_fork(after_in_child=_after_fork)


class _Body:
    """The body of an answer, limited in size and in the time that it may take, even if something arrives always."""

    def __init__(self, config: RegistryClientConfig) -> None:
        self.data = bytearray()
        self._config = config
        self._deadline = time.monotonic() + config.timeout_seconds

    def add(self, part: bytes) -> None:
        """A part of the body. Raises `httpx.RequestError`."""
        self.data += part
        if len(self.data) > ANSWER_BYTES_MAX:
            raise httpx.ReadError(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
        if time.monotonic() > self._deadline:
            raise httpx.ReadTimeout(f"the answer was not complete after {self._config.timeout_seconds} seconds")


class _Cache:
    """The schemas used last, some of them until a deadline."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self.unlock()
        self._found: OrderedDict[Hashable, tuple[RegisteredSchema, float | None]] = OrderedDict()

    def unlock(self) -> None:
        """Makes a new lock: in a process that was forked, another thread of the parent may have held the old one."""
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> RegisteredSchema | None:
        with self._lock:
            entry = self._found.get(key)
            if entry is None:
                return None
            found, deadline = entry
            if deadline is not None and time.monotonic() >= deadline:
                del self._found[key]
                return None
            self._found.move_to_end(key)
            return found

    def put(self, key: Hashable, found: RegisteredSchema, seconds: float | None) -> None:
        with self._lock:
            self._found[key] = found, None if seconds is None else time.monotonic() + seconds
            while len(self._found) > self._size_max:
                self._found.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._found.clear()


class _Tries:
    """The tries of one request: which URL comes next, how long to wait, and when to give up."""

    def __init__(self, config: RegistryClientConfig) -> None:
        self._config = config
        self._failed = 0
        self._deadline = None if config.retry_seconds is None else time.monotonic() + config.retry_seconds

    @property
    def url(self) -> str:
        return self._config.urls[self._failed % len(self._config.urls)]

    def on_unreachable(self, call: Call[Any], error: httpx.RequestError) -> float:
        """Seconds to wait before the next try. A delete that may have been received is not repeated."""
        reason = f"{self.url}: {type(error).__name__}: {error}"
        advice = tls_advice(error)
        if advice is not None:
            reason = f"{reason}; {advice}"
            if len(self._config.urls) == 1 and isinstance(error, httpx.ConnectError):
                # It will not be trusted the next time either.
                raise RegistryUnavailableError(f"no schema registry could be reached: {reason}")
        if call.method == "DELETE" and not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            raise RegistryUnavailableError(f"the registry did not answer; the delete may have happened: {reason}")
        return self._wait(f"no schema registry could be reached; the last error is from {reason}")

    def on_status(self, status: int, body: bytes) -> float:
        """Seconds to wait before the next try."""
        error = calls.answer_error(status, body)
        return self._wait(f"the schema registry failed, {self.url}: {error}")

    def _wait(self, reason: str) -> float:
        self._failed += 1
        # Each URL is tried once without waiting.
        seconds = 0.0
        if self._failed >= len(self._config.urls):
            longest = min(_WAIT_SECONDS_MIN * 2.0 ** min(self._failed - 1, 10), _WAIT_SECONDS_MAX)
            seconds = random.uniform(longest / 2, longest)
        is_over = self._failed > self._config.retries
        if self._deadline is not None:
            is_over = time.monotonic() + seconds > self._deadline
        if is_over:
            raise RegistryUnavailableError(f"{reason} (tried {self._failed} times)")
        return seconds


def _read(call: Call[T], status: int, body: bytes) -> T:
    if status >= 300:
        raise calls.answer_error(status, body)
    try:
        return call.read(body)
    except (msgspec.MsgspecError, ValueError, KeyError, RecursionError) as error:
        raise RegistryUnavailableError(
            f"{call.method} {call.path}: the answer is not that of a schema registry: {error}"
        ) from error


def _configured(url: str | Sequence[str], options: dict[str, Any]) -> RegistryClientConfig:
    urls = url.split(",") if isinstance(url, str) else list(url)
    cleaned, logins = [], set()
    for each in urls:
        parts = urlsplit(each.strip().rstrip("/"))
        login, at, place = parts.netloc.rpartition("@")
        if parts.scheme not in ("http", "https") or not place:
            shown = each.strip().rpartition("@")[2]
            raise ValueError(f"the URL of a schema registry begins with http:// or https://, not {shown!r}")
        # Errors name the URL, which must not contain the password.
        cleaned.append(urlunsplit(parts._replace(netloc=place)))
        if at:
            user, _, password = login.partition(":")
            logins.add((unquote(user), unquote(password)))
    if len(logins) > 1:
        raise ValueError("the URLs of a schema registry have different users; use the same user for all instances")
    if logins and options.get("auth") is None:
        options = {**options, "auth": logins.pop()}
    return RegistryClientConfig(urls=tuple(cleaned), **options)


def _http_options(config: RegistryClientConfig) -> dict[str, Any]:
    options: dict[str, Any] = {
        "timeout": config.timeout_seconds,
        "headers": {"Accept": calls.CONTENT_TYPE, "Content-Type": calls.CONTENT_TYPE},
    }
    if config.auth is not None:
        options["auth"] = config.auth
    if config.tls is not None:
        options["verify"] = config.tls
    return options


def _token_header(config: RegistryClientConfig) -> dict[str, str]:
    if config.token is None:
        return {}
    return {"Authorization": f"Bearer {config.token if isinstance(config.token, str) else config.token()}"}


def _key(schema: Schema) -> bytes:
    return msgspec.json.encode(schema)
