"""A real broker in the test's own event loop, on a folder of its own, and its handlers called without the wire."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from kio.static.constants import EntityType

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.requests.dispatch import handler_of
from ottla.controller.decisions import NewTopic
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId, LeaderEpoch
from ottla.protocol.apis import SERVED, ApiKey
from ottla.records.batch import Batch
from ottla.replication.leader_state import LeaderState
from ottla.replication.partition import Partition
from ottla.sim.clock import START_MS
from tests.broker.contexts import context_of
from tests.wire.exchange import fill, message_class

SOON: Final = timedelta(seconds=20)
T = TypeVar("T")


@asynccontextmanager
async def running(folder: Path, **settings: str) -> AsyncIterator[Broker]:
    """A broker that serves; settings have underscores for Kafka's dots."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config = {"log.dirs": str(folder / "data"), "listeners": "PLAINTEXT://127.0.0.1:0", **given}
    async with Broker(BrokerConfig.parse(settings=config)) as broker:
        yield broker


async def with_broker(folder: Path, work: Callable[[Broker], Awaitable[T]], **settings: str) -> T:
    """Does some work with a broker that runs no longer than that, and returns its result."""
    async with running(folder, **settings) as broker:
        return await work(broker)


async def make_topic(broker: Broker, name: str, partitions: int = 1, **configs: str) -> None:
    """A topic that is served."""
    wish = NewTopic(
        name=name,
        partition_count=partitions,
        replication_factor=1,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )
    committed = await broker.parts.controller.create_topics([wish])
    assert [None] == [outcome.message for outcome in committed.outcomes]
    await broker.wait_revision(committed.revision)


def append(partition: Partition, *batches: Batch, committed: bool = True) -> None:
    """Batches in a partition's log; unless committed, beyond its high watermark."""
    outcomes = partition.log.append(list(batches), leader_epoch=partition.leader_epoch, now=START_MS)
    assert [] == [outcome for outcome in outcomes if isinstance(outcome, OttlaError)]
    if committed:
        partition.on_flushed(partition.end_offset)


def request_of(api_key: ApiKey, values: Mapping[str, Any]) -> Any:
    """A request as handlers get it, in the newest served version's class."""
    return fill(message_class(api_key, SERVED[api_key].highest, EntityType.request), values)


async def ask(broker: Broker, api_key: ApiKey, values: Mapping[str, Any], version: int | None = None) -> Any:
    """What the handler of an API answers to a request that came in this version, the newest unless told."""
    context = context_of(SERVED[api_key].highest if version is None else version)
    answer = handler_of(api_key)(broker.parts.services, context, request_of(api_key, values))
    return await answer if inspect.isawaitable(answer) else answer


def led_anew(partition: Partition, epoch: LeaderEpoch) -> None:
    """Makes a partition believe that this broker was elected anew."""
    old = partition.leader
    assert old is not None
    partition.become_leader(
        LeaderState(
            BrokerId(0),
            replicas=old.replicas,
            isr=old.isr,
            leader_epoch=epoch,
            epoch_start=partition.end_offset,
        )
    )
