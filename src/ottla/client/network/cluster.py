"""A cluster as seen by a client: bootstrap, metadata, leaders, routing of requests, and retries.

Callers build requests and interpret responses. An operation inside `retry` that raises a `RetriableError` is called
again with fresh metadata until its time is over. A request that any broker can answer goes to a second broker when the
first is silent. While a request waits for a silent broker, another broker is asked whether that one is still in the
cluster. `connection_pool.py` has the connections.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import UUID

from ottla.client.errors import (
    CannotConnectError,
    ConnectionLostError,
    DeadlineError,
    RetriableAnswerError,
    answer_error,
)
from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster_view import ClusterView, PartitionView, TopicView
from ottla.client.network.connection_pool import ConnectionPool
from ottla.client.network.first_answer import NobodyAnswersError, first_answer
from ottla.env.ports import Clock, Network, Random
from ottla.env.real_clock import RealClock
from ottla.env.real_network import RealNetwork
from ottla.env.real_random import RealRandom
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import DeniedError, InvalidRequestError, RetriableError
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.transport.addresses import Address
from ottla.transport.client_connection import SILENCE_SECONDS, Connection
from ottla.transport.client_security import ClientSecurity

T = TypeVar("T")

CONNECT_TIMEOUT_MS: Final = 10_000
REQUEST_TIMEOUT_MS: Final = 30_000


class UnknownPartitionInTopicError(InvalidRequestError):
    """The topic exists but has no such partition."""


class Cluster:
    """The connections and metadata of one client. An async context manager; it connects at the first request."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        client_id: str = "ottla",
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        backoff: Backoff | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        self.bootstrap = tuple(bootstrap)
        self.client_id = client_id
        self.view = ClusterView()
        self.clock: Clock = clock or RealClock()
        self.random: Random = random or RealRandom()
        self.request_timeout_ms = request_timeout_ms
        self.backoff = backoff or Backoff()
        self._pool = ConnectionPool(
            network or RealNetwork(),
            client_id=client_id,
            connect_timeout_ms=connect_timeout_ms,
            on_silence=self._on_silence,
            security=security,
        )
        self._checking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections; requests in flight fail."""
        checking, self._checking = self._checking, None
        if checking is not None:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)
        await self._pool.close()

    # Connections

    async def any_connection(self) -> Connection:
        """A connection to some broker: the open one with the fewest requests in flight, else a new one to a known
        broker or a bootstrap address.

        Raises `CannotConnectError` with the problem of each address.
        """
        return await self._of_any(self._pool.shared)

    async def broker_connection(self, broker_id: int) -> Connection:
        """The connection to a broker, shared by all requests. Raises `CannotConnectError`."""
        return await self._pool.shared(await self._address_of(broker_id))

    async def own_connection(self, broker_id: int) -> Connection:
        """A further connection to a broker, for exclusive use; closed with the cluster. Raises `CannotConnectError`."""
        return await self._pool.own(await self._address_of(broker_id))

    async def _address_of(self, broker_id: int) -> Address:
        if broker_id not in self.view.brokers:
            await self.refresh([])
        known = self.view.brokers.get(broker_id)
        if known is None:
            raise CannotConnectError(f"broker {broker_id} is not in the cluster; it may be down")
        return known.address

    async def _of_any(self, ask: Callable[[Address], Coroutine[Any, Any, T]]) -> T:
        """The result of the first address that responds. Raises `CannotConnectError` if none can be reached."""
        addresses = self._pool.by_readiness([*(each.address for each in self.view.brokers.values()), *self.bootstrap])
        try:
            return await first_answer([partial(ask, address) for address in addresses], SILENCE_SECONDS)
        except NobodyAnswersError as error:
            others = [each for each in error.failures if not isinstance(each, CannotConnectError)]
            if others:
                # A broker was reached: its failure says more than failed connections.
                raise others[-1] from None
            raise CannotConnectError(
                f"cannot reach any broker of {', '.join(map(str, self.bootstrap))} ({error}); "
                "is one running? `ottla serve` starts one"
            ) from None

    def _on_silence(self) -> None:
        """A broker is silent: fetches from another one which brokers are in the cluster."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check_members())

    async def _check_members(self) -> None:
        with suppress(RetriableError, DeniedError):
            await self.refresh([])

    # Metadata

    async def refresh(
        self, topics: Collection[str] | None = None, *, auto_create: bool = False, topic_ids: Collection[UUID] = ()
    ) -> ClusterView:
        """Fetches the metadata of brokers and of these topics, None for all, and returns the whole view.

        A missing topic is not an error; `ClusterView.errors` has it. Topics can be given by id too.
        """
        from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
        from kio.schema.types import TopicName

        asked = None
        if topics is not None:
            asked = tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in topics)
            known = {topic.id for topic in self.view.topics.values() if topic.name in topics}
            asked += tuple(MetadataRequestTopic(topic_id=each, name=None) for each in topic_ids if each not in known)
        response = await self.to_any(
            ApiKey.METADATA,
            MetadataRequest(
                topics=asked, allow_auto_topic_creation=auto_create, include_topic_authorized_operations=False
            ),
        )
        self.view = self.view.merge(response, whole=topics is None)
        self._pool.on_members([each.address for each in self.view.brokers.values()])
        return self.view

    async def topic(self, name: str, *, fresh: bool = False, auto_create: bool = False) -> TopicView:
        """A topic of the view, fetched if it is unknown. Raises `AnswerError` if it does not exist."""
        if fresh or name not in self.view.topics:
            await self.refresh([name], auto_create=auto_create)
        found = self.view.topics.get(name)
        if found is None:
            code = self.view.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise answer_error(code, f"topic {name}")
        return found

    async def partition(self, partition: TopicPartition) -> PartitionView:
        """A partition of the view, fetched if it is unknown or has no leader. Raises `UnknownPartitionInTopicError`."""
        topic = await self.topic(partition.topic)
        if partition.partition >= len(topic.partitions) or topic.partitions[partition.partition].leader is None:
            topic = await self.topic(partition.topic, fresh=True)
        if not 0 <= partition.partition < len(topic.partitions):
            raise UnknownPartitionInTopicError(
                f"topic {topic.name} has no partition {partition.partition}; its partitions are 0 to"
                f" {len(topic.partitions) - 1}"
            )
        return topic.partitions[partition.partition]

    async def leader_of(self, partition: TopicPartition) -> int:
        """The id of the leader. Raises a retriable error while the partition has none."""
        found = await self.partition(partition)
        if found.leader is None:
            raise answer_error(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition}")
        return found.leader

    def forget_topic(self, name: str) -> None:
        """Makes the next use of a topic fetch its metadata again."""
        topics = {known: topic for known, topic in self.view.topics.items() if known != name}
        self.view = ClusterView(
            cluster_id=self.view.cluster_id,
            controller=self.view.controller,
            brokers=self.view.brokers,
            topics=topics,
            errors=self.view.errors,
        )

    # Routing

    async def to_any(self, api_key: ApiKey, message: Any, *, timeout_ms: int | None = None) -> Any:
        """The response of some broker. The request may be sent to several brokers, so it must be safe to repeat."""

        async def ask(address: Address) -> Any:
            return await self._ask(await self._pool.shared(address), api_key, message, timeout_ms)

        return await self._of_any(ask)

    async def to_broker(self, broker_id: int, api_key: ApiKey, message: Any, *, timeout_ms: int | None = None) -> Any:
        """The response of this broker."""
        return await self._ask(await self.broker_connection(broker_id), api_key, message, timeout_ms)

    async def to_controller(self, api_key: ApiKey, message: Any, *, timeout_ms: int | None = None) -> Any:
        """The response of the controller, or of any broker, which forwards, if the controller is unknown."""
        if self.view.controller is None:
            await self.refresh([])
        controller = self.view.controller
        connection = await (self.any_connection() if controller is None else self.broker_connection(controller))
        return await self._ask(connection, api_key, message, timeout_ms)

    async def to_leader(
        self, partition: TopicPartition, api_key: ApiKey, message: Any, *, timeout_ms: int | None = None
    ) -> Any:
        """The response of the leader of a partition."""
        return await self.to_broker(await self.leader_of(partition), api_key, message, timeout_ms=timeout_ms)

    async def _ask(self, connection: Connection, api_key: ApiKey, message: Any, timeout_ms: int | None) -> Any:
        return await connection.request(api_key, message, timeout_ms=timeout_ms or self.request_timeout_ms)

    # Retries

    async def retry(
        self,
        operation: Callable[[], Awaitable[T]],
        *,
        timeout_ms: int | None = None,
        on_retry: Callable[[RetriableError], None] | None = None,
        give_up: Collection[ErrorCode] = (),
    ) -> T:
        """Calls the operation until it does not raise a `RetriableError`, for up to `timeout_ms`.

        Between tries it waits, with backoff, and forgets controller and topics. Errors in `give_up` are raised at once.
        So is `CannotConnectError` before the first connection: the address is probably wrong then.
        """
        deadline = self.clock.monotonic() + (timeout_ms or self.request_timeout_ms) / 1000
        tries = 0
        while True:
            try:
                return await operation()
            except RetriableError as error:
                tries += 1
                if isinstance(error, CannotConnectError) and not self.view.brokers:
                    raise
                if isinstance(error, RetriableAnswerError) and error.error_code in give_up:
                    raise
                wait = self.backoff.wait_ms(tries, self.random) / 1000
                if self.clock.monotonic() + wait > deadline:
                    if tries == 1 or isinstance(error, RetriableAnswerError):
                        raise
                    raise self._too_late(error, tries, timeout_ms or self.request_timeout_ms) from error
                if on_retry is not None:
                    on_retry(error)
                self.view = ClusterView(cluster_id=self.view.cluster_id, brokers=self.view.brokers)
                await self.clock.sleep(wait)

    @staticmethod
    def _too_late(error: RetriableError, tries: int, timeout_ms: int) -> RetriableError:
        words = f"{error} (tried {tries} times in {timeout_ms} ms)"
        kind = type(error) if isinstance(error, CannotConnectError | ConnectionLostError) else DeadlineError
        return kind(words)
