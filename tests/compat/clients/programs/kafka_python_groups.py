"""kafka-python as a member of groups. It speaks the classic protocol."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaConnectionError
from kafka.structs import OffsetAndMetadata

from tests.compat.clients.programs.group_member import (
    HEARTBEAT_MS,
    METADATA_AGE_MS,
    SESSION_TIMEOUT_MS,
    Member,
    MemberCommands,
    Place,
)

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}

POLL_MS = 500


class Listener(ConsumerRebalanceListener):  # type: ignore[misc] # the library has no types
    """Tells the member's log; it is called where nothing may wait, so a commit has no place here."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.on_assigned(_places(assigned))

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._member.log.on_revoked(_places(revoked))

    def on_partitions_lost(self, lost: Any) -> None:
        self._member.on_lost(_places(lost))


class KafkaPythonConsumer:
    """A consumer as `group_member` asks for it."""

    def __init__(self, settings: dict[str, Any], topics: list[str] | None, pattern: str | None, member: Member) -> None:
        self._consumer = KafkaConsumer(**settings)
        self._consumer.subscribe(topics=topics or (), pattern=pattern, listener=Listener(member))

    def poll(self) -> list[tuple[str, int, int]]:
        # When a poll ends between its two requests, a leader that joins because of new metadata forgets to go on.
        coordinator = self._consumer._coordinator
        if coordinator._join_task is not None:
            coordinator.request_rejoin()
        try:
            found = self._consumer.poll(timeout_ms=POLL_MS)
        except KafkaConnectionError:
            # The broker is away.
            return []
        return [(each.topic, each.partition, each.offset) for records in found.values() for each in records]

    def commit(self) -> None:
        self._consumer.commit()

    def commit_offsets(self, offsets: list[tuple[str, int, int, str]]) -> None:
        self._consumer.commit(
            {
                TopicPartition(topic, partition): OffsetAndMetadata(at, metadata, -1)
                for topic, partition, at, metadata in offsets
            }
        )

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(topic, partition), offset)

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
        settings = {
            "bootstrap_servers": self._bootstrap,
            "group_id": group,
            "group_instance_id": instance,
            "enable_auto_commit": False,
            "auto_offset_reset": reset,
            "partition_assignment_strategy": (ASSIGNORS[assignor],),
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "metadata_max_age_ms": METADATA_AGE_MS,
        }
        self._members[id] = Member(
            lambda member: KafkaPythonConsumer(settings, topics, pattern, member),
            commits=commits,
            code_of=self._code_of,
        )

    def committed_offsets(self, group: str, topic: str, wanted: list[int]) -> dict[str, Any]:
        places = [TopicPartition(topic, each) for each in wanted]
        # A new client each time: one that lost its broker refuses (NodeNotReadyError) until it may connect again.
        with closing(KafkaAdminClient(bootstrap_servers=self._bootstrap)) as admin:
            found = admin.list_group_offsets({group: places})[group]
        return {"offsets": [[each.partition, found[each].offset, found[each].metadata or ""] for each in places]}


def _places(partitions: Any) -> list[Place]:
    return [(each.topic, each.partition) for each in partitions]
