"""Dead letters of share groups on a broker: what they contain, when they are written, and when there are none."""

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from ottla import ConsumerRecord
from ottla.broker import share_dead_letters
from ottla.broker.share_dead_letters import RECORDS_MAX
from ottla.coordination.share_partitions.share_partition_state import DeadReason
from ottla.model.dead_letters import DeadLetter, Origin, read_dead_letter
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.queues.sinks import Delivery, Outcome, Sinks
from ottla.records.batch import Batch, scan
from ottla.records.builder import build_batch
from ottla.records.layout import Codec
from ottla.records.record import Record
from ottla.testing.in_process_broker import InProcessBroker
from tests.topic_contents import first_records
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.share_member import ACCEPT, REJECT, RELEASE, RENEW, Member, set_configs, set_up
from tests.wire.world import create_topic, produce, unused_name

LONG = timedelta(seconds=30)
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.record.lock.duration.ms": "1000",
}
NAME = "errors.deadletterqueue.topic.name"
ENABLE = "errors.deadletterqueue.group.enable"


pytestmark = pytest.mark.ottla_broker(SETTINGS)


@pytest.fixture
def connection(broker: InProcessBroker) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap) as connection:
        yield connection


def read(broker: InProcessBroker, topic: str, count: int) -> list[ConsumerRecord]:
    return first_records(broker.bootstrap, topic, count)


def begin(
    connection: RawConnection, values: list[bytes], *, dead_letters: str, is_enabled: bool = True, **configs: str
) -> tuple[str, str, UUID]:
    """A topic with these records in one batch, its dead-letter topic, and a share group: topic, group and topic id."""
    name = unused_name()
    if is_enabled:
        create_topic(connection, dead_letters, errors_deadletterqueue_group_enable="true")
    group_id, topic_id = set_up(
        connection, 0, name=name, partitions=1, errors_deadletterqueue_topic_name=dead_letters, **configs
    )
    records = [Record(at, 1000 + at, b"k%d" % at, each, (("colour", b"red"),)) for at, each in enumerate(values)]
    produce(connection, topic_id, build_batch(records))
    return name, group_id, topic_id


def lag(connection: RawConnection, group_id: str) -> tuple[int, int]:
    """Start offset and lag of the group's partition."""
    described = connection.ask_newest(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": [{"group_id": group_id, "topics": None}]}
    )
    (part,) = described.groups[0].topics[0].partitions
    return part.start_offset, part.lag


def told(name: str, offset: int, group_id: str, attempts: int, reason: DeadReason) -> DeadLetter:
    origin = Origin(topic=name, partition=0, offset=offset)
    return DeadLetter(origin=origin, reason=reason.value, group=group_id, attempts=attempts)


def test_a_rejected_record_has_a_dead_letter_with_headers_only(
    connection: RawConnection, broker: InProcessBroker
) -> None:
    name, group_id, topic_id = begin(connection, [b"a", b"b", b"c"], dead_letters="dlq.rejected")
    member = Member(connection, group_id, topic_id)
    assert [(0, 2, 1)] == member.fetch(max_wait=LONG)
    # The member leaves at once; its dead letter is written all the same.
    acknowledged = member.acknowledge((0, 2, [ACCEPT, REJECT, ACCEPT]), share_session_epoch=-1)
    assert [ErrorCode.none] == acknowledged
    (record,) = read(broker, "dlq.rejected", 1)
    assert (None, None) == (record.key, record.value)
    assert told(name, 1, group_id, 1, DeadReason.REJECTED) == read_dead_letter(record.headers)
    assert "colour" not in dict(record.headers)
    wait_until(lambda: lag(connection, group_id) == (3, 0))


def test_a_record_at_its_delivery_limit_has_a_dead_letter_with_its_content(
    connection: RawConnection, broker: InProcessBroker
) -> None:
    name, group_id, topic_id = begin(
        connection, [b"a", b"b"], dead_letters="dlq.released", share_delivery_count_limit="2",
        errors_deadletterqueue_copy_record_enable="true",
    )  # fmt: skip
    member = Member(connection, group_id, topic_id)
    assert [(0, 1, 1)] == member.fetch(max_wait=LONG)
    assert [(0, 1, 2)] == member.fetch((0, 1, [RELEASE]), max_wait=LONG)
    # One is released, and the lock of the other expires: only that one is short, so that nothing must be in time.
    set_configs(connection, group_id, share_record_lock_duration_ms="1000")
    assert [ErrorCode.none] == member.acknowledge((1, 1, [RENEW]), is_renew_ack=True)
    assert [ErrorCode.none] == member.acknowledge((0, 0, [RELEASE]))
    found = read(broker, "dlq.released", 2)
    assert [(b"k0", b"a"), (b"k1", b"b")] == [(each.key, each.value) for each in found]
    for offset, record in enumerate(found):
        assert told(name, offset, group_id, 2, DeadReason.TOO_OFTEN) == read_dead_letter(record.headers)
        assert b"red" == dict(record.headers)["colour"]
        # The time is that of the dead letter: by the record's, it might be deleted at once.
        assert record.timestamp > 1_000_000
    wait_until(lambda: lag(connection, group_id) == (2, 0))
    assert [] == member.fetch()


def test_a_copy_that_the_topic_refuses_is_replaced_by_headers(
    connection: RawConnection, broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(connection, "dlq.small", errors_deadletterqueue_group_enable="true", max_message_bytes="1000")
    _, group_id, topic_id = begin(
        connection, [b"a", b"x" * 3000, b"c"], dead_letters="dlq.small", is_enabled=False,
        errors_deadletterqueue_copy_record_enable="true",
    )  # fmt: skip
    member = Member(connection, group_id, topic_id)
    assert [(0, 2, 1)] == member.fetch(max_wait=LONG)
    assert [ErrorCode.none] == member.acknowledge((0, 2, [REJECT]))
    found = read(broker, "dlq.small", 3)
    assert [b"a", None, b"c"] == [each.value for each in found]
    stories = [read_dead_letter(each.headers) for each in found]
    assert [0, 1, 2] == [story.origin.offset for story in stories if story is not None]
    assert "offset 1" in caplog.text
    wait_until(lambda: lag(connection, group_id) == (3, 0))


def test_a_batch_that_the_topic_refuses_is_read_once_and_written_record_by_record(
    connection: RawConnection,
    broker: InProcessBroker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_topic(connection, "dlq.keyed", errors_deadletterqueue_group_enable="true", cleanup_policy="compact")
    name, group_id, topic_id = begin(
        connection, [b"a"], dead_letters="dlq.keyed", is_enabled=False,
        errors_deadletterqueue_copy_record_enable="true",
    )  # fmt: skip
    # Records without a key cannot be compacted.
    produce(connection, topic_id, build_batch([Record(0, 1, None, b"b"), Record(1, 1, b"k", b"c")]))
    reads: list[int] = []

    def counting(content: bytes) -> tuple[list[Batch], int, str | None]:
        reads.append(len(content))
        return scan(content)

    monkeypatch.setattr(share_dead_letters, "scan", counting)
    member = Member(connection, group_id, topic_id)
    assert [(0, 2, 1)] == member.fetch(max_wait=LONG)
    assert [ErrorCode.none] == member.acknowledge((0, 2, [REJECT]))
    assert [b"a", b"c"] == [each.value for each in read(broker, "dlq.keyed", 2)]
    wait_until(lambda: lag(connection, group_id) == (3, 0))
    assert f"archived 1 records of partition {name}-0, offsets 1 to 1, without a dead letter" in caplog.text
    assert 1 == len(reads)


def test_records_that_are_compressed_well_are_copied_little_by_little(
    connection: RawConnection, broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(connection, "dlq.dense", errors_deadletterqueue_group_enable="true", max_message_bytes="20000000")
    _, group_id, topic_id = begin(
        connection, [b"a"], dead_letters="dlq.dense", is_enabled=False, errors_deadletterqueue_copy_record_enable="true"
    )
    for _ in range(3):
        produce(connection, topic_id, build_batch([Record(0, 1, None, bytes(700_000))], codec=Codec.ZSTD))
    reads: list[int] = []

    def counting(content: bytes) -> tuple[list[Batch], int, str | None]:
        reads.append(len(content))
        return scan(content)

    monkeypatch.setattr(share_dead_letters, "scan", counting)
    member = Member(connection, group_id, topic_id)
    assert [(0, 3, 1)] == member.fetch(max_wait=LONG)
    assert [ErrorCode.none] == member.acknowledge((0, 3, [ACCEPT, REJECT, REJECT, REJECT]))
    assert [700_000] * 3 == [len(each.value or b"") for each in read(broker, "dlq.dense", 3)]
    assert 2 == len(reads), "the second read copies what would have been too much in the first"


@pytest.mark.parametrize(
    ("dead_letters", "is_made", "why"),
    [
        ("dlq.missing", False, "does not exist"),
        ("dlq.disabled", True, "is not enabled"),
        ("other", False, "must start with 'dlq.'"),
    ],
)
def test_without_a_topic_for_them_records_are_archived_and_the_log_says_so(
    connection: RawConnection, caplog: pytest.LogCaptureFixture, dead_letters: str, is_made: bool, why: str
) -> None:
    caplog.set_level(logging.ERROR)
    if is_made:
        create_topic(connection, dead_letters)
    name, group_id, topic_id = begin(connection, [b"a", b"b"], dead_letters=dead_letters, is_enabled=False)
    member = Member(connection, group_id, topic_id)
    assert [(0, 1, 1)] == member.fetch(max_wait=LONG)
    assert [ErrorCode.none] == member.acknowledge((0, 1, [REJECT]))
    wait_until(lambda: lag(connection, group_id) == (2, 0))
    assert f"share group {group_id}: archived 2 records of partition {name}-0, offsets 0 to 1" in caplog.text
    assert why in caplog.text


def test_companions_that_park_records_have_no_dead_letters(
    connection: RawConnection, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(connection, "dlq.parked", ottla_delay_enable="true")
    change = {"name": ENABLE, "config_operation": 0, "value": "true"}
    resource = {"resource_type": 2, "resource_name": "dlq.parked.delayed", "configs": [change]}
    altered = connection.ask_newest(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})
    assert ErrorCode.none is altered.responses[0].error_code
    _, group_id, topic_id = begin(connection, [b"a"], dead_letters="dlq.parked.delayed", is_enabled=False)
    member = Member(connection, group_id, topic_id)
    assert [(0, 0, 1)] == member.fetch(max_wait=LONG)
    assert [ErrorCode.none] == member.acknowledge((0, 0, [REJECT]))
    wait_until(lambda: lag(connection, group_id) == (1, 0))
    assert "topic dlq.parked.delayed is internal" in caplog.text


def test_a_topic_that_refuses_dead_letters_does_not_stop_the_group(
    connection: RawConnection, caplog: pytest.LogCaptureFixture
) -> None:
    # Records without a key cannot be compacted.
    create_topic(connection, "dlq.compacted", errors_deadletterqueue_group_enable="true", cleanup_policy="compact")
    name, group_id, topic_id = begin(connection, [b"a", b"b"], dead_letters="dlq.compacted", is_enabled=False)
    member = Member(connection, group_id, topic_id)
    assert [(0, 1, 1)] == member.fetch(max_wait=LONG)
    assert [ErrorCode.none] == member.acknowledge((0, 1, [REJECT]))
    wait_until(lambda: lag(connection, group_id) == (2, 0))
    assert f"archived 2 records of partition {name}-0, offsets 0 to 1, without a dead letter" in caplog.text


def test_internal_topics_are_refused_when_they_are_configured(connection: RawConnection) -> None:
    change = {"name": NAME, "config_operation": 0, "value": "__consumer_offsets"}
    resource = {"resource_type": 32, "resource_name": "some", "configs": [change]}
    altered = connection.ask_newest(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})
    assert ErrorCode.invalid_config is altered.responses[0].error_code


class Outage:
    """While it lasts, no dead letter can be written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_over = False
        self.failures = 0
        append = Sinks.append

        async def failing(sinks: Sinks, sink: TopicPartition, batch: bytearray) -> Delivery:
            if self.is_over:
                return await append(sinks, sink, batch)
            self.failures += 1
            return Delivery(Outcome.FAILED, "no leader")

        monkeypatch.setattr(Sinks, "append", failing)


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(monkeypatch)


def test_failed_appends_are_repeated(connection: RawConnection, broker: InProcessBroker, outage: Outage) -> None:
    _, group_id, topic_id = begin(connection, [b"a"], dead_letters="dlq.repeated")
    member = Member(connection, group_id, topic_id)
    member.fetch(max_wait=LONG)
    assert [ErrorCode.none] == member.acknowledge((0, 0, [REJECT]))
    wait_until(lambda: outage.failures)
    assert (0, 1) == lag(connection, group_id), "it is archived without its dead letter"
    outage.is_over = True
    assert 1 == len(read(broker, "dlq.repeated", 1))
    wait_until(lambda: lag(connection, group_id) == (1, 0))


def test_a_member_that_comes_while_dead_letters_wait_keeps_its_records(
    connection: RawConnection, broker: InProcessBroker, outage: Outage
) -> None:
    _, group_id, topic_id = begin(connection, [b"a"], dead_letters="dlq.waiting")
    first = Member(connection, group_id, topic_id)
    first.fetch(max_wait=LONG)
    assert [ErrorCode.none] == first.acknowledge((0, 0, [REJECT]), share_session_epoch=-1)
    wait_until(lambda: outage.failures)
    produce(connection, topic_id, build_batch([Record(0, 1, None, b"b")]))
    second = Member(connection, group_id, topic_id)
    assert [(1, 1, 1)] == second.fetch(max_wait=LONG)
    outage.is_over = True
    assert 1 == len(read(broker, "dlq.waiting", 1))
    wait_until(lambda: lag(connection, group_id) == (1, 1))
    assert [ErrorCode.none] == second.acknowledge((1, 1, [ACCEPT]))


def test_offsets_that_were_reset_while_dead_letters_wait_are_used(connection: RawConnection, outage: Outage) -> None:
    name, group_id, topic_id = begin(connection, [b"a", b"b", b"c"], dead_letters="dlq.reset")
    member = Member(connection, group_id, topic_id)
    assert [(0, 2, 1)] == member.fetch(max_wait=LONG)
    assert [ErrorCode.none] == member.acknowledge((0, 2, [ACCEPT, REJECT, ACCEPT]), share_session_epoch=-1)
    wait_until(lambda: outage.failures)
    left = {"group_id": group_id, "member_id": "m", "member_epoch": -1}
    assert ErrorCode.none is connection.ask_newest(ApiKey.SHARE_GROUP_HEARTBEAT, left).error_code
    part = {"partition_index": 0, "start_offset": 0}
    asked = {"group_id": group_id, "topics": [{"topic_name": name, "partitions": [part]}]}
    altered = connection.ask_newest(ApiKey.ALTER_SHARE_GROUP_OFFSETS, asked)
    assert ErrorCode.none is altered.error_code
    assert [(0, 2, 1)] == Member(connection, group_id, topic_id).fetch(max_wait=LONG)


def test_the_topic_is_created_if_that_is_enabled_and_large_rejections_are_split(tmp_path: Path) -> None:
    settings = {**SETTINGS, "errors.deadletterqueue.auto.create.topics.enable": "true"}
    with InProcessBroker(tmp_path / "broker", settings) as broker, RawConnection(broker.bootstrap) as connection:
        count = 2 * RECORDS_MAX + 1
        _, group_id, topic_id = begin(connection, [b"a"] * count, dead_letters="dlq.created", is_enabled=False)
        member = Member(connection, group_id, topic_id)
        acquired = member.fetch(max_wait=LONG, max_records=count)
        assert (0, count - 1) == (acquired[0][0], acquired[-1][1])
        assert [ErrorCode.none] == member.acknowledge((0, count - 1, [REJECT]))
        offsets = []
        for record in read(broker, "dlq.created", count):
            story = read_dead_letter(record.headers)
            offsets.append(None if story is None else story.origin.offset)
        assert list(range(count)) == offsets
        wait_until(lambda: lag(connection, group_id) == (count, 0))
        resource = {"resource_type": 2, "resource_name": "dlq.created", "configuration_keys": [ENABLE]}
        described = connection.ask_newest(ApiKey.DESCRIBE_CONFIGS, {"resources": [resource]})
        assert "true" == described.results[0].configs[0].value


def test_a_topic_that_can_never_be_created_does_not_stop_the_group(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**SETTINGS, "errors.deadletterqueue.auto.create.topics.enable": "true"}
    with InProcessBroker(tmp_path / "broker", settings) as broker, RawConnection(broker.bootstrap) as connection:
        create_topic(connection, "dlq.a_b")
        name, group_id, topic_id = begin(connection, [b"a", b"b"], dead_letters="dlq.a.b", is_enabled=False)
        member = Member(connection, group_id, topic_id)
        assert [(0, 1, 1)] == member.fetch(max_wait=LONG)
        assert [ErrorCode.none] == member.acknowledge((0, 1, [REJECT]))
        wait_until(lambda: lag(connection, group_id) == (2, 0))
    assert f"archived 2 records of partition {name}-0, offsets 0 to 1, without a dead letter" in caplog.text
    assert "'dlq.a.b' collides with topic 'dlq.a_b'" in caplog.text


def set_share_version(connection: RawConnection, level: int) -> None:
    change = {"feature": "share.version", "max_version_level": level, "upgrade_type": 1 if level == 2 else 2}
    answer = connection.ask_newest(ApiKey.UPDATE_FEATURES, {"feature_updates": [change]})
    assert ErrorCode.none is answer.error_code, answer.error_message


def test_below_share_version_2_there_are_no_dead_letters(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "broker", SETTINGS) as broker, RawConnection(broker.bootstrap) as connection:
        set_share_version(connection, 1)
        _, group_id, topic_id = begin(connection, [b"a", b"b"], dead_letters="dlq.gated")
        member = Member(connection, group_id, topic_id)
        assert [(0, 1, 1)] == member.fetch(max_wait=LONG)
        assert [ErrorCode.none] == member.acknowledge((0, 0, [REJECT]))
        assert (1, 1) == lag(connection, group_id)
        set_share_version(connection, 2)
        assert [ErrorCode.none] == member.acknowledge((1, 1, [REJECT]))
        story = read_dead_letter(read(broker, "dlq.gated", 1)[0].headers)
        assert story is not None
        assert 1 == story.origin.offset
