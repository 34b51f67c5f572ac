"""The way of a request through the broker: context, admission, handler, response, throttling, counters.

Produce and Fetch go to their handlers as the bytes that arrived, with the connection's context. Every other API is read
by kio, gets a `RequestContext`, is handed to a function of `handlers/` as the newest version's class, and its response
is written in the version of the request.
"""

import asyncio
import logging
from collections.abc import Awaitable
from datetime import timedelta
from functools import cache, partial
from types import CoroutineType, ModuleType
from typing import Any, Final

from ottla.broker.handlers.records.fetch import fetch
from ottla.broker.handlers.records.produce import produce
from ottla.broker.requests.admission import Admission
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.dispatch import API_KEYS, EAGER, handler_of
from ottla.broker.requests.inline_handlers import start_eagerly
from ottla.broker.requests.services import Services
from ottla.broker.requests.throttling import throttle, with_throttle
from ottla.coordination.runtime.reply import NoAnswer, Reply
from ottla.protocol.apis import ApiKey
from ottla.protocol.scan import FetchRequest, ProduceRequest, Request
from ottla.security.audit import log_denials
from ottla.security.authorizer import allows_cached
from ottla.security.connection_context import ConnectionContext
from ottla.security.resources import CLUSTER_NAME, Operation, ResourceType
from ottla.transport.connection import Slot
from ottla.transport.request_times import FOLLOWER_FETCH

_LOGGER: Final = logging.getLogger(__name__)
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_MILLISECOND: Final = timedelta(milliseconds=1)
_OF_BROKERS: Final = frozenset(
    {
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
"""What only brokers send, to each other."""

COLD_REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
"""The limit for requests that become Python objects, where one byte may cost a hundred bytes of memory."""


class Pipeline:
    """Serves the requests of all connections."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._quotas = services.quotas
        self._count = services.counts.add
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._admission = Admission(services.clock)

    def serve(self, request: Request, buffer: bytearray, slot: Slot, /) -> bool:
        """Completes the slot, now or later. If it returns False, the request must be offered again.

        Raises only for a broken invariant.
        """
        if not self._quotas.is_unlimited:
            return self._serve_timed(request, buffer, slot)
        return self._serve(request, buffer, slot)

    def _serve_timed(self, request: Request, buffer: bytearray, slot: Slot) -> bool:
        """Counts the time of a request that is not exempt: the client's next response may be throttled for it."""
        clock = self._services.clock
        began = clock.monotonic()
        client = slot.client
        is_served = self._serve(request, buffer, slot)
        if is_served and not self._is_exempt(request, slot):
            self._quotas.record_time(client, request.client_id, clock.monotonic() - began)
        return is_served

    def _is_exempt(self, request: Request, slot: Slot) -> bool:
        """Whether a broker fetches as a follower, or coordinates. A client that only claims to is not exempt."""
        is_of_broker = slot.api_key == FOLLOWER_FETCH or request.api_key in _OF_BROKERS
        return is_of_broker and allows_cached(
            self._services.authorizer, slot.client, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )

    def _serve(self, request: Request, buffer: bytearray, slot: Slot) -> bool:
        client = slot.connection.context
        try:
            if isinstance(request, ProduceRequest):
                if not produce(self._services, request, buffer, slot):
                    return False
            elif isinstance(request, FetchRequest):
                if request.replica_id >= 0:
                    slot.api_key = FOLLOWER_FETCH
                fetch(self._services, request, slot)
            elif not self._serve_cold(request, buffer, slot):
                return False
        except Exception as error:
            self._on_failure(request, slot, error)
        if client.decisions.denied:
            log_denials(client)
        self._count(request.api_key, request.version)
        return True

    def _serve_cold(self, request: Request, buffer: bytearray, slot: Slot) -> bool:
        size = request.end - request.start
        if size > COLD_REQUEST_BYTES_MAX:
            slot.fail(f"a request of API {request.api_key} has {size} bytes; the limit is {COLD_REQUEST_BYTES_MAX}")
            return True
        if not self._admission.admit(request.api_key, size, slot.connection.resume):
            return False
        is_answered = True
        try:
            is_answered = self._answer_cold(request, buffer, slot)
        finally:
            if is_answered:
                self._admission.release(request.api_key, size)
        return True

    def _answer_cold(self, request: Request, buffer: bytearray, slot: Slot) -> bool:
        """Whether the slot is completed; if not, a task will do it."""
        if request.api_key == _API_VERSIONS:
            from ottla.broker.handlers.versions import answer_api_versions, throttle_position

            with memoryview(buffer) as view, view[request.body_start : request.end] as body:
                frame = answer_api_versions(
                    request.version,
                    request.correlation_id,
                    body,
                    self._services.image,
                    self._services.broker_id,
                    slot.client.software,
                    with_telemetry=self._services.telemetry.is_exposed,
                )
            throttle_ms = throttle(self._services.quotas, request, slot, len(frame))
            slot.complete((with_throttle(frame, throttle_position(request.version, frame), throttle_ms),))
            return True
        api_key = API_KEYS.get((request.api_key, request.version))
        if api_key is None:
            slot.fail(f"API {request.api_key} version {request.version} is not served")
            return True
        with memoryview(buffer)[request.body_start : request.end] as body:
            message = _messages().read_request(api_key, request.version, body)
        client = slot.connection.context
        context = RequestContext(request.version, request.client_id, client, self._services.authorizer)
        answer = handler_of(api_key)(self._services, context, message)
        if type(answer) is Reply:
            if not answer.is_done:
                answer.when_done(partial(self._on_reply, request, slot, client))
                return False
            self._complete(request, slot, answer.answer)
            return True
        if api_key in EAGER and type(answer) is CoroutineType:
            answer = start_eagerly(answer)
        if isinstance(answer, Awaitable):
            task = asyncio.get_running_loop().create_task(self._await(request, slot, answer, slot.client))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
            return False
        self._complete(request, slot, answer)
        return True

    def _complete(self, request: Request, slot: Slot, answer: Any) -> None:
        """Handlers answer with a message, or with a body that is written already: whole, or as a list of pieces.

        Raises if the message cannot be written, and the error of a `NoAnswer`.
        """
        messages = _messages()
        api_key = API_KEYS[request.api_key, request.version]
        more: list[bytes] = []
        if isinstance(answer, bytes):
            frame = messages.frame_body(api_key, request.version, request.correlation_id, answer)
        elif isinstance(answer, list):
            more = answer[1:]
            more_bytes = sum(map(len, more))
            frame = messages.frame_body(api_key, request.version, request.correlation_id, answer[0], more_bytes)
        elif type(answer) is NoAnswer:
            raise answer.error
        else:
            frame = messages.write_response(api_key, request.version, request.correlation_id, answer)
        throttle_ms = 0
        if not self._quotas.is_unlimited and not self._is_exempt(request, slot):
            size = len(frame) + sum(map(len, more))
            throttle_ms = throttle(self._quotas, request, slot, size, mutation_ms=_mutation_ms(answer))
        if throttle_ms:
            frame = with_throttle(frame, messages.throttle_position(api_key, request.version), throttle_ms)
        slot.complete((frame, *more))

    def _on_reply(self, request: Request, slot: Slot, client: ConnectionContext, answer: Any) -> None:
        try:
            self._complete(request, slot, answer)
        except Exception as error:
            self._on_failure(request, slot, error)
        finally:
            self._on_answered(request, client)

    async def _await(self, request: Request, slot: Slot, answer: Awaitable[Any], client: ConnectionContext) -> None:
        try:
            self._complete(request, slot, await answer)
        except Exception as error:
            self._on_failure(request, slot, error)
        finally:
            self._on_answered(request, client)

    def _on_answered(self, request: Request, client: ConnectionContext) -> None:
        """`client` is as it was: it may have authenticated again while the handler waited."""
        log_denials(client)
        self._admission.release(request.api_key, request.end - request.start)

    def _on_failure(self, request: Request, slot: Slot, error: Exception) -> None:
        if not isinstance(error, _messages().BrokenMessageError):
            _LOGGER.error(
                "API %d version %d from %s failed unexpectedly: %s",
                request.api_key,
                request.version,
                slot.client.address,
                error,
                exc_info=error,
            )
        slot.fail(f"cannot answer a request of API {request.api_key} version {request.version}: {error}")

    async def close(self) -> None:
        """Cancels the handlers that still run."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._services.decompression.close()


@cache
def _messages() -> ModuleType:
    """Imported with the first request: kio takes long to import, and a broker should start fast."""
    from ottla.protocol import messages

    return messages


def _mutation_ms(answer: Any) -> int:
    """The throttle time that a handler has put into its response: for controller mutations, which it counts itself."""
    found = getattr(answer, "throttle_time", None)
    return round(found / _MILLISECOND) if found else 0
