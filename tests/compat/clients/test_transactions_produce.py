"""Each client writes in transactions, and every client reads it: what is committed, or everything, always in order."""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.compat.clients.broker_under_test import TARGET
from tests.compat.clients.catalogue import NAMES, TRANSACTION_V2, having
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.foreign_client import EARLIEST, ForeignClient, ForeignProducer, Read, Sent
from tests.compat.clients.shapes import FIRST_TIMESTAMP, KEEP_ALL, expected_reading, small, stored_batches
from tests.compat.clients.transactional import isolated_consumer, read_isolated, transactional_producer

PARTITIONS = 2
MANY = 20
FETCH_WAIT_MS = 20_000
WOKEN_S = 10.0
WRITER, OTHER_WRITER = "confluent-kafka", "franz-go"

ORDERLY_READERS = [name for name in NAMES if name != "kafkajs" or TARGET == "ottla"]
"""Kafka tells aborted transactions in the order in which they ended, Ottla in that in which they began. Only kafkajs
minds: of what Kafka tells it, it delivers aborted records.
"""


@dataclass(slots=True)
class Story:
    """What was written to a topic, by whomever, and what became of it."""

    topic: str
    sent: list[Sent] = field(default_factory=list)
    acks: list[tuple[int, int]] = field(default_factory=list)
    is_committed: list[bool] = field(default_factory=list)

    def write(self, producer: ForeignProducer, partitions: str, *, committed: bool) -> None:
        """One record to each of these partitions, in this order."""
        first = len(self.sent)
        sent = [
            Sent(
                key=b"key-%d" % number,
                value=b"committed" if committed else b"aborted",
                timestamp=FIRST_TIMESTAMP + number,
                partition=int(partition),
            )
            for number, partition in enumerate(partitions, start=first)
        ]
        self.acks += producer.send(self.topic, sent)
        self.sent += sent
        self.is_committed += [committed] * len(sent)

    def everything(self) -> list[Read]:
        """What a reader sees that does not care."""
        return expected_reading(self.sent, self.acks)

    def committed(self) -> list[Read]:
        """What a reader of committed records sees."""
        kept = [at for at, committed in enumerate(self.is_committed) if committed]
        return expected_reading([self.sent[at] for at in kept], [self.acks[at] for at in kept])


StoriesOf = Callable[[str], list[Story]]


@pytest.fixture(scope="module")
def stories_of(client_of: ClientOf) -> StoriesOf:
    """Two topics that a client wrote to with two transactional producers and a plain one, all at the same time."""
    told: dict[str, list[Story]] = {}

    def tell(name: str) -> list[Story]:
        if name not in told:
            told[name] = [Story(f"transactions-of-{name}"), Story(f"more-transactions-of-{name}")]
            _write(client_of(name), *told[name])
        return told[name]

    return tell


def _write(client: ForeignClient, story: Story, other: Story) -> None:
    for each in (story, other):
        client.create_topic(each.topic, partitions=PARTITIONS, configs=KEEP_ALL)
    with (
        transactional_producer(client, f"{story.topic}-1") as first,
        transactional_producer(client, f"{story.topic}-2") as second,
        client.producer() as plain,
    ):
        story.write(plain, "01", committed=True)
        first.begin()
        story.write(first, "0001", committed=True)
        other.write(first, "01", committed=True)
        second.begin()
        story.write(second, "001", committed=False)
        story.write(plain, "0", committed=True)
        story.write(first, "01", committed=True)
        other.write(second, "1", committed=False)
        first.commit()
        story.write(second, "0", committed=False)
        first.begin()
        second.abort()
        # The one that began first ends last, the other way round.
        story.write(first, "0", committed=False)
        second.begin()
        story.write(second, "01", committed=True)
        second.commit()
        first.abort()
        for end in (first.commit, first.abort):
            first.begin()
            end()
        second.begin()
        story.write(second, "10", committed=True)
        other.write(second, "10", committed=True)
        second.commit()


@pytest.mark.parametrize("reader", NAMES)
@pytest.mark.parametrize("writer", NAMES)
def test_every_client_reads_the_transactions_of_every_client(
    stories_of: StoriesOf, client_of: ClientOf, writer: str, reader: str
) -> None:
    for story in stories_of(writer):
        for committed, expected in ((True, story.committed()), (False, story.everything())):
            found = read_isolated(
                client_of(reader), story.topic, len(expected), committed=committed, partitions=PARTITIONS
            )
            assert expected == found


@pytest.fixture(scope="module")
def shared_story(client_of: ClientOf) -> Story:
    """One partition with a transaction of every client at the same time; every other client aborts."""
    story = Story("transactions-of-all")
    client_of(WRITER).create_topic(story.topic, configs=KEEP_ALL)
    with contextlib.ExitStack() as opened:
        writers = [
            (opened.enter_context(transactional_producer(client_of(name), f"{story.topic}-{name}")), number % 2 == 0)
            for number, name in enumerate(NAMES)
        ]
        for producer, _ in writers:
            producer.begin()
        for _ in range(3):
            for producer, committed in writers:
                story.write(producer, "0", committed=committed)
        for producer, committed in reversed(writers):
            (producer.commit if committed else producer.abort)()
        last, _ = writers[0]
        last.begin()
        story.write(last, "0", committed=True)
        last.commit()
    return story


@pytest.mark.parametrize("client", ORDERLY_READERS, indirect=True)
def test_transactions_of_all_clients_at_once(shared_story: Story, client: ForeignClient) -> None:
    for committed, expected in ((True, shared_story.committed()), (False, shared_story.everything())):
        assert expected == read_isolated(client, shared_story.topic, len(expected), committed=committed)


def test_many_transactions_in_a_row(client: ForeignClient, topic: str, data: Path) -> None:
    """With the second version of transactions each has an epoch of its own, so a late record of one is refused."""
    client.create_topic(topic, configs=KEEP_ALL)
    story = Story(topic)
    with transactional_producer(client, topic) as producer:
        for number in range(MANY):
            committed = number % 3 != 1 or number == MANY - 1
            producer.begin()
            story.write(producer, "0", committed=committed)
            (producer.commit if committed else producer.abort)()
    assert story.committed() == read_isolated(client, topic, len(story.committed()), committed=True)
    batches = stored_batches(data, topic)
    assert [is_control for _ in range(MANY) for is_control in (False, True)] == [each.is_control for each in batches]
    epochs = {each.producer_epoch for each in batches if not each.is_control}
    assert (MANY if client.name in having(TRANSACTION_V2) else 1) == len(epochs)


def test_an_open_transaction_holds_readers_back(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    sent = small(3)
    with (
        transactional_producer(client, topic) as producer,
        client.producer() as plain,
        isolated_consumer(client, topic, {0: EARLIEST}, committed=True) as reader,
    ):
        acks = plain.send(topic, sent[:1])
        producer.begin()
        acks += producer.send(topic, sent[1:2])
        acks += plain.send(topic, sent[2:])
        expected = expected_reading(sent, acks)
        assert expected == read_isolated(client, topic, 3, committed=False)
        assert expected[:1] == reader.poll(1)
        assert [] == reader.poll(1, timeout_ms=300)
        producer.commit()
        assert expected[1:] == reader.poll(2)


def test_a_commit_wakes_a_reader_that_waits(client: ForeignClient, client_of: ClientOf, topic: str) -> None:
    """What was committed comes long before the reader would have asked again by itself."""
    writer = client_of(WRITER if client.name != WRITER else OTHER_WRITER)
    writer.create_topic(topic, configs=KEEP_ALL)
    sent = small(30)
    with (
        transactional_producer(writer, topic) as producer,
        isolated_consumer(client, topic, {0: EARLIEST}, committed=True, fetch_wait_ms=FETCH_WAIT_MS) as reader,
        ThreadPoolExecutor(1) as pool,
    ):
        producer.begin()
        expected = expected_reading(sent[:1], producer.send(topic, sent[:1]))
        producer.commit()
        assert expected == reader.poll(1)
        producer.begin()
        reading = pool.submit(reader.poll, len(sent) - 1)
        # The reader has its request out before all of these are acknowledged.
        acks = [ack for record in sent[1:] for ack in producer.send(topic, [record])]
        began = time.monotonic()
        producer.commit()
        assert expected_reading(sent[1:], acks) == reading.result()
        assert time.monotonic() - began < WOKEN_S
