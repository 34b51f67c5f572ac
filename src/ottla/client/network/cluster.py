"""The cluster as a client reaches it: bootstrap, metadata, who leads what, routing, and trying again.

What is sent is the caller's; what an answer means is its caller's too: it raises a `RetriableError` inside `retry`, and
is called again with fresh metadata until its time is over. What any broker can answer is asked of another when one is
silent; while somebody waits for a silent broker, another is asked whether that one is still in the cluster. See
`connection_pool.py` for the connections and `admin_requests.py` for what is asked.
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
from ottla.model.errors import InvalidRequestError, RetriableError
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.transport.addresses import Address
from ottla.transport.client_connection import SILENCE_SECONDS, Connection

T = TypeVar("T")

CONNECT_TIMEOUT_MS: Final = 10_000
REQUEST_TIMEOUT_MS: Final = 30_000


class UnknownPartitionInTopicError(InvalidRequestError):
    """The topic exists, and has fewer partitions."""


class Cluster:
    """One client's view of, and way into, a cluster. An async context manager; nothing connects before it must."""

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
    ) -> None:
        self.bootstrap = tuple(bootstrap)
        self.client_id = client_id
        self.view = ClusterView()
        self.clock: Clock = clock or RealClock()
        self.random: Random = random or RealRandom()
        self.request_timeout_ms = request_timeout_ms
        self._backoff = backoff or Backoff()
        self._pool = ConnectionPool(
            network or RealNetwork(),
            client_id=client_id,
            connect_timeout_ms=connect_timeout_ms,
            on_silence=self._look_around,
        )
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection; whoever still waits for an answer gets an error."""
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        await self._pool.close()

    # Connections

    async def any_connection(self) -> Connection:
        """A connection to some broker: of the open ones that with the fewest requests in flight, else to a known one,
        else to one of the bootstrap list.

        Raises `CannotConnectError` that tells about each address.
        """
        return await self._of_any(self._pool.shared)

    async def broker_connection(self, broker_id: int) -> Connection:
        """The connection to a broker of the view. Raises `CannotConnectError`."""
        return await self._pool.shared(await self._address_of(broker_id))

    async def own_connection(self, broker_id: int) -> Connection:
        """A further connection to a broker, for one who wants it alone; closed with the cluster."""
        return await self._pool.own(await self._address_of(broker_id))

    async def _address_of(self, broker_id: int) -> Address:
        if broker_id not in self.view.brokers:
            await self.refresh([])
        known = self.view.brokers.get(broker_id)
        if known is None:
            raise CannotConnectError(f"broker {broker_id} is not in the cluster; it may be down")
        return known.address

    async def _of_any(self, ask: Callable[[Address], Coroutine[Any, Any, T]]) -> T:
        """What the first address gives that answers. Raises `CannotConnectError` if none can be reached."""
        addresses = self._pool.by_readiness([*(each.address for each in self.view.brokers.values()), *self.bootstrap])
        try:
            return await first_answer([partial(ask, address) for address in addresses], SILENCE_SECONDS)
        except NobodyAnswersError as error:
            others = [each for each in error.failures if not isinstance(each, CannotConnectError)]
            if others:
                # Somebody was reached: that it did not answer says more.
                raise others[-1] from None
            raise CannotConnectError(
                f"cannot reach any broker of {', '.join(map(str, self.bootstrap))} ({error}); "
                "is one running? `ottla serve` starts one"
            ) from None

    def _look_around(self) -> None:
        """Somebody is silent: another broker is asked who is still there."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        with suppress(RetriableError):
            await self.refresh([])

    # Metadata

    async def refresh(
        self, topics: Collection[str] | None = None, *, auto_create: bool = False, topic_ids: Collection[UUID] = ()
    ) -> ClusterView:
        """Asks for brokers and these topics, None for all, and answers the whole view. A missing topic is no error.

        Topics whose names are not known can be asked for by their ids as well.
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
        """A topic of the view, asked for if it is not known. Raises what the broker says about it."""
        if fresh or name not in self.view.topics:
            await self.refresh([name], auto_create=auto_create)
        found = self.view.topics.get(name)
        if found is None:
            code = self.view.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise answer_error(code, f"topic {name}")
        return found

    async def partition(self, partition: TopicPartition) -> PartitionView:
        """A partition of the view, asked for if it is not known or has no leader."""
        topic = await self.topic(partition.topic)
        if partition.partition >= len(topic.partitions) or topic.partitions[partition.partition].leader is None:
            topic = await self.topic(partition.topic, fresh=True)
        if not 0 <= partition.partition < len(topic.partitions):
            raise UnknownPartitionInTopicError(
                f"topic {topic.name} has no partition {partition.partition}; it has {len(topic.partitions)}, from 0 on"
            )
        return topic.partitions[partition.partition]

    async def leader_of(self, partition: TopicPartition) -> int:
        """The id of the broker that leads; raises a retriable error while nobody does."""
        found = await self.partition(partition)
        if found.leader is None:
            raise answer_error(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition}")
        return found.leader

    def forget_topic(self, name: str) -> None:
        """Makes the next question about a topic ask the brokers: somebody said that what we know is old."""
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
        """The answer of some broker. While one is silent others are asked, too, so it must be safe to do twice."""

        async def ask(address: Address) -> Any:
            return await self._ask(await self._pool.shared(address), api_key, message, timeout_ms)

        return await self._of_any(ask)

    async def to_broker(self, broker_id: int, api_key: ApiKey, message: Any, *, timeout_ms: int | None = None) -> Any:
        """The answer of this broker."""
        return await self._ask(await self.broker_connection(broker_id), api_key, message, timeout_ms)

    async def to_controller(self, api_key: ApiKey, message: Any, *, timeout_ms: int | None = None) -> Any:
        """The answer of the broker that the metadata names as controller, or of any, which forwards."""
        if self.view.controller is None:
            await self.refresh([])
        controller = self.view.controller
        connection = await (self.any_connection() if controller is None else self.broker_connection(controller))
        return await self._ask(connection, api_key, message, timeout_ms)

    async def to_leader(
        self, partition: TopicPartition, api_key: ApiKey, message: Any, *, timeout_ms: int | None = None
    ) -> Any:
        """The answer of the partition's leader."""
        return await self.to_broker(await self.leader_of(partition), api_key, message, timeout_ms=timeout_ms)

    async def _ask(self, connection: Connection, api_key: ApiKey, message: Any, timeout_ms: int | None) -> Any:
        return await connection.request(api_key, message, timeout_ms=timeout_ms or self.request_timeout_ms)

    # Trying again

    async def retry(
        self,
        operation: Callable[[], Awaitable[T]],
        *,
        timeout_ms: int | None = None,
        on_retry: Callable[[RetriableError], None] | None = None,
        give_up: Collection[ErrorCode] = (),
    ) -> T:
        """Calls the operation until it does not raise a `RetriableError`, or its time is over.

        Between tries it waits, longer each time, and forgets what the view says about controller and topics. Codes in
        `give_up` are raised at once; so is an address that nobody listens at before the first success, for then the
        address is wrong rather than the broker slow.
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
                wait = self._backoff.wait_ms(tries, self.random) / 1000
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
