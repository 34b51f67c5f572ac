"""Dead letters are read, sent back exactly once, left with a reason, and purged."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.network.cluster import Cluster
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.values import Header
from ottla.model.dead_letters import DeadLetter, DeadLetterHeaders, Origin, story_headers
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.operations.dead_letters.letters import LetterFilter, bounds_of, read_letters
from ottla.operations.dead_letters.purging import purge_points
from ottla.operations.dead_letters.redrive import Redrive, RedriveOutcome, RedriveRules
from ottla.operations.dead_letters.topics import (
    DeadLetterTopic,
    dead_letter_origins,
    dead_letter_topics,
    refuse_other_topic,
)
from ottla.operations.last_records import last_of_each
from ottla.protocol.fetch_frames import READ_COMMITTED
from ottla.testing import InProcessBroker

DEAD_MS = time.time_ns() // 1_000_000 - 60_000
NewProducer = Callable[[str], AsyncProducer]


def story(topic: str, reason: str, partition: int = 1) -> list[Header]:
    letter = DeadLetter(origin=Origin(topic=topic, partition=partition, offset=7), reason=reason, group="billing")
    return [("trace", b"t"), *story_headers(letter, DeadLetterHeaders.KIP1191)]


class Shop:
    """A topic with two partitions, and a dead-letter topic with six letters of it: every other one is odd."""

    def __init__(self, broker: InProcessBroker, cluster: Cluster, name: str) -> None:
        self.topic = broker.create_topic(name, 2)
        self.dead = broker.create_topic(f"dlq.{name}")
        self._cluster = cluster
        self._bootstrap = broker.bootstrap

    async def fill(self, producer: AsyncProducer) -> None:
        for number in range(6):
            headers = story(self.topic, "odd" if number % 2 else "even")
            await producer.send_and_wait(self.dead, b"%d" % number, b"k", headers, 0, DEAD_MS + number)

    def redrive(self, on_progress: Callable[[RedriveOutcome], None] = lambda _: None, **rules: Any) -> Redrive:
        given = RedriveRules(**{"topic": self.dead, "chosen": LetterFilter(), **rules})
        return Redrive(self._cluster, given, on_progress)

    def new_producer(self, transactional_id: str) -> AsyncProducer:
        return AsyncProducer(bootstrap_servers=self._bootstrap, transactional_id=transactional_id)

    async def run(self, **rules: Any) -> RedriveOutcome:
        return await self.redrive(**rules).run(self.new_producer)

    async def values(self, topic: str | None = None) -> list[tuple[int, bytes | None]]:
        """What was sent back: partition and value."""
        bounds = await bounds_of(self._cluster, topic or self.topic)
        found = await last_of_each(self._cluster, bounds, 100, isolation_level=READ_COMMITTED)
        return [(each.partition, record.value) for each, records in found.items() for record in records]


@pytest.fixture
async def shop(
    request: pytest.FixtureRequest, ottla_shared_broker: InProcessBroker, cluster: Cluster, producer: AsyncProducer
) -> Shop:
    shop = Shop(ottla_shared_broker, cluster, request.node.name.replace("_", "-"))
    await shop.fill(producer)
    return shop


def outcome(
    redriven: dict[str, int] | None = None, left: dict[str, int] | None = None, *, earlier: int = 0, scanned: int = 6
) -> RedriveOutcome:
    return RedriveOutcome(redriven=Counter(redriven or {}), left=Counter(left or {}), earlier=earlier, scanned=scanned)


async def test_letters_are_read_in_pieces(shop: Shop, cluster: Cluster) -> None:
    partition = TopicPartition(shop.dead, 0)
    assert {partition: (0, 6)} == await bounds_of(cluster, shop.dead)
    pieces = [each async for each in read_letters(cluster, {partition: (2, 5)})]
    letters = [letter for _, _, some in pieces for letter in some]
    assert (partition, 5) == pieces[-1][:2]
    assert [("0:2", "even"), ("0:3", "odd"), ("0:4", "even")] == [
        (str(each), each.story.reason if each.story else None) for each in letters
    ]


async def test_each_letter_is_sent_back_once(shop: Shop) -> None:
    """First those that a filter chooses; then the others, to the partition that each came from."""
    odd = LetterFilter(reason="odd")
    assert outcome({shop.topic: 3}) == await shop.redrive(chosen=odd).plan()
    assert outcome({shop.topic: 3}) == await shop.run(chosen=odd)
    assert outcome({shop.topic: 3}, earlier=3) == await shop.redrive().plan()
    assert outcome({shop.topic: 3}, scanned=6, earlier=3) == await shop.run()
    assert outcome(scanned=0) == await shop.run()
    assert [(1, b"%d" % number) for number in (1, 3, 5, 0, 2, 4)] == await shop.values()


async def test_a_redriven_letter_has_its_own_headers_key_and_time(shop: Shop, cluster: Cluster) -> None:
    await shop.run(ends={TopicPartition(shop.dead, 0): 1})
    (record,) = (await last_of_each(cluster, {TopicPartition(shop.topic, 1): (0, 1)}, 1, isolation_level=0)).popitem()[
        1
    ]
    assert (DEAD_MS, b"k", b"0", (("trace", b"t"), ("ottla.redrive.count", b"1"))) == (
        record.timestamp,
        record.key,
        record.value,
        tuple(record.headers),
    )


async def test_letters_up_to_the_ends_of_a_dry_run(shop: Shop) -> None:
    partition = TopicPartition(shop.dead, 0)
    redrive = shop.redrive(ends={partition: 2})
    assert outcome({shop.topic: 2}, scanned=2) == await redrive.plan()
    assert {partition: 2} == redrive.ends
    assert outcome({shop.topic: 2}, scanned=2) == await shop.run(ends={partition: 2})
    assert outcome(scanned=0) == await shop.run(ends={})
    assert outcome({shop.topic: 4}, scanned=4) == await shop.run(ends={partition: 99})


async def test_a_run_that_is_stopped_is_continued_by_the_next(shop: Shop) -> None:
    redrive = shop.redrive(lambda so_far: redrive.stop() if so_far.redriven.total() == 2 else None)
    assert outcome({shop.topic: 2}, scanned=2) == await redrive.run(shop.new_producer)
    assert outcome({shop.topic: 4}, scanned=4) == await shop.run()
    assert [(1, b"%d" % number) for number in range(6)] == await shop.values()


async def test_letters_are_left_with_a_reason(
    shop: Shop, producer: AsyncProducer, ottla_shared_broker: InProcessBroker
) -> None:
    offers = ottla_shared_broker.create_topic("operations-offers", configs={"ottla.ttl.ms": "1000"})
    await producer.send_and_wait(shop.dead, b"gone", None, story("operations-gone", "even"), 0, DEAD_MS)
    await producer.send_and_wait(shop.dead, b"expired", None, story(offers, "even"), 0, DEAD_MS)
    left = {
        "topic operations-gone does not exist": 1,
        f"it would expire in topic {offers} at once; pass --to TOPIC, or --force to send it with a new time": 1,
    }
    assert outcome({shop.topic: 6}, left, scanned=8) == await shop.run()
    # What was left is tried again. The topic has no partition 1, where the letter came from.
    gone = {"topic operations-gone does not exist": 1}
    assert outcome({offers: 1}, gone, scanned=2) == await shop.run(is_forced=True)
    assert [(0, b"expired")] == await shop.values(offers)
    assert outcome({shop.topic: 1}, earlier=1, scanned=2) == await shop.run(to=shop.topic)


async def test_a_letter_that_retention_would_delete_at_once_gets_a_new_timestamp(
    shop: Shop, cluster: Cluster, producer: AsyncProducer, ottla_shared_broker: InProcessBroker
) -> None:
    brief = ottla_shared_broker.create_topic("operations-brief", configs={"retention.ms": "30000"})
    now_ms = time.time_ns() // 1_000_000
    await producer.send_and_wait(shop.dead, b"old", None, story(brief, "old"), 0, DEAD_MS)
    await producer.send_and_wait(shop.dead, b"new", None, story(brief, "new"), 0, now_ms)
    assert outcome({brief: 2, shop.topic: 6}, scanned=8) == await shop.run()
    ends = await bounds_of(cluster, brief)
    ((old, new),) = (await last_of_each(cluster, ends, 2, isolation_level=READ_COMMITTED)).values()
    assert (b"old", b"new", now_ms) == (old.value, new.value, new.timestamp)
    assert old.timestamp >= now_ms
    count, moved = ("ottla.redrive.count", b"1"), ("ottla.redrive.timestamp", b"%d" % DEAD_MS)
    assert [("trace", b"t"), count, moved] == list(old.headers)
    assert [("trace", b"t"), count] == list(new.headers)


async def test_a_letter_that_its_topic_refuses_is_left_and_the_others_are_not(
    shop: Shop, producer: AsyncProducer, ottla_shared_broker: InProcessBroker
) -> None:
    small = ottla_shared_broker.create_topic("operations-small", configs={"max.message.bytes": "2000"})
    await producer.send_and_wait(shop.dead, b"x" * 3000, None, story(shop.topic, "large"), 0, DEAD_MS)
    result = await shop.run(to=small)
    assert (6, 1, 7) == (result.redriven[small], result.left.total(), result.scanned)
    assert [(0, b"%d" % number) for number in range(6)] == await shop.values(small)
    assert outcome({shop.topic: 1}, earlier=0, scanned=1) == await shop.run()


async def test_letters_that_may_be_deleted(shop: Shop, cluster: Cluster) -> None:
    partition = TopicPartition(shop.dead, 0)

    async def points(*, redriven: bool = False, until_ms: int | None = None) -> tuple[int, int]:
        return (await purge_points(cluster, shop.dead, redriven=redriven, until_ms=until_ms))[partition]

    assert (0, 0) == await points(redriven=True)
    await shop.run(ends={partition: 4})
    assert [(0, 4), (0, 2), (0, 6), (0, 6)] == [
        await points(redriven=True),
        await points(until_ms=DEAD_MS + 2),
        await points(until_ms=DEAD_MS + 99),
        await points(),
    ]


async def test_topics_with_dead_letters(shop: Shop, cluster: Cluster, ottla_shared_broker: InProcessBroker) -> None:
    graves = ottla_shared_broker.create_topic("operations-graves", 3)
    name = "errors.deadletterqueue.topic.name"
    owners = [ottla_shared_broker.create_topic(f"operations-owner-{each}", configs={name: graves}) for each in "ab"]
    origins = await dead_letter_origins(cluster)
    assert (tuple(owners), (shop.topic,)) == (origins[graves], origins[shop.dead])
    assert shop.topic not in origins
    listed = {each.name: each for each in await dead_letter_topics(cluster)}
    assert DeadLetterTopic(name=graves, partitions=3, records=0, origins=tuple(owners)) == listed[graves]
    assert DeadLetterTopic(name=shop.dead, partitions=1, records=6, origins=(shop.topic,)) == listed[shop.dead]
    await refuse_other_topic(cluster, graves)
    await refuse_other_topic(cluster, shop.dead)
    with pytest.raises(MisuseError) as refused:
        await refuse_other_topic(cluster, shop.topic)
    assert (
        f"{shop.topic} is not a dead-letter topic: its name does not begin with dlq., and no topic names it in"
        f" {name}; to delete its records, use ottla topics delete-records"
    ) == str(refused.value)
