"""The registry's ASGI application: from a request to an answer.

A plain ASGI application, without a framework: paths are matched before they are decoded, since subjects may contain an
encoded slash, and look-ups are answered from memory without building objects for them.

Every error has the body that clients expect, `error_code` and `message`. Look-ups are answered from bytes that are kept
until the image changes; routes that parse schemas run in a thread; writes are decided by the leader, here or elsewhere.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec

from ottla.model.errors import OttlaError
from ottla.registry.service.authorization import (
    ANONYMOUS,
    AllowAll,
    Authorizer,
    Client,
    Operation,
    needs_of,
    referenced_subjects,
    visible,
)
from ottla.registry.service.content_types import answer_type, check_request_type
from ottla.registry.service.context_paths import without_context
from ottla.registry.service.election_protocol import Instance
from ottla.registry.service.forwarding import FORWARDED, OFFSET, Forwarding, forwarding_failed
from ottla.registry.service.http_messages import Answer, Query, Request, encoded, error_answer, http_error
from ottla.registry.service.leadership import Leadership, LeadershipLostError
from ottla.registry.service.metrics import Metrics
from ottla.registry.service.registry import Registry
from ottla.registry.service.route_table import Kind, Route, RouteTable, path_segments
from ottla.registry.service.routes import ROUTES
from ottla.registry.service.routes_subjects import SCHEMA_REQUESTS
from ottla.registry.state.errors import (
    FORWARDING_FAILED,
    OPERATION_TIMEOUT,
    UNKNOWN_LEADER,
    RegistryError,
    registry_error,
    schema_not_found,
)
from ottla.transport.http_hosts import HostNames

_LOGGER: Final = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY_BYTES_MAX: Final = 12 * 1024 * 1024
_BODY_SECONDS: Final = 30.0
_CACHED_BYTES_MAX: Final = 64 * 1024 * 1024
_CACHED_ENTRY_BYTES: Final = 256
"""What a kept answer takes besides its body."""
_READ_YOUR_WRITE_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.5
_KNOWN_HOSTS_MAX: Final = 256
_METRICS: Final = "metrics"
_SCHEMA_BY_ID: Final = "/schemas/ids/{id}"
_TEXT: Final = "/schema"
"""The end of paths whose answer is a schema as text."""
_AUDIT: Final = logging.getLogger("ottla.registry.authorizer")


class Application:
    """Answers the requests of one registry instance."""

    def __init__(
        self,
        registry: Registry,
        *,
        authorizer: Authorizer | None = None,
        write_timeout_ms: int = 30_000,
        body_bytes_max: int = BODY_BYTES_MAX,
        logs_access: bool = False,
        hosts: HostNames | None = None,
        peers_context: ssl.SSLContext | None = None,
    ) -> None:
        self.metrics = Metrics(registry)
        self._registry = registry
        self._authorizer = authorizer or AllowAll()
        self._write_seconds = write_timeout_ms / 1000
        self._body_bytes_max = body_bytes_max
        self._logs_access = logs_access
        self._hosts = hosts
        """The names that are answered to; None for every name."""
        self._routes = RouteTable(ROUTES)
        self._forwarding = Forwarding(peers_context)
        self._kept: dict[tuple[bytes, bytes, bytes], tuple[Answer, str]] = {}
        """Answers of look-ups, by path, query and accepted types, and their routes."""
        self._known_hosts: set[bytes | None] = {None}
        """Host headers that are not refused."""
        self._kept_bytes = 0
        self._kept_revision = -1

    async def close(self) -> None:
        """Closes the connections to the leader."""
        await self._forwarding.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one HTTP request."""
        if scope["type"] != "http":
            return
        started = time.perf_counter()
        method = scope["method"]
        answer, route = await self._answer(scope, receive)
        length = str(len(answer.body)).encode()
        headers = [(b"content-length", length), *answer.headers]
        if answer.content_type is not None:
            headers.append((b"content-type", answer.content_type.encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else answer.body})
        seconds = time.perf_counter() - started
        self.metrics.on_answer(method, route, answer.status, seconds)
        if self._logs_access:
            _LOGGER.info("%s %s %d %.1f ms", method, _raw_path(scope).decode(), answer.status, seconds * 1000)

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[Answer, str]:
        """The answer with its content type, and the route for the metrics."""
        raw_path = _raw_path(scope)
        query: bytes = scope["query_string"]
        accept = host = origin = None
        for name, value in scope["headers"]:
            if name == b"accept":
                accept = accept or value
            elif name == b"host":
                host = value
            elif name == b"origin":
                origin = value
        accept = accept or b""
        if self._hosts is not None and (origin is not None or host not in self._known_hosts):
            refusal = self._refusal(host, origin)
            if refusal is not None:
                return replace(error_answer(refusal), content_type=answer_type("")), ""
        is_look_up = scope["method"] in ("GET", "HEAD") and self._authorizer.allows_all
        key = (raw_path, query, accept)
        if is_look_up:
            if self._kept_revision != self._registry.revision:
                self._kept.clear()
                self._kept_bytes, self._kept_revision = 0, self._registry.revision
            found = self._kept.get(key)
            if found is not None:
                self.metrics.cached += 1
                return found
        revision = self._registry.revision
        content_type = answer_type("")
        route: Route | None = None
        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            segments, parsed = without_context(scope["method"], path_segments(raw_path), Query.parse(query))
            client = await self._identify(scope, headers)
            if segments == [_METRICS] and scope["method"] in ("GET", "HEAD"):
                return Answer(body=self.metrics.text(), content_type=self.metrics.content_type), "/metrics"
            if scope["method"] == "OPTIONS":
                allowed = ", ".join(self._routes.methods(segments)).encode()
                return Answer(body=allowed, content_type="text/plain", headers=((b"allow", allowed),)), "OPTIONS"
            route, parameters = self._routes.find(scope["method"], segments)
            content_type = answer_type(headers.get("accept", ""))
            if route.has_body:
                check_request_type(headers.get("content-type", ""))
            self._authorize(client, route, parameters, parsed)
            request = Request(
                method=scope["method"],
                path=parameters,
                query=parsed,
                body=await self._body(receive, headers) if route.has_body else b"",
                raw_path=(raw_path + (b"?" + query if query else b"")).decode("latin-1"),
                headers=headers,
                client=client.host if client.principal == ANONYMOUS else client.principal,
            )
            self._authorize_references(client, route, request)
            answer = self._visible(client, route, await self._serve(route, request))
        except RegistryError as error:
            answer = error_answer(error)
        except Exception:
            _LOGGER.exception("a request failed: %s %s", scope["method"], raw_path.decode())
            answer = error_answer(http_error(500, "Internal Server Error"))
        if answer.content_type is None and answer.body:
            answer = Answer(status=answer.status, body=answer.body, content_type=content_type, headers=answer.headers)
        name = "" if route is None else route.path
        if is_look_up and route is not None and route.kind is Kind.LOOK_UP and answer.status == 200:
            self._keep(key, (answer, name), revision)
        return answer, name

    def _refusal(self, host: bytes | None, origin: bytes | None) -> RegistryError | None:
        """The error for a request that a web page sent under a name of its own, or across origins."""
        assert self._hosts is not None
        if host is not None:  # browsers always send it
            reason = self._hosts.host_refusal(host.decode("latin-1"))
            if reason is not None:
                return http_error(421, f"{reason}; start it with --host")
            if len(self._known_hosts) < _KNOWN_HOSTS_MAX:
                self._known_hosts.add(host)
        reason = None if origin is None else self._hosts.origin_refusal(origin.decode("latin-1"))
        return None if reason is None else http_error(403, f"{reason}; allow them with --host")

    def _keep(self, key: tuple[bytes, bytes, bytes], found: tuple[Answer, str], revision: int) -> None:
        """Keeps an answer, unless the image changed since the request came."""
        size = len(found[0].body) + len(key[0]) + len(key[1]) + _CACHED_ENTRY_BYTES
        is_current = revision == self._kept_revision == self._registry.revision
        if is_current and self._kept_bytes + size <= _CACHED_BYTES_MAX:
            self._kept[key] = found
            self._kept_bytes += size

    # Permissions

    async def _identify(self, scope: Scope, headers: Mapping[str, str]) -> Client:
        host = (scope.get("client") or ("",))[0]
        client = Client(host=host, authorization=headers.get("authorization", ""))
        return client if self._authorizer.allows_all else await self._authorizer.identify(client)

    def _authorize(self, client: Client, route: Route, parameters: Mapping[str, str], query: Query) -> None:
        """Raises `RegistryError`: 403 if the client may not do this, 40403 if it may not read the schema of an id."""
        authorizer = self._authorizer
        if authorizer.allows_all:
            return
        needs = needs_of(self._registry.image, route.operation, route.path, parameters, query)
        for subject in needs.subjects:
            if not authorizer.allows(client, needs.operation, subject):
                raise _denied(client, needs.operation, subject)
        if needs.any_of is not None and not any(
            authorizer.allows(client, Operation.SUBJECT_READ, each) for each in needs.any_of
        ):
            raise schema_not_found()

    def _authorize_references(self, client: Client, route: Route, request: Request) -> None:
        """A schema may refer only to schemas that its writer may read: their text becomes readable with it."""
        subject = request.path.get("subject")
        if self._authorizer.allows_all or not route.has_body or subject is None or not route.takes_schema:
            return
        schema = request.decoded(SCHEMA_REQUESTS)
        for each in referenced_subjects(subject, schema, self._registry.image):
            if not self._authorizer.allows(client, Operation.SUBJECT_READ, each):
                raise _denied(client, Operation.SUBJECT_READ, each)

    def _visible(self, client: Client, route: Route, answer: Answer) -> Answer:
        """The answer to a read without what the client may not read."""
        is_read = route.operation is Operation.SUBJECT_READ
        if self._authorizer.allows_all or not is_read or answer.status != 200 or route.path.endswith(_TEXT):
            return answer
        if route.path == _SCHEMA_BY_ID:
            # Allowed because of one of its subjects, which may not be the one that the answer names.
            return answer
        try:
            shown = visible(
                msgspec.json.decode(answer.body),
                lambda subject: self._authorizer.allows(client, Operation.SUBJECT_READ, subject),
            )
        except LookupError:
            raise _denied(client, Operation.SUBJECT_READ, None) from None
        return replace(answer, body=encoded(shown))

    async def _body(self, receive: Receive, headers: Mapping[str, str]) -> bytes:
        """The whole body. Raises `RegistryError`: 413 if it is too large, 408 if it does not arrive."""
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > self._body_bytes_max:
            raise http_error(413)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise http_error(400, "the connection was closed before the whole body had arrived")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._body_bytes_max:
                        raise http_error(413)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise http_error(408) from None

    # Serving

    async def _serve(self, route: Route, request: Request) -> Answer:
        registry = self._registry
        match route.kind:
            case Kind.LOOK_UP if not (request.query.text("format") or request.query.all("findTags")):
                return _as_answer(route.handle(registry, request))
            case Kind.LOOK_UP | Kind.PARSE:
                await self._check_first(route, request)
                return _as_answer(await registry.access.read(partial(route.handle, registry, request)))
            case Kind.WRITE:
                return await self._write(route, request)

    async def _check_first(self, route: Route, request: Request) -> None:
        """Parses and compares schemas while nothing waits for it: the handler then finds the results."""
        check = None if route.find_check is None else route.find_check(self._registry.image, request)
        if check is not None:
            await self._registry.checking.run(check, request.client)

    async def _write(self, route: Route, request: Request) -> Answer:
        """Decides here if this instance leads, else forwards. Waits for a leader for some time."""
        registry = self._registry
        registry.check_writable()
        known = await self._already_known(route, request)
        if known is not None:
            return known
        deadline = asyncio.get_running_loop().time() + self._write_seconds
        is_forwarded = request.headers.get(FORWARDED, "").lower() == "true"
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    leader = await registry.wait_leader(may_forward=not is_forwarded)
            except TimeoutError:
                raise registry_error(UNKNOWN_LEADER, "Leader not known.") from None
            if isinstance(leader, Leadership):
                await self._check_first(route, request)
                try:
                    return await self._decide(leader, route, request, deadline)
                except LeadershipLostError as error:
                    if error.may_be_written:
                        raise registry_error(
                            OPERATION_TIMEOUT, f"it is unknown whether the change was written: {error}"
                        ) from error
                    problem = "this instance is no longer the leader"
            else:
                answer = await self._forward(leader, route, request)
                if answer is not None:
                    self.metrics.forwarded += 1
                    await self._wait_own_write(answer)
                    return answer
                problem = f"the leader {leader.url} cannot be reached, or does not lead yet"
            await self._pause(deadline, problem)

    async def _forward(self, leader: Instance, route: Route, request: Request) -> Answer | None:
        """The leader's answer; None if the request may be sent to another leader.

        A leader that is replaced is not waited for: it may be paused, and cannot write any more. Raises `RegistryError`
        (50003) if it is unknown whether the request had an effect, and repeating it could change the answer.
        """
        sending = asyncio.create_task(self._forwarding.send(leader.url, request))
        replacing = asyncio.create_task(self._registry.wait_replaced(leader))
        try:
            await asyncio.wait({sending, replacing}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                return sending.result()
            raise forwarding_failed(leader.url, "another instance was elected before it answered")
        except RegistryError as error:
            if error.error_code != FORWARDING_FAILED or not route.is_repeatable:
                raise
            _LOGGER.info("sending a request again: %s", error.message)
            return None
        finally:
            sending.cancel()
            replacing.cancel()

    async def _pause(self, deadline: float, problem: str) -> None:
        """Waits for another leader, for a short time. Raises `RegistryError` with the problem at the deadline."""
        until = min(deadline, asyncio.get_running_loop().time() + _RETRY_SECONDS)
        if until >= deadline:
            raise registry_error(UNKNOWN_LEADER, problem)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._registry.wait_change()

    async def _decide(self, leader: Leadership, route: Route, request: Request, deadline: float) -> Answer:
        try:
            async with asyncio.timeout_at(deadline):
                written = await leader.write(lambda image: route.handle(image, request))
        except TimeoutError:
            raise registry_error(
                OPERATION_TIMEOUT, "writing the change to the topic timed out; it may still be written"
            ) from None
        answer = _as_answer(written.answer)
        offset = ((OFFSET.encode(), str(written.offset).encode()),)
        return Answer(
            status=answer.status,
            body=answer.body,
            content_type=answer.content_type,
            headers=(*answer.headers, *offset),
        )

    async def _already_known(self, route: Route, request: Request) -> Answer | None:
        """The answer if this instance follows and the request changes nothing: no leader is needed then."""
        registry = self._registry
        if route.find_known is None or registry.leadership is not None:
            return None
        try:
            known = await registry.access.read(partial(route.find_known, registry, request))
        except RegistryError as error:
            if error.error_code == error.status:
                # The request itself is wrong.
                raise
            # The leader may know more than this instance.
            return None
        return None if known is None else _as_answer(known)

    async def _wait_own_write(self, answer: Answer) -> None:
        """Waits until this instance sees what the leader wrote, so that its client reads its own write."""
        if answer.status >= 300:
            return
        try:
            async with asyncio.timeout(_READ_YOUR_WRITE_SECONDS):
                told = dict(answer.headers).get(OFFSET.encode())
                offset = int(told) if told is not None else await self._registry.committed_end()
                await self._registry.wait_applied(offset)
        except (TimeoutError, OttlaError):
            _LOGGER.warning("a forwarded change was written, and this instance has not read it back yet")


def _raw_path(scope: Scope) -> bytes:
    """The path as it was sent: encoded, without control characters."""
    return scope.get("raw_path") or quote(scope["path"]).encode()


def _denied(client: Client, operation: Operation, subject: str | None) -> RegistryError:
    _AUDIT.info(
        "principal %r is denied %s on %s from host %s", client.principal, operation, subject or "*", client.host
    )
    about = "all subjects" if subject is None else f"subject {subject}"
    return http_error(403, f"{client.principal} is not authorized for {operation} on {about}")


def _as_answer(value: Any) -> Answer:
    return value if isinstance(value, Answer) else Answer(body=encoded(value))
