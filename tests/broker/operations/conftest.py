"""What tests of operations share: one broker, and a client of it for each test."""

from collections.abc import AsyncIterator

import pytest

from ottla.client.network.cluster import Cluster
from ottla.client.producer.async_producer import AsyncProducer
from ottla.testing import InProcessBroker
from ottla.transport.addresses import parse_address


@pytest.fixture
async def cluster(ottla_shared_broker: InProcessBroker) -> AsyncIterator[Cluster]:
    async with Cluster([parse_address(ottla_shared_broker.bootstrap)]) as cluster:
        yield cluster


@pytest.fixture
async def producer(ottla_shared_broker: InProcessBroker) -> AsyncIterator[AsyncProducer]:
    async with AsyncProducer(bootstrap_servers=ottla_shared_broker.bootstrap) as producer:
        yield producer
