"""From a request to its handler, and from what that answers to the connection's slot.

Produce and Fetch go straight to their handlers with the bytes as they arrived. Every other API is read by kio, handed
to a function of `handlers/` as the newest version's class, and its answer written in the version that was asked for. A
handler is imported at its API's first request, and may be a plain function or a coroutine function.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.admission import Admission
from ottla.broker.context import Context
from ottla.broker.eager import Waiting, begin
from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.produce import produce
from ottla.protocol.apis import ADVERTISED, SERVED, ApiKey
from ottla.protocol.scan import FetchRequest, ProduceRequest, Request
from ottla.transport.connection import Slot
from ottla.transport.request_times import FOLLOWER_FETCH

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LOGGER: Final = logging.getLogger(__name__)

Handler = Callable[["Broker", Context, Any], Any]

COLD_REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
"""Requests that become Python objects may not be as large as those that carry records: each byte may cost hundred."""

HANDLERS: Final[dict[ApiKey, str]] = {
    ApiKey.LIST_OFFSETS: "offsets:list_offsets",
    ApiKey.METADATA: "metadata:metadata",
    ApiKey.OFFSET_COMMIT: "group_offsets:offset_commit",
    ApiKey.OFFSET_FETCH: "group_offsets:offset_fetch",
    ApiKey.FIND_COORDINATOR: "coordinators:find_coordinator",
    ApiKey.JOIN_GROUP: "group_members:join_group",
    ApiKey.HEARTBEAT: "group_members:heartbeat",
    ApiKey.LEAVE_GROUP: "group_members:leave_group",
    ApiKey.SYNC_GROUP: "group_members:sync_group",
    ApiKey.DESCRIBE_GROUPS: "group_admin:describe_groups",
    ApiKey.LIST_GROUPS: "group_admin:list_groups",
    ApiKey.CREATE_TOPICS: "topics:create_topics",
    ApiKey.DELETE_TOPICS: "topics:delete_topics",
    ApiKey.DELETE_RECORDS: "records:delete_records",
    ApiKey.INIT_PRODUCER_ID: "producers:init_producer_id",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offsets:offset_for_leader_epoch",
    ApiKey.ADD_PARTITIONS_TO_TXN: "transactions:add_partitions_to_txn",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactions:add_offsets_to_txn",
    ApiKey.END_TXN: "transactions:end_txn",
    ApiKey.WRITE_TXN_MARKERS: "transaction_admin:write_txn_markers",
    ApiKey.TXN_OFFSET_COMMIT: "transaction_offsets:txn_offset_commit",
    ApiKey.DESCRIBE_CONFIGS: "configs:describe_configs",
    ApiKey.ALTER_CONFIGS: "configs:alter_configs",
    ApiKey.DESCRIBE_LOG_DIRS: "log_dirs:describe_log_dirs",
    ApiKey.CREATE_PARTITIONS: "topics:create_partitions",
    ApiKey.DELETE_GROUPS: "group_admin:delete_groups",
    ApiKey.ELECT_LEADERS: "elections:elect_leaders",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "configs:incremental_alter_configs",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "elections:alter_partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "elections:list_partition_reassignments",
    ApiKey.OFFSET_DELETE: "group_offsets:offset_delete",
    ApiKey.DESCRIBE_CLUSTER: "cluster:describe_cluster",
    ApiKey.DESCRIBE_PRODUCERS: "producers:describe_producers",
    ApiKey.DESCRIBE_TRANSACTIONS: "transaction_admin:describe_transactions",
    ApiKey.LIST_TRANSACTIONS: "transaction_admin:list_transactions",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "consumer_groups:consumer_group_heartbeat",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "consumer_groups:consumer_group_describe",
    ApiKey.LIST_CONFIG_RESOURCES: "configs:list_config_resources",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "topic_partitions:describe_topic_partitions",
}
"""Module and function in `handlers/`; Produce, Fetch and ApiVersions have entrances of their own."""

_EAGER: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    }
)
"""Come by the thousand, and nearly always need not wait: a task is made only when one does."""


@cache
def handler_of(api_key: ApiKey) -> Handler:
    """The function that serves an API."""
    # kio must come in through our messages, which keep its slow part out.
    import_module("ottla.protocol.messages")
    module, _, name = HANDLERS[api_key].partition(":")
    handler: Handler = getattr(import_module(f"ottla.broker.handlers.{module}"), name)
    return handler


def warm_up() -> None:
    """Imports what the first request of every client needs, before somebody waits for it."""
    handler_of(ApiKey.METADATA)
    from ottla.broker.handlers.versions import api_versions_response

    api_versions_response(ADVERTISED[ApiKey.API_VERSIONS].highest, 0)


class Dispatch:
    """Serves the requests of all connections, and counts them by API and version; those not served, together."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._admission = Admission()
        self.requests: dict[tuple[int, int], int] = {
            (api_key, version): 0
            for api_key, versions in SERVED.items()
            for version in range(versions.lowest, versions.highest + 1)
        }
        self.unknown_requests = 0

    def serve(self, request: Request, buffer: bytearray, slot: Slot, /) -> bool:
        """Completes the slot, now or later, unless it answers False: then the request must be offered again.

        Never raises but for a broken invariant.
        """
        try:
            if isinstance(request, ProduceRequest):
                produce(self._broker, request, buffer, slot)
            elif isinstance(request, FetchRequest):
                if request.replica_id >= 0:
                    slot.api_key = FOLLOWER_FETCH
                fetch(self._broker, request, slot)
            elif not self._serve_cold(request, buffer, slot):
                return False
        except Exception as error:
            self._on_failure(request, slot, error)
        key = (request.api_key, request.version)
        if key in self.requests:
            self.requests[key] += 1
        else:
            # A stranger may invent any number of APIs; they are counted together.
            self.unknown_requests += 1
        return True

    def _serve_cold(self, request: Request, buffer: bytearray, slot: Slot) -> bool:
        size = request.end - request.start
        if size > COLD_REQUEST_BYTES_MAX:
            slot.fail(f"a request of API {request.api_key} has {size} bytes, {COLD_REQUEST_BYTES_MAX} at most")
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
        """Whether it is answered, or will be."""
        if request.api_key == ApiKey.API_VERSIONS:
            from ottla.broker.handlers.versions import answer_api_versions

            with memoryview(buffer) as view, view[request.body_start : request.end] as body:
                slot.complete((answer_api_versions(request.version, request.correlation_id, body),))
            return True
        api_key = _API_KEYS.get((request.api_key, request.version))
        if api_key is None:
            slot.fail(f"API {request.api_key} version {request.version} is not served")
            return True
        from ottla.protocol.messages import read_request

        with memoryview(buffer) as view, view[request.body_start : request.end] as body:
            message = read_request(api_key, request.version, body)
        context = Context(version=request.version, client_id=request.client_id, peer=slot.connection.peer)
        answer = handler_of(api_key)(self._broker, context, message)
        if api_key in _EAGER:
            answer = begin(answer)
            is_answered = type(answer) is not Waiting
        else:
            is_answered = not inspect.isawaitable(answer)
        if not is_answered:
            task = asyncio.get_running_loop().create_task(self._await(request, slot, answer))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
            return False
        _complete(request, slot, answer)
        return True

    async def _await(self, request: Request, slot: Slot, answer: Awaitable[Any]) -> None:
        try:
            _complete(request, slot, await answer)
        except Exception as error:
            self._on_failure(request, slot, error)
        finally:
            self._admission.release(request.api_key, request.end - request.start)

    def _on_failure(self, request: Request, slot: Slot, error: Exception) -> None:
        from ottla.protocol.messages import BrokenMessageError

        if not isinstance(error, BrokenMessageError):
            _LOGGER.error(
                "API %d version %d from %s failed unexpectedly: %s",
                request.api_key,
                request.version,
                slot.connection.peer,
                error,
                exc_info=error,
            )
        slot.fail(f"API {request.api_key} version {request.version} cannot be answered: {error}")

    async def close(self) -> None:
        """Ends what is still being answered."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


_API_KEYS: Final[dict[tuple[int, int], ApiKey]] = {
    (api_key, version): api_key
    for api_key in HANDLERS
    for version in range(SERVED[api_key].lowest, SERVED[api_key].highest + 1)
}
"""The APIs that a handler serves, by their number and version."""


def _complete(request: Request, slot: Slot, answer: Any) -> None:
    from ottla.protocol.messages import frame_body, write_response

    write = frame_body if isinstance(answer, bytes) else write_response
    api_key = _API_KEYS[request.api_key, request.version]
    slot.complete((write(api_key, request.version, request.correlation_id, answer),))
