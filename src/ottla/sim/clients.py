"""Real clients on the simulated network: producers, consumers and admin clients, each in its own process."""

from collections.abc import Sequence
from typing import Final, Unpack

from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.options import ConsumerOptions
from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster import Cluster
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.core import ProducerCore
from ottla.client.producer.options import ProducerOptions, producer_config
from ottla.sim.loop import VirtualLoop
from ottla.sim.machine_clock import MachineClock
from ottla.sim.network import SimNetwork, Wire
from ottla.sim.random import SimRandom
from ottla.transport.addresses import Address

CONNECT_TIMEOUT_MS: Final = 3_000
REQUEST_TIMEOUT_MS: Final = 5_000


class ClientMachine:
    """The machine of a client; creates its clients."""

    def __init__(
        self, name: str, loop: VirtualLoop, wire: Wire, random: SimRandom, bootstrap: Sequence[tuple[str, int]]
    ) -> None:
        self.host: Final = name
        self.clock: Final = MachineClock(loop)
        self._wire = wire
        self._random = random
        self._bootstrap = [Address(*each) for each in bootstrap]

    def cluster(self) -> Cluster:
        """A connection to the cluster."""
        return Cluster(
            self._bootstrap,
            network=SimNetwork(self._wire, self.host),
            clock=self.clock,
            random=self._random.fork(),
            client_id=self.host,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            backoff=Backoff(first_ms=100, most_ms=1_000),
        )

    def producer(self, **options: Unpack[ProducerOptions]) -> AsyncProducer:
        """A producer."""
        options.setdefault("request_timeout_ms", REQUEST_TIMEOUT_MS)
        producer = AsyncProducer(**options)
        producer._core = ProducerCore(
            producer_config("AsyncProducer", **options), is_async=True, cluster=self.cluster()
        )
        return producer

    def consumer(self, *topics: str, **options: Unpack[ConsumerOptions]) -> AsyncConsumer:
        """A consumer; must be created in its process."""
        options.setdefault("request_timeout_ms", REQUEST_TIMEOUT_MS)
        consumer = AsyncConsumer(**options)
        consumer._made = ConsumerCore(consumer.config, cluster=self.cluster())
        if topics:
            consumer.subscribe(topics)
        return consumer

    def admin(self) -> AsyncAdmin:
        """An admin client."""
        admin = AsyncAdmin(request_timeout_ms=REQUEST_TIMEOUT_MS)
        admin._cluster = self.cluster()
        return admin
