"""Groups of consumers in processes of their own: partitions are shared, members crash, and nothing is lost."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.consumer.errors import CommitFailedError
from ottla.client.errors import AnswerError
from ottla.client.values import OffsetAndMetadata
from ottla.model.ids import TopicPartition
from tests.compat.client_suite.filled_topics import fill, make_topic, numbered
from tests.compat.client_suite.member_process import Member
from tests.compat.clients.broker_under_test import TARGET, Broker
from tests.waiting import wait_until

PARTITIONS = 6
POLL_MS = 20_000
SESSION_TIMEOUT_MS = 15_000
"""Also of members whose timeout the broker sets; longer than a busy machine stalls."""
LEFT_S, PATIENT_LEFT_S = 12, 60
"""How soon the others have what a member had that left: before its session, or a long one, would be over."""
PATIENT = {"session_timeout_ms": 90_000}
QUICK = {"session_timeout_ms": SESSION_TIMEOUT_MS, "heartbeat_interval_ms": 300, "metadata_max_age_ms": 1000}
FLAVOURS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": ["range"], **QUICK},
    "roundrobin": {"partition_assignment_strategy": ["roundrobin"], **QUICK},
    "sticky": {"partition_assignment_strategy": ["sticky"], **QUICK},
    "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"], **QUICK},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each way of sharing."""
    return FLAVOURS[request.param]


def shared_out(*members: Member) -> bool:
    """Whether all partitions have exactly one owner, and none has more than its share."""
    owned = [member.owned for member in members]
    share = -(-PARTITIONS // len(members))
    return (
        set(range(PARTITIONS)) == set().union(*owned)
        and PARTITIONS == sum(map(len, owned))
        and max(map(len, owned)) <= share
    )


def everything(partitions: Sequence[TopicPartition], count: int) -> set[tuple[int, int]]:
    return {(partition.partition, offset) for partition in partitions for offset in range(count)}


def test_members_come_crash_and_go(bootstrap: str, topic: str, flavour: dict[str, Any], tmp_path: Path) -> None:
    partitions = make_topic(bootstrap, topic, PARTITIONS)
    fill(bootstrap, {partition: numbered(100) for partition in partitions})
    options = {"group_id": topic, **flavour}
    with Member(bootstrap, [topic], tmp_path, **options) as first:
        wait_until(lambda: everything(partitions, 100) == first.read(), "the first member reads all")
        with Member(bootstrap, [topic], tmp_path, **options) as second:
            wait_until(lambda: shared_out(first, second), "both share the partitions")
            fill(bootstrap, {partition: numbered(50) for partition in partitions})
            wait_until(
                lambda: everything(partitions, 150) == first.read() | second.read(), "both read what is written now"
            )
            assert second.read()
            second.kill()
            wait_until(lambda: set(range(PARTITIONS)) == first.owned, "the first takes over from the dead one")
            fill(bootstrap, {partition: numbered(50) for partition in partitions})
            wait_until(lambda: everything(partitions, 200) <= first.read() | second.read(), "nothing is lost")
        # The broker sets the session timeout of members that it assigns partitions to.
        own, left_s = ({}, LEFT_S) if flavour == FLAVOURS["consumer"] else (PATIENT, PATIENT_LEFT_S)
        with Member(bootstrap, [topic], tmp_path, **{**options, **own}) as third:
            wait_until(lambda: shared_out(first, third), "a new one gets its share")
            third.close()
            wait_until(lambda: set(range(PARTITIONS)) == first.owned, "one that leaves is not waited for", left_s)
    assert not [event for event in first.events if event["event"] == "lost"]


def test_cooperative_members_do_not_stop(bootstrap: str, topic: str, tmp_path: Path) -> None:
    make_topic(bootstrap, topic, PARTITIONS)
    for flavour in ("cooperative", "consumer"):
        options = {"group_id": f"{topic}-{flavour}", **FLAVOURS[flavour]}
        with Member(bootstrap, [topic], tmp_path, **options) as first:
            wait_until(partial(shared_out, first), "the first has all")
            with Member(bootstrap, [topic], tmp_path, **options) as second:
                wait_until(partial(shared_out, first, second), "both share")
                revoked = [set(event["partitions"]) for event in first.events if event["event"] == "revoked"]
                # What it kept was never taken away.
                assert [set(range(PARTITIONS)) - first.owned] == revoked


def settled(*members: Member) -> bool:
    """Whether all partitions are shared out, and every member has heard of it, also one that only keeps what it had."""
    generations = {member.generation for member in members}
    return shared_out(*members) and len(generations) == 1 and None not in generations


def is_back(member: Member, had: set[int]) -> bool:
    """Whether a member owns what it had before, and its listener was called."""
    return had == member.owned and member.generation is not None


def test_static_members_come_back_without_a_rebalance(bootstrap: str, topic: str, tmp_path: Path) -> None:
    make_topic(bootstrap, topic, PARTITIONS)
    for flavour in ("range", "cooperative", "consumer"):
        # Time enough for a new process to come back before its session is over, on a busy machine too.
        patient = {} if flavour == "consumer" else {"session_timeout_ms": 30_000}
        options = {"group_id": f"{topic}-{flavour}", **FLAVOURS[flavour], **patient}
        with Member(bootstrap, [topic], tmp_path, group_instance_id="one", **options) as first:
            with Member(bootstrap, [topic], tmp_path, group_instance_id="two", **options) as second:
                wait_until(partial(settled, first, second), "both share")
                had, generation, heard = second.owned, second.generation, len(first.events)
                # Both ways of going away for a moment are the same to the others; a coordinator that assigns must be
                # told, or it takes the one who comes back for somebody else until the session is over.
                second.kill() if flavour == "range" else second.close()
            with Member(bootstrap, [topic], tmp_path, group_instance_id="two", **options) as again:
                wait_until(partial(is_back, again, had), "it has what it had, and its listener was called")
                assert generation == again.generation
                assert [] == [event for event in first.events[heard:] if event["event"] != "read"]


def test_a_member_that_does_not_poll_loses_its_partitions(
    bootstrap: str, topic: str, flavour: dict[str, Any], tmp_path: Path
) -> None:
    make_topic(bootstrap, topic, PARTITIONS)
    options = {"group_id": topic, "max_poll_interval_ms": 1500, **flavour}
    with (
        Member(bootstrap, [topic], tmp_path, **options) as first,
        Member(bootstrap, [topic], tmp_path, **options) as second,
    ):
        wait_until(lambda: shared_out(first, second), "both share")
        second.pause()
        wait_until(lambda: set(range(PARTITIONS)) == first.owned, "the one that polls has all")
        second.resume()
        wait_until(lambda: shared_out(first, second), "both share again")
        assert "lost" in [event["event"] for event in second.events]


def test_with_members_of_another_client(bootstrap: str, topic: str, tmp_path: Path) -> None:
    """librdkafka and ours in one group: each leads it once."""
    partitions = make_topic(bootstrap, topic, PARTITIONS)
    fill(bootstrap, {partition: numbered(10) for partition in partitions})
    theirs_by_flavour = {
        "range": {"partition.assignment.strategy": "range"},
        "roundrobin": {"partition.assignment.strategy": "roundrobin"},
        "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
        "consumer": {"group.protocol": "consumer"},
    }
    if TARGET == "kafka-3.9":
        # librdkafka speaks of this protocol only what Kafka 4.0 made of it.
        del theirs_by_flavour["consumer"]
    for flavour, more in theirs_by_flavour.items():
        for ours_first in (True, False):
            group_id = f"{topic}-{flavour}-{ours_first}"
            settings: dict[str, Any] = {
                "bootstrap.servers": bootstrap,
                "group.id": group_id,
                "auto.offset.reset": "earliest",
                **more,
            }
            if flavour != "consumer":
                settings |= {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": 300}
            ours: Member | None = None
            theirs: ConfluentConsumer | None = None
            try:
                if not ours_first:
                    theirs = ConfluentConsumer(settings)
                    theirs.subscribe([topic])
                    _poll_until(theirs, lambda theirs=theirs: PARTITIONS == len(theirs.assignment()))
                ours = Member(bootstrap, [topic], tmp_path, group_id=group_id, **FLAVOURS[flavour])
                if theirs is None:
                    wait_until(partial(shared_out, ours), "ours has all")
                    theirs = ConfluentConsumer(settings)
                    theirs.subscribe([topic])

                def is_shared(ours: Member = ours, theirs: ConfluentConsumer = theirs) -> bool:
                    their_own = {each.partition for each in theirs.assignment()}
                    return (3, 3, PARTITIONS) == (len(their_own), len(ours.owned), len(their_own | ours.owned))

                _poll_until(theirs, is_shared)
            finally:
                if ours is not None:
                    ours.close()
                if theirs is not None:
                    theirs.close()


def _poll_until(consumer: ConfluentConsumer, condition: Any) -> None:
    def look() -> bool:
        consumer.poll(0.05)
        return bool(condition())

    wait_until(look, "librdkafka's member gets its share")


def test_commits(bootstrap: str, topic: str) -> None:
    partitions = make_topic(bootstrap, topic, 2)
    fill(bootstrap, {partition: numbered(20) for partition in partitions})
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": topic, "auto_offset_reset": "earliest"}
    with Consumer(topic, enable_auto_commit=False, **options) as reading:
        assert reading.committed(partitions[0]) is None
        records = iter(reading)
        first = next(records)
        partition = TopicPartition(first.topic, first.partition)
        next(records)
        # What is iterated over counts, not what was polled.
        reading.commit()
        assert 2 == reading.committed(partition)
        answers: list[Any] = []
        reading.commit_async({partition: OffsetAndMetadata(5, "here")}, lambda *answer: answers.append(answer))
        while not answers:
            reading.poll(100)
        assert [({partition: OffsetAndMetadata(5, "here", -1)}, None)] == answers
        found = reading.committed(partition, metadata=True)
        assert OffsetAndMetadata(5, "here", -1) == found
        metadata = reading.group_metadata()
        assert (topic, True, True) == (metadata.group_id, metadata.generation_id > 0, metadata.member_id != "")
    with Consumer(topic, **options) as again:
        values = [record.offset for _, record in zip(range(15), _of(again, partition), strict=False)]
        assert list(range(5, 20)) == values
    with Consumer(**options) as outside:
        assert 20 == outside.committed(partition)
        outside.assign([partition])
        assert 20 == outside.position(partition)


def _of(consumer: Consumer, partition: TopicPartition) -> Any:
    return (record for record in consumer if record.partition == partition.partition)


def test_auto_commit_by_time(bootstrap: str, topic: str) -> None:
    (partition,) = make_topic(bootstrap, topic)
    fill(bootstrap, {partition: numbered(20)})
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": topic, "auto_offset_reset": "earliest"}
    with Consumer(topic, auto_commit_interval_ms=200, max_poll_records=5, **options) as reading:
        read = 0
        while read < 20:
            read += sum(map(len, reading.poll(20_000).values()))
        with Consumer(**options) as outside:

            def is_committed() -> bool:
                reading.poll(50)
                return 20 == outside.committed(partition)

            wait_until(is_committed, "what was read is committed")
        reading.close(autocommit=False)


def test_a_commit_of_one_who_was_thrown_out(bootstrap: str, topic: str, tmp_path: Path) -> None:
    (partition,) = make_topic(bootstrap, topic)
    options = {"group_id": topic, "max_poll_interval_ms": 1000, **FLAVOURS["range"]}
    with Consumer(topic, bootstrap_servers=bootstrap, enable_auto_commit=False, **options) as late:
        while not late.assignment():
            late.poll(100)
        late.seek(partition, 0)
        with Member(bootstrap, [topic], tmp_path, **options) as other:
            wait_until(lambda: {0} == other.owned, "the other takes over")
            with pytest.raises(CommitFailedError, match="poll to join again"):
                late.commit()


def test_the_coordinator_matches_patterns(bootstrap: str, topic: str) -> None:
    """RE2's syntax, which Python does not know; topics that come and go; and a pattern that is no longer wanted."""
    if TARGET == "kafka-3.9":
        pytest.skip("coordinators match patterns from Kafka 4.0 on")
    (first,) = make_topic(bootstrap, f"{topic}.one")
    (other,) = make_topic(bootstrap, f"other.{topic}")
    fill(bootstrap, {first: [b"1"], other: [b"no"]})
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "auto_offset_reset": "earliest",
        "group_id": topic,
        "group_protocol": "consumer",
        "metadata_max_age_ms": 300,
    }
    with Consumer(**options) as reading:
        reading.subscribe(pattern=rf"{topic}\.[[:alpha:]]")
        assert [(first, b"1")] == _read(reading, 1)
        assert {f"{topic}.one"} == reading.subscription()
        (second,) = make_topic(bootstrap, f"{topic}.two")
        fill(bootstrap, {second: [b"2"]})
        assert [(second, b"2")] == _read(reading, 1)
        assert {first, second} == reading.assignment()
        reading.unsubscribe()
        reading.subscribe([f"other.{topic}"])
        assert [(other, b"no")] == _read(reading, 1)
        assert {other} == reading.assignment()
    with Consumer(**{**options, "group_id": f"{topic}-wrong"}) as reading:
        reading.subscribe(pattern="(unfinished")
        with pytest.raises(AnswerError, match="INVALID_REGULAR_EXPRESSION"):
            _read(reading, 1)


def _read(reading: Consumer, count: int) -> list[tuple[TopicPartition, bytes]]:
    found: list[tuple[TopicPartition, bytes]] = []
    while len(found) < count:
        records = reading.poll(POLL_MS)
        assert records, f"only {found} came"
        found += [(partition, record.value) for partition, some in records.items() for record in some]
    return found


@pytest.mark.parametrize("flavour", ["cooperative", "consumer"], indirect=True)
def test_the_broker_crashes(broker: Broker, topic: str, flavour: dict[str, Any], tmp_path: Path) -> None:
    partitions = make_topic(broker.bootstrap, topic, PARTITIONS)
    fill(broker.bootstrap, {partition: numbered(100) for partition in partitions})
    options = {"group_id": topic, **flavour}
    with (
        Member(broker.bootstrap, [topic], tmp_path, **options) as first,
        Member(broker.bootstrap, [topic], tmp_path, **options) as second,
    ):
        wait_until(lambda: shared_out(first, second), "both share")
        broker.kill()
        broker.start()
        fill(broker.bootstrap, {partition: numbered(50) for partition in partitions})
        wait_until(
            lambda: everything(partitions, 150) == first.read() | second.read() and shared_out(first, second),
            "both go on where they were",
        )
