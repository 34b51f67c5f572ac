"""Both producers against a real broker: what is sent is there, once, in order, and the program hears of it."""

import asyncio
import os
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from ottla.client.errors import AnswerError
from ottla.client.options import OptionError
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.errors import (
    ProducerClosedError,
    ProducerFencedError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortedError,
)
from ottla.client.producer.interceptors import ProducerInterceptor, ProducerRecord
from ottla.client.producer.partitioner import RoundRobinPartitioner, partition_for_key
from ottla.client.values import OffsetAndMetadata, RecordMetadata
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.transport.addresses import Address
from tests.broker.client.producer_log import make_topic, read_topic, values
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture
def producer(address: Address) -> Iterator[Producer]:
    with Producer(bootstrap_servers=str(address)) as producer:
        yield producer


def test_a_record_comes_back_as_it_was_sent(address: Address, producer: Producer) -> None:
    sent = producer.send("whole", b"value", key=b"key", headers=[("h", b"1"), ("n", None)], timestamp_ms=1234)
    metadata = sent.get(PATIENCE_SECONDS)
    partition = TopicPartition("whole", 0)
    assert RecordMetadata("whole", 0, partition, 0, 1234, 3, 5) == metadata
    assert sent.succeeded()
    assert sent.is_done
    assert not sent.failed()
    (record,) = read_topic(address, "whole")[0]
    assert (b"key", b"value", 1234) == (record.key, record.value, record.timestamp)
    assert [("h", b"1"), ("n", None)] == list(record.headers)


def test_nulls_are_sent_as_such(address: Address, producer: Producer) -> None:
    assert (-1, -1) == producer.send("nulls").get(PATIENCE_SECONDS)[-2:]
    (record,) = read_topic(address, "nulls")[0]
    assert (None, None) == (record.key, record.value)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_records_stay_in_order(address: Address, codec: Any) -> None:
    topic = f"many-{codec}"
    make_topic(address, topic, 3)
    with Producer(bootstrap_servers=str(address), compression_type=codec, batch_size=2000) as producer:
        deliveries = [producer.send(topic, b"%d" % number, key=b"%d" % (number % 10)) for number in range(3000)]
        producer.flush(PATIENCE_SECONDS)
        metadata = [delivery.get(0) for delivery in deliveries]
    found = read_topic(address, topic, 3)
    for number, written in enumerate(metadata):
        assert partition_for_key(b"%d" % (number % 10), 3) == written.partition
        assert b"%d" % number == found[written.partition][written.offset].value
    assert 3000 == sum(map(len, found.values()))


def test_without_keys_partitions_fill_one_after_the_other(address: Address) -> None:
    make_topic(address, "sticky", 4)
    with Producer(bootstrap_servers=str(address), batch_size=1000, linger_ms=1000) as producer:
        partitions = [producer.send("sticky", b"x" * 50) for _ in range(400)]
        producer.flush(PATIENCE_SECONDS)
        seen = [delivery.get(0).partition for delivery in partitions]
    changes = sum(before != after for before, after in pairwise(seen))
    assert {0, 1, 2, 3} == set(seen)
    assert 20 < changes < 60
    assert 400 == producer.metrics()["producer-metrics"]["record-send-total"]


def test_a_partition_by_number_and_by_a_partitioner(address: Address) -> None:
    make_topic(address, "chosen", 3)
    with Producer(bootstrap_servers=str(address), partitioner=RoundRobinPartitioner()) as producer:
        assert [2, 2, 2] == [
            producer.send("chosen", b"x", partition=2).get(PATIENCE_SECONDS).partition for _ in range(3)
        ]
        assert [0, 1, 2, 0] == [
            producer.send("chosen", b"x", key=b"k").get(PATIENCE_SECONDS).partition for _ in range(4)
        ]
        assert {0, 1, 2} == producer.partitions_for("chosen")
        with pytest.raises(Exception, match="topic chosen has no partition 3; its partitions are 0 to 2"):
            producer.send("chosen", b"x", partition=3)


def test_a_partitioner_that_chooses_nonsense(address: Address) -> None:
    with (
        Producer(bootstrap_servers=str(address), partitioner=lambda key, every, available: 7) as producer,
        pytest.raises(MisuseError, match="the partitioner returned 7 for topic chosen-badly with partitions 0 to 0"),
    ):
        producer.send("chosen-badly", b"x")


def test_serializers(address: Address) -> None:
    class Named:
        def serialize(self, topic: str, value: Any) -> bytes:
            return f"{topic}:{value}".encode()

    with Producer(bootstrap_servers=str(address), key_serializer=str.encode, value_serializer=Named()) as producer:
        producer.send("made", 5, key="k").get(PATIENCE_SECONDS)
    (record,) = read_topic(address, "made")[0]
    assert (b"k", b"made:5") == (record.key, record.value)


def test_what_cannot_be_serialized_is_not_sent(address: Address, producer: Producer) -> None:
    with pytest.raises(SerializationError, match="value must be bytes or None, not str; encode it, or set value_"):
        producer.send("unmade", "text")
    with pytest.raises(SerializationError, match="key must be bytes or None, not int"):
        producer.send("unmade", b"", key=1)
    with (
        Producer(bootstrap_servers=str(address), value_serializer=lambda value: 1 // value) as failing,
        pytest.raises(SerializationError, match=r"the value serializer <lambda> failed .* on int 0: ZeroDivisionError"),
    ):
        failing.send("unmade", 0)
    with (
        Producer(bootstrap_servers=str(address), value_serializer=str) as failing,  # type: ignore[arg-type]
        pytest.raises(SerializationError, match="serializer str must return bytes or None, not str; given int 0"),
    ):
        failing.send("unmade", 0)
    assert [] == read_topic(address, "unmade")[0]


def test_a_record_too_large_is_refused_at_once(producer: Producer) -> None:
    with pytest.raises(RecordTooLargeError, match="exceeds max_request_size=1048576; send smaller records"):
        producer.send("large", b"x" * 1_048_577)


def test_a_record_too_large_for_the_topic_fails_alone(address: Address, producer: Producer) -> None:
    make_topic(address, "small-batches", 1, max_message_bytes="300")
    large = producer.send("small-batches", b"x" * 1000)
    good = producer.send("small-batches", b"y")
    with pytest.raises(AnswerError) as refusal:
        large.get(PATIENCE_SECONDS)
    assert ErrorCode.MESSAGE_TOO_LARGE is refusal.value.error_code
    assert good.get(PATIENCE_SECONDS).offset >= 0
    assert [b"y"] == values(read_topic(address, "small-batches")[0])


def test_a_batch_too_large_for_the_topic_is_split(address: Address) -> None:
    make_topic(address, "split", 1, max_message_bytes="400")
    with Producer(bootstrap_servers=str(address), linger_ms=500) as producer:
        heard: list[int] = []
        deliveries = [producer.send("split", b"%03d" % number * 10) for number in range(100)]
        for delivery in deliveries:
            delivery.add_callback(lambda metadata: heard.append(metadata.offset))
        producer.flush(PATIENCE_SECONDS)
        assert list(range(100)) == [delivery.get(0).offset for delivery in deliveries]
        assert list(range(100)) == sorted(heard)
        assert producer.metrics()["producer-metrics"]["batch-split-total"] > 0
    assert [b"%03d" % number * 10 for number in range(100)] == values(read_topic(address, "split")[0])


def test_callbacks_hear_of_success_and_failure_and_may_fail_themselves(address: Address, producer: Producer) -> None:
    make_topic(address, "heard", 1, max_message_bytes="300")
    heard: list[Any] = []

    def explode(_: object) -> None:
        raise RuntimeError("a callback's own fault")

    good = producer.send("heard", b"x").add_callback(explode).add_callback(heard.append)
    good.add_errback(lambda error: heard.append("never"))
    good.get(PATIENCE_SECONDS)
    bad = producer.send("heard", b"x" * 400).add_callback(lambda metadata: heard.append("never"))
    bad.add_errback(lambda word, error: heard.append((word, type(error))), "failed")
    producer.flush(PATIENCE_SECONDS)
    assert [good.value, ("failed", AnswerError)] == heard
    assert isinstance(bad.exception(), AnswerError)
    # One that comes late is called at once.
    good.add_both(heard.append)
    assert good.value == heard[-1]


def test_waiting_within_a_callback_is_an_error_not_a_deadlock(address: Address) -> None:
    told: list[BaseException] = []

    def wait(_: object) -> None:
        try:
            patient.send("waiting", b"y").get(5)
        except MisuseError as error:
            told.append(error)

    # Nothing is sent before the flush: a callback that comes after the delivery is called where it is added.
    with Producer(bootstrap_servers=str(address), linger_ms=60_000) as patient:
        patient.send("waiting", b"x").add_callback(wait)
        patient.flush(PATIENCE_SECONDS)
    assert ["a delivery cannot be waited for in a callback of its producer; use add_callback"] == list(map(str, told))


class Counting(ProducerInterceptor):
    """Marks every record, and counts what it hears."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark
        self.heard: list[tuple[int | None, Exception | None]] = []
        self.closed = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return ProducerRecord(topic=record.topic, value=record.value + self.mark, key=record.key)

    def on_acknowledgement(self, metadata: RecordMetadata | None, exception: Exception | None) -> None:
        self.heard.append((None if metadata is None else metadata.offset, exception))

    def close(self) -> None:
        self.closed += 1


class Broken(ProducerInterceptor):
    """Fails at everything."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata | None, exception: Exception | None) -> None:
        raise RuntimeError("on_acknowledgement")

    def close(self) -> None:
        raise RuntimeError("close")


def test_interceptors_see_every_record_and_break_none(address: Address) -> None:
    first, last = Counting(b"1"), Counting(b"2")
    with Producer(bootstrap_servers=str(address), interceptors=[first, Broken(), last]) as producer:
        producer.send("watched", b"x").get(PATIENCE_SECONDS)
        with pytest.raises(SerializationError):
            producer.send("watched", b"y", key=3)
    assert [b"x12"] == values(read_topic(address, "watched")[0])
    assert [0, None] == [offset for offset, _ in first.heard]
    assert isinstance(last.heard[1][1], SerializationError)
    assert (1, 1) == (first.closed, last.closed)


class OnlySending:
    """An interceptor that derives from nothing, and has one method."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return ProducerRecord(topic=record.topic, value=record.value + b"!")


class OnlyAcknowledging:
    """The same with the other method."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def on_acknowledgement(self, metadata: RecordMetadata, exception: Exception | None) -> None:
        self.offsets.append(metadata.offset)


def test_an_interceptor_may_be_any_object_with_one_of_the_methods(
    address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    listening = OnlyAcknowledging()
    interceptors: Any = [OnlySending(), listening]
    with Producer(bootstrap_servers=str(address), interceptors=interceptors) as producer:
        producer.send("half-watched", b"x").get(PATIENCE_SECONDS)
    assert ([b"x!"], [0], []) == (values(read_topic(address, "half-watched")[0]), listening.offsets, caplog.messages)


def test_an_object_without_the_methods_of_an_interceptor_is_refused() -> None:
    wrong: Any = [OnlySending(), object]
    with pytest.raises(OptionError, match=r"interceptors\[1\] must have on_send or on_acknowledgement, not type"):
        Producer(bootstrap_servers="127.0.0.1:1", interceptors=wrong)


@pytest.mark.parametrize("acks", [0, 1, -1, "all"])
def test_all_kinds_of_acknowledgement(address: Address, acks: Any) -> None:
    topic = f"acks-{acks}"
    make_topic(address, topic)
    with Producer(bootstrap_servers=str(address), acks=acks) as producer:
        offsets = [producer.send(topic, b"%d" % number) for number in range(100)]
        producer.flush(PATIENCE_SECONDS)
        assert [-1 if acks == 0 else number for number in range(100)] == [each.get(0).offset for each in offsets]
    assert [b"%d" % number for number in range(100)] == values(read_topic(address, topic)[0])


def test_many_threads_share_one_producer(address: Address, producer: Producer) -> None:
    make_topic(address, "many-threads", 2)

    def send(name: int) -> None:
        for number in range(500):
            producer.send("many-threads", b"%d" % number, key=b"%d" % name)

    threads = [threading.Thread(target=send, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush(PATIENCE_SECONDS)
    found: dict[bytes, list[bytes | None]] = {}
    for records in read_topic(address, "many-threads", 2).values():
        for record in records:
            found.setdefault(bytes(record.key or b""), []).append(record.value)
    assert {b"%d" % name: [b"%d" % number for number in range(500)] for name in range(6)} == found


def test_a_closed_producer_says_so_and_leaves_nothing(address: Address) -> None:
    before = set(threading.enumerate())
    producer = Producer(bootstrap_servers=str(address))
    delivery = producer.send("closed", b"x")
    producer.close()
    producer.close()
    assert 0 == delivery.get(0).offset
    with pytest.raises(ProducerClosedError, match="the producer is closed; create a new one"):
        producer.send("closed", b"x")
    with pytest.raises(ProducerClosedError):
        producer.send("closed-before-known", b"x")
    assert set() == set(threading.enumerate()) - before


def test_a_full_buffer_holds_up_the_sender_not_the_records(address: Address) -> None:
    with Producer(bootstrap_servers=str(address), buffer_memory=3000, batch_size=1000, linger_ms=100) as producer:
        for number in range(1000):
            producer.send("narrow", b"%d" % number * 10)
        producer.flush(PATIENCE_SECONDS)
        assert producer.metrics()["producer-metrics"]["bufferpool-wait-total"] > 0
    assert [b"%d" % number * 10 for number in range(1000)] == values(read_topic(address, "narrow")[0])


# asyncio


async def test_deliveries_can_be_awaited(address: Address) -> None:
    before = asyncio.all_tasks()
    async with AsyncProducer(bootstrap_servers=str(address), buffer_memory=20_000) as producer:
        deliveries = [await producer.send("awaited", b"%d" % number) for number in range(2000)]
        assert list(range(2000)) == [(await delivery).offset for delivery in deliveries]
        # Again, when it is known already.
        assert 7 == (await deliveries[7]).offset
        assert 2000 == (await producer.send_and_wait("awaited", b"x")).offset
        late = await producer.send("awaited", b"y")
        with pytest.raises(MisuseError, match="await the delivery"):
            late.get()
        assert 2001 == (await late).offset == late.get().offset
        assert {0} == await producer.partitions_for("awaited")
    with pytest.raises(ProducerClosedError):
        await producer.send("awaited", b"x")
    assert before == asyncio.all_tasks()
    read = await asyncio.to_thread(read_topic, address, "awaited")
    assert [b"%d" % number for number in range(2000)] == values(read[0])[:2000]


async def test_a_failed_delivery_raises_when_awaited(address: Address) -> None:
    await asyncio.to_thread(make_topic, address, "await-small", 1, max_message_bytes="300")
    async with AsyncProducer(bootstrap_servers=str(address)) as producer:
        with pytest.raises(AnswerError, match="MESSAGE_TOO_LARGE"):
            await producer.send_and_wait("await-small", b"x" * 400)
        with pytest.raises(AnswerError, match="MESSAGE_TOO_LARGE"):
            await producer.send_and_wait("await-small", b"x" * 400)


# Transactions


def transactional(address: Address, name: str, **more: Any) -> Producer:
    producer = Producer(bootstrap_servers=str(address), transactional_id=name, **more)
    producer.init_transactions()
    return producer


def test_committed_is_seen_and_aborted_is_not(address: Address) -> None:
    make_topic(address, "decided", 2)
    with transactional(address, "decider") as producer:
        for number in range(6):
            producer.begin_transaction()
            for index in (0, 1):
                producer.send("decided", b"%d" % number, partition=index)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        producer.begin_transaction()
        producer.commit_transaction()
        producer.begin_transaction()
        producer.abort_transaction()
    found = read_topic(address, "decided", 2, committed=True)
    assert {0: [b"0", b"2", b"4"], 1: [b"0", b"2", b"4"]} == {index: values(each) for index, each in found.items()}


def test_what_was_not_sent_yet_is_dropped_by_an_abort(address: Address, caplog: pytest.LogCaptureFixture) -> None:
    """The caller wanted it: that is no reason for a warning."""
    with transactional(address, "dropper", linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        producer.begin_transaction()
        delivery = producer.send("dropped", b"x")
        producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            delivery.get(0)
    assert [] == read_topic(address, "dropped")[0]
    assert [] == [each for each in caplog.messages if "aborted" in each]


def test_closing_aborts_what_is_open(address: Address) -> None:
    producer = transactional(address, "closer")
    producer.begin_transaction()
    producer.send("left-open", b"x").get(PATIENCE_SECONDS)
    producer.close()
    assert [] == read_topic(address, "left-open", committed=True)[0]
    # And nothing hangs: the next one of this name begins at once.
    with transactional(address, "closer") as producer:
        producer.begin_transaction()
        producer.send("left-open", b"y")
        producer.commit_transaction()
    assert [b"y"] == values(read_topic(address, "left-open", committed=True)[0])


def test_a_zombie_is_fenced_and_told_so(address: Address) -> None:
    zombie = transactional(address, "taken")
    zombie.begin_transaction()
    zombie.send("fenced", b"old").get(PATIENCE_SECONDS)
    with transactional(address, "taken") as heir:
        heir.begin_transaction()
        heir.send("fenced", b"new")
        heir.commit_transaction()
        by_whom = (
            r"\(now owned by producer id \d+, epoch \d, .*; this producer has id \d+, epoch 0\); close this producer"
        )
        with pytest.raises(ProducerFencedError, match=f"a newer producer uses the transactional id 'taken'.*{by_whom}"):
            zombie.commit_transaction()
        with pytest.raises(ProducerFencedError):
            zombie.begin_transaction()
        with pytest.raises(ProducerFencedError):
            zombie.abort_transaction()
    zombie.close()
    assert [b"new"] == values(read_topic(address, "fenced", committed=True)[0])


def test_a_zombie_that_sends_is_told_by_whom(address: Address) -> None:
    """Also where the partition's leader finds out, and not the coordinator."""
    zombie = transactional(address, "taken-while-sending")
    zombie.begin_transaction()
    zombie.send("fenced-sending", b"old").get(PATIENCE_SECONDS)
    with transactional(address, "taken-while-sending") as heir:
        heir.begin_transaction()
        heir.send("fenced-sending", b"new").get(PATIENCE_SECONDS)
        late = zombie.send("fenced-sending", b"late")
        by_whom = (
            r"\(now owned by producer id \d+, epoch [1-9], Ongoing since 20\d\d-.*; this producer has id \d+, epoch 0\)"
        )
        with pytest.raises(
            ProducerFencedError, match=f"another producer has taken over.*{by_whom}; close this producer"
        ):
            late.get(PATIENCE_SECONDS)
        heir.commit_transaction()
    zombie.close()
    assert [b"new"] == values(read_topic(address, "fenced-sending", committed=True)[0])


def test_a_forked_child_is_refused_at_once(address: Address) -> None:
    with Producer(bootstrap_servers=str(address)) as producer:
        producer.send("forked", b"before").get(PATIENCE_SECONDS)
        with producer._core.lock:
            # As if another thread were just sending: nobody will ever let go of the child's copy.
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    producer.send("forked", b"in the child")
                except MisuseError as error:
                    told = f"was created by process {os.getppid()}", "create a producer in each process, after the fork"
                    status = 0 if all(words in str(error) for words in told) else 2
                    producer.close()
                finally:
                    os._exit(status)
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert 1 == producer.send("forked", b"after").get(PATIENCE_SECONDS).offset
    assert [b"before", b"after"] == values(read_topic(address, "forked")[0])


def test_offsets_are_part_of_it(address: Address) -> None:
    from ottla.client.admin.group_offsets import committed_offsets
    from ottla.client.network.cluster import Cluster

    partition = TopicPartition("offsets-in", 0)

    def committed() -> list[int]:
        async def ask() -> list[int]:
            async with Cluster([address]) as cluster:
                found = await committed_offsets(cluster, "offsets-group")
                return [each.offset for each in found.values()]

        return asyncio.run(ask())

    with transactional(address, "with-offsets") as producer:
        producer.partitions_for("offsets-in")
        for offset, ends in ((5, producer.abort_transaction), (7, producer.commit_transaction)):
            producer.begin_transaction()
            producer.send("offsets-out", b"%d" % offset)
            producer.send_offsets_to_transaction({partition: OffsetAndMetadata(offset)}, "offsets-group")
            ends()
    assert [7] == committed()


def test_a_failed_record_makes_the_transaction_fail_until_it_is_aborted(address: Address) -> None:
    make_topic(address, "half", 1, max_message_bytes="300")
    with transactional(address, "half") as producer:
        producer.begin_transaction()
        producer.send("half", b"good")
        producer.send("half", b"x" * 400)
        with pytest.raises(Exception, match=r"cannot be committed because a record failed.*call abort_transaction"):
            producer.commit_transaction()
        with pytest.raises(Exception, match="send: the transaction of 'half' failed and can only be aborted"):
            producer.send("half", b"more")
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("half", b"again")
        producer.commit_transaction()
    assert [b"again"] == values(read_topic(address, "half", committed=True)[0])


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (
            ["begin_transaction"],
            "begin_transaction: the producer of 'order' is not initialized: call init_transactions",
        ),
        (["init_transactions", "commit_transaction"], "is not in a transaction: call begin_transaction first"),
        (["init_transactions", "begin_transaction", "begin_transaction"], "is in a transaction: commit or abort it"),
        (["init_transactions", "init_transactions"], "init_transactions: the producer of 'order' is not in"),
    ],
)
def test_calls_out_of_order_are_refused(address: Address, calls: Sequence[str], expected: str) -> None:
    with Producer(bootstrap_servers=str(address), transactional_id="order") as producer:
        for name in calls[:-1]:
            getattr(producer, name)()
        with pytest.raises(MisuseError, match=expected):
            getattr(producer, calls[-1])()


def test_sending_outside_a_transaction_is_refused(address: Address, producer: Producer) -> None:
    with (
        transactional(address, "outside") as outside,
        pytest.raises(MisuseError, match="send: the producer of 'outside' is not in a transaction"),
    ):
        outside.send("outside", b"x")
    with pytest.raises(MisuseError, match="the producer has no transactional_id; create it with one"):
        producer.init_transactions()
    with pytest.raises(OptionError, match="acks=1"):
        Producer(bootstrap_servers=str(address), transactional_id="x", acks=1)
