"""confluent-kafka as a member of groups, in both protocols."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.clients.programs.group_member import (
    HEARTBEAT_MS,
    METADATA_AGE_MS,
    POLL_S,
    SESSION_TIMEOUT_MS,
    Member,
    MemberCommands,
    Place,
)

PASSING = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError.REBALANCE_IN_PROGRESS,
)
"""What a member hears while its broker is away, or its group on the move; it tries again by itself."""

FATAL = (KafkaError.FENCED_INSTANCE_ID, KafkaError.UNRELEASED_INSTANCE_ID)


class ConfluentConsumer:
    """A consumer as `group_member` asks for it."""

    def __init__(self, settings: dict[str, Any], topics: list[str], member: Member) -> None:
        self._consumer = Consumer(settings)
        self._consumer.subscribe(
            topics,
            on_assign=lambda _, parts: member.on_assigned(_places(parts)),
            on_revoke=lambda _, parts: member.on_revoked(_places(parts)),
            on_lost=lambda _, parts: member.on_lost(_places(parts)),
        )

    def poll(self) -> list[tuple[str, int, int]]:
        records: list[tuple[str, int, int]] = []
        for message in self._consumer.consume(500, timeout=POLL_S):
            error = message.error()
            if error is None:
                records.append((message.topic(), message.partition(), message.offset()))
            elif not error.retriable() and error.code() not in PASSING:
                raise KafkaException(_cause(error))
        return records

    def commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            # After a seek back there is nothing that is not committed already.
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def commit_offsets(self, offsets: list[tuple[str, int, int, str]]) -> None:
        wanted = [TopicPartition(topic, partition, at, metadata) for topic, partition, at, metadata in offsets]
        for each in self._consumer.commit(offsets=wanted, asynchronous=False):
            if each.error is not None:
                raise KafkaException(each.error)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(topic, partition, offset))

    def close(self) -> None:
        self._consumer.close()


class Groups(MemberCommands):
    """The commands about groups."""

    def __init__(self, bootstrap: str, code_of: Callable[[BaseException], int | None]) -> None:
        super().__init__()
        self._bootstrap = bootstrap
        self._code_of = code_of

    def join_group(
        self,
        id: int,
        group: str,
        topics: list[str] | None,
        pattern: str | None,
        protocol: str,
        assignor: str,
        instance: str | None,
        reset: str,
        commits: bool,
    ) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": {"none": "error"}.get(reset, reset),
            "topic.metadata.refresh.interval.ms": METADATA_AGE_MS,
        }
        if protocol == "consumer":
            settings["group.remote.assignor"] = assignor
        else:
            settings["partition.assignment.strategy"] = assignor
            settings["session.timeout.ms"] = SESSION_TIMEOUT_MS
            settings["heartbeat.interval.ms"] = HEARTBEAT_MS
        if instance is not None:
            settings["group.instance.id"] = instance
        # A name that begins with ^ is a pattern.
        names = topics if topics is not None else [f"^{pattern}"]
        self._members[id] = Member(
            lambda member: ConfluentConsumer(settings, names, member), commits=commits, code_of=self._code_of
        )

    def committed_offsets(self, group: str, topic: str, wanted: list[int]) -> dict[str, Any]:
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, each) for each in wanted])
        # A new client each time: one that lived through a restart of the broker waits for its old coordinator.
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        (future,) = admin.list_consumer_group_offsets([asked]).values()
        found = future.result(30).topic_partitions
        rows = [[each.partition, max(each.offset, -1), each.metadata or ""] for each in found]
        return {"offsets": sorted(rows)}


def _cause(error: KafkaError) -> KafkaError:
    """A fatal error has the broker's only in its text."""
    known = (KafkaError(code) for code in FATAL if KafkaError(code).str() in error.str())
    return next(known, error)


def _places(partitions: list[TopicPartition]) -> list[Place]:
    return [(each.topic, each.partition) for each in partitions]
