"""Members of groups of all four types, for the tests of the console's pages about groups."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.values import ConfigResource
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.producer.blocking_producer import Producer
from ottla.client.share.blocking_share_consumer import ShareConsumer
from tests.wire.exchange import RawConnection
from tests.wire.test_streams_group_apis import join_streams_group
from tests.wire.world import make_world

Protocol = Literal["classic", "consumer"]
KINDS = ("classic", "consumer", "share", "streams")


@dataclass(frozen=True, slots=True)
class Members:
    """The ids of four groups with one member each. The streams group reads a topic of its own."""

    topic: str
    classic: str
    consumer: str
    share: str
    streams: str

    def of(self, kind: str) -> str:
        """The group of this kind."""
        found: str = getattr(self, kind)
        return found


def produce(bootstrap: str, topic: str, count: int, *, partitions: int = 1) -> None:
    """Writes records, evenly to all partitions."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for at in range(count):
            producer.send(topic, b"%d" % at, partition=at % partitions)


def commit(bootstrap: str, group_id: str, topic: str, *, protocol: Protocol = "classic", polls: int = 1) -> None:
    """Reads some records of a topic as a member of a group, commits them and leaves."""
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group_id,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        read = 0
        while read < polls:
            read += sum(map(len, consumer.poll(timeout_ms=500, max_records=polls - read).values()))
        consumer.commit()


@contextmanager
def members_of_all_kinds(bootstrap: str, topic: str, name: str) -> Iterator[Members]:
    """Four groups whose members stay until the block ends; `topic` exists and has records."""
    ids = {kind: f"{name}-{kind}" for kind in ("classic", "consumer", "share")}
    with ExitStack() as stack:
        protocols: tuple[Protocol, ...] = ("classic", "consumer")
        for protocol in protocols:
            consumer = stack.enter_context(
                Consumer(
                    topic,
                    bootstrap_servers=bootstrap,
                    group_id=ids[protocol],
                    group_protocol=protocol,
                    auto_offset_reset="earliest",
                )
            )
            while not consumer.poll(timeout_ms=500, max_records=2):
                pass
            consumer.commit()
        with Admin(bootstrap_servers=bootstrap) as admin:
            starts = {"share.auto.offset.reset": "earliest"}
            admin.alter_configs([ConfigResource(ResourceType.GROUP, ids["share"], starts)])
        share = stack.enter_context(ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=ids["share"]))
        while not share.poll(timeout_ms=500):
            pass
        connection = stack.enter_context(RawConnection(bootstrap))
        streams, _ = join_streams_group(connection, make_world(bootstrap))
        yield Members(topic, ids["classic"], ids["consumer"], ids["share"], streams)
