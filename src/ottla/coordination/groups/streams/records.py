"""The records of `__consumer_offsets` that streams groups write, in Kafka's own bytes.

One class for each record type, with its key's fields first; a value of None is the tombstone of that key. Types 17 and
19 to 23, written as Kafka 4.3 does, in version 0 with tagged fields. Type 18, the partition metadata, was dropped
before Kafka released streams groups: the group's epoch has a hash of the topics instead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeVar

from ottla.coordination.groups.record_values import (
    ONLY_TAG,
    or_none,
    read_tagged_epoch,
    tag_bytes,
    tag_fields,
    value_fields,
    value_writer,
    write_key,
    write_tagged_epoch,
)
from ottla.coordination.groups.streams.requests import Endpoint
from ottla.coordination.groups.streams.tasks import HeldTasks, TaskEpochs, Tasks, TaskSet
from ottla.coordination.groups.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology
from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.coordination.runtime.record_fields import FieldReader, FieldWriter

T = TypeVar("T")

EPOCH_KIND: Final = 17
MEMBER_KIND: Final = 19
TARGET_EPOCH_KIND: Final = 20
TARGET_KIND: Final = 21
CURRENT_KIND: Final = 22
TOPOLOGY_KIND: Final = 23

NOT_VALIDATED: Final = -1
"""The validated topology epoch of a group whose topics are missing or wrong."""

_VALIDATED_TAG: Final = 0
_CONFIGS_TAG: Final = 1
_UNSIGNED_16: Final = 0xFFFF


class MemberState(IntEnum):
    """How far a member is on its way to its target."""

    STABLE = 1
    """Has its whole target. Exit: a newer target."""
    UNREVOKED = 2
    """Must give up tasks. Exits: it reports that it owns none of them, or its rebalance timeout passes."""
    UNRELEASED = 3
    """Is at the target epoch, but other members still own some of its tasks. Exit: they have released them."""
    UNKNOWN = 127
    """Written by a newer broker. Exit: it joins again without tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochValue:
    """The group's epoch, and what it was decided on: a digest of the topics, the topology whose topics were found to be
    valid, and the configs of the assignment."""

    epoch: int
    metadata_hash: int = 0
    validated_topology_epoch: int = NOT_VALIDATED
    assignment_configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """What a member sent about itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    """Ascending by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpochValue:
    """The group epoch that the target assignment was computed for, and when (0: not known)."""

    epoch: int
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentValue:
    """A member's epoch, and the tasks that it has or is giving up."""

    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: HeldTasks
    revoking: HeldTasks


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The group itself; its tombstone deletes the group."""

    group_id: str
    value: EpochValue | None


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """What a member sent about itself; the tombstone, the last of a member's three, deletes the member."""

    group_id: str
    member_id: str
    value: MemberValue | None


@dataclass(frozen=True, slots=True)
class TargetEpochRecord:
    """The epoch of the target assignment; written after its members' targets."""

    group_id: str
    value: TargetEpochValue | None


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """A member's target assignment."""

    group_id: str
    member_id: str
    value: TaskSet | None


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    """A member's current assignment."""

    group_id: str
    member_id: str
    value: CurrentValue | None


@dataclass(frozen=True, slots=True)
class TopologyRecord:
    """The group's topology."""

    group_id: str
    value: Topology | None


GroupRecord = EpochRecord | MemberRecord | TargetEpochRecord | TargetRecord | CurrentRecord | TopologyRecord


def encode(record: GroupRecord) -> CoordinatorRecord:
    """The record as it is appended."""
    match record:
        case EpochRecord(group_id, value):
            return CoordinatorRecord(write_key(EPOCH_KIND, group_id), or_none(_write_epoch, value))
        case MemberRecord(group_id, member_id, member):
            return CoordinatorRecord(write_key(MEMBER_KIND, group_id, member_id), or_none(_write_member, member))
        case TargetEpochRecord(group_id, target):
            return CoordinatorRecord(write_key(TARGET_EPOCH_KIND, group_id), or_none(_write_target_epoch, target))
        case TargetRecord(group_id, member_id, tasks):
            return CoordinatorRecord(write_key(TARGET_KIND, group_id, member_id), or_none(_write_target, tasks))
        case CurrentRecord(group_id, member_id, current):
            return CoordinatorRecord(write_key(CURRENT_KIND, group_id, member_id), or_none(_write_current, current))
        case TopologyRecord(group_id, topology):
            return CoordinatorRecord(write_key(TOPOLOGY_KIND, group_id), or_none(_write_topology, topology))


def decode(record: CoordinatorRecord) -> GroupRecord | None:
    """The record that was appended; None for a type that streams groups do not write."""
    key = FieldReader(record.key, "a key of __consumer_offsets")
    read = _READERS.get(key.version)
    return None if read is None else read(key, record.value)


# The group


def _write_epoch(value: EpochValue) -> bytes:
    fields = value_writer()
    fields.int32(value.epoch)
    fields.int64(value.metadata_hash)
    tags = {}
    if value.validated_topology_epoch != NOT_VALIDATED:
        validated = value_writer()
        validated.int32(value.validated_topology_epoch)
        tags[_VALIDATED_TAG] = tag_bytes(validated)
    if value.assignment_configs:
        configs = value_writer()
        _write_pairs(configs, sorted(value.assignment_configs.items()))
        tags[_CONFIGS_TAG] = tag_bytes(configs)
    fields.tags(tags)
    return fields.finish()


def _read_epoch(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id = key.text()
    if value is None:
        return EpochRecord(group_id, None)
    fields = value_fields(value, "a streams group's epoch")
    epoch, digest = fields.int32(), fields.int64()
    tags = fields.tags()
    validated, configs = tags.get(_VALIDATED_TAG), tags.get(_CONFIGS_TAG)
    # A null array means the same as no tag.
    pairs = () if configs in (None, b"\0") else _read_pairs(tag_fields(configs or b"", "a group's assignment configs"))
    return EpochRecord(
        group_id,
        EpochValue(
            epoch=epoch,
            metadata_hash=digest,
            validated_topology_epoch=(
                NOT_VALIDATED if validated is None else tag_fields(validated, "a validated topology epoch").int32()
            ),
            assignment_configs=dict(sorted(pairs)),
        ),
    )


def _write_target_epoch(value: TargetEpochValue) -> bytes:
    return write_tagged_epoch(value.epoch, value.timestamp_ms)


def _read_target_epoch(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id = key.text()
    if value is None:
        return TargetEpochRecord(group_id, None)
    epoch, timestamp_ms = read_tagged_epoch(value, "a target assignment's epoch", "a target assignment's time")
    return TargetEpochRecord(group_id, TargetEpochValue(epoch=epoch, timestamp_ms=timestamp_ms))


# Members


def _write_member(value: MemberValue) -> bytes:
    fields = value_writer()
    fields.text(value.instance_id)
    fields.text(value.rack_id)
    fields.text(value.client_id)
    fields.text(value.client_host)
    fields.int32(value.rebalance_timeout_ms)
    fields.int32(value.topology_epoch)
    fields.text(value.process_id)
    # A nullable structure starts with a byte that says whether it is present.
    if value.user_endpoint is None:
        fields.int8(-1)
    else:
        fields.int8(1)
        fields.text(value.user_endpoint.host)
        port = value.user_endpoint.port
        fields.int16(port - _UNSIGNED_16 - 1 if port > _UNSIGNED_16 // 2 else port)
        fields.tags()
    _write_pairs(fields, value.client_tags)
    fields.tags()
    return fields.finish()


def _read_member(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id, member_id = key.text(), key.text()
    if value is None:
        return MemberRecord(group_id, member_id, None)
    fields = value_fields(value, "a streams member's metadata")
    instance_id, rack_id = fields.nullable_text(), fields.nullable_text()
    client_id, client_host = fields.text(), fields.text()
    rebalance_timeout_ms, topology_epoch = fields.int32(), fields.int32()
    process_id = fields.text()
    endpoint = None
    if fields.int8() >= 0:
        endpoint = Endpoint(fields.text(), fields.int16() & _UNSIGNED_16)
        fields.tags()
    return MemberRecord(
        group_id,
        member_id,
        MemberValue(
            instance_id=instance_id,
            rack_id=rack_id,
            client_id=client_id,
            client_host=client_host,
            rebalance_timeout_ms=rebalance_timeout_ms,
            topology_epoch=topology_epoch,
            process_id=process_id,
            user_endpoint=endpoint,
            client_tags=tuple(sorted(_read_pairs(fields))),
        ),
    )


# Tasks


def _write_target(value: TaskSet) -> bytes:
    fields = value_writer()
    for tasks in (value.active, value.standby, value.warmup):
        _write_tasks(fields, tasks)
    fields.tags()
    return fields.finish()


def _read_target(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id, member_id = key.text(), key.text()
    if value is None:
        return TargetRecord(group_id, member_id, None)
    fields = value_fields(value, "a streams member's target assignment")
    return TargetRecord(
        group_id,
        member_id,
        TaskSet(active=_read_tasks(fields), standby=_read_tasks(fields), warmup=_read_tasks(fields)),
    )


def _write_current(value: CurrentValue) -> bytes:
    fields = value_writer()
    fields.int32(value.member_epoch)
    fields.int32(value.previous_member_epoch)
    fields.int8(value.state)
    for held in (value.assigned, value.revoking):
        _write_task_epochs(fields, held.active)
        _write_tasks(fields, held.standby)
        _write_tasks(fields, held.warmup)
    fields.tags()
    return fields.finish()


def _read_current(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id, member_id = key.text(), key.text()
    if value is None:
        return CurrentRecord(group_id, member_id, None)
    fields = value_fields(value, "a streams member's current assignment")
    member_epoch, previous_member_epoch, state = fields.int32(), fields.int32(), fields.int8()
    assigned, revoking = (
        HeldTasks(
            active=_read_task_epochs(fields, member_epoch), standby=_read_tasks(fields), warmup=_read_tasks(fields)
        )
        for _ in range(2)
    )
    return CurrentRecord(
        group_id,
        member_id,
        CurrentValue(
            member_epoch=member_epoch,
            previous_member_epoch=previous_member_epoch,
            state=_STATES.get(state, MemberState.UNKNOWN),
            assigned=assigned,
            revoking=revoking,
        ),
    )


def _write_tasks(fields: FieldWriter, tasks: Tasks) -> None:
    fields.count(len(tasks))
    for subtopology_id, partitions in sorted(tasks.items()):
        fields.text(subtopology_id)
        fields.int32s(partitions)
        fields.tags()


def _read_tasks(fields: FieldReader) -> Tasks:
    tasks = {}
    for _ in range(fields.count()):
        subtopology_id = fields.text()
        tasks[subtopology_id] = tuple(sorted(fields.int32s()))
        fields.tags()
    return dict(sorted(tasks.items()))


def _write_task_epochs(fields: FieldWriter, tasks: TaskEpochs) -> None:
    fields.count(len(tasks))
    for subtopology_id, epochs in sorted(tasks.items()):
        fields.text(subtopology_id)
        partitions = tuple(sorted(epochs))
        fields.int32s(partitions)
        since = value_writer()
        since.int32s(tuple(epochs[partition] for partition in partitions))
        fields.tags({ONLY_TAG: tag_bytes(since)})


def _read_task_epochs(fields: FieldReader, member_epoch: int) -> TaskEpochs:
    tasks = {}
    for _ in range(fields.count()):
        subtopology_id = fields.text()
        partitions = fields.int32s()
        tag = fields.tags().get(ONLY_TAG)
        # A null array, or one of the wrong length, means the same as no tag: as old as the member epoch.
        since = () if tag in (None, b"\0") else tag_fields(tag or b"", "assignment epochs").int32s()
        if len(since) != len(partitions):
            since = (max(member_epoch, 0),) * len(partitions)
        tasks[subtopology_id] = dict(sorted(zip(partitions, since, strict=True)))
    return dict(sorted(tasks.items()))


# The topology


def _write_topology(value: Topology) -> bytes:
    fields = value_writer()
    fields.int32(value.epoch)
    fields.count(len(value.subtopologies))
    for each in value.subtopologies:
        fields.text(each.subtopology_id)
        fields.texts(each.source_topics)
        fields.texts(each.source_topic_regex)
        _write_internal_topics(fields, each.changelog_topics)
        fields.texts(each.repartition_sink_topics)
        _write_internal_topics(fields, each.repartition_source_topics)
        fields.count(len(each.copartition_groups))
        for group in each.copartition_groups:
            for positions in (group.source_topics, group.source_topic_regex, group.repartition_source_topics):
                fields.count(len(positions))
                for position in positions:
                    fields.int16(position)
            fields.tags()
        fields.tags()
    fields.tags()
    return fields.finish()


def _read_topology(key: FieldReader, value: bytes | None) -> GroupRecord:
    group_id = key.text()
    if value is None:
        return TopologyRecord(group_id, None)
    fields = value_fields(value, "a topology")
    epoch = fields.int32()
    return TopologyRecord(group_id, Topology(epoch=epoch, subtopologies=_read_list(fields, _read_subtopology)))


def _read_subtopology(fields: FieldReader) -> Subtopology:
    return Subtopology(
        subtopology_id=fields.text(),
        source_topics=fields.texts(),
        source_topic_regex=fields.texts(),
        changelog_topics=_read_list(fields, _read_internal_topic),
        repartition_sink_topics=fields.texts(),
        repartition_source_topics=_read_list(fields, _read_internal_topic),
        copartition_groups=_read_list(fields, _read_copartition_group),
    )


def _read_copartition_group(fields: FieldReader) -> CopartitionGroup:
    def positions() -> tuple[int, ...]:
        return tuple(fields.int16() for _ in range(fields.count()))

    return CopartitionGroup(
        source_topics=positions(), source_topic_regex=positions(), repartition_source_topics=positions()
    )


def _write_internal_topics(fields: FieldWriter, topics: tuple[InternalTopic, ...]) -> None:
    fields.count(len(topics))
    for topic in topics:
        fields.text(topic.name)
        fields.int32(topic.partitions)
        fields.int16(topic.replication_factor)
        _write_pairs(fields, topic.configs)
        fields.tags()


def _read_internal_topic(fields: FieldReader) -> InternalTopic:
    return InternalTopic(
        name=fields.text(),
        partitions=fields.int32(),
        replication_factor=fields.int16(),
        configs=_read_pairs(fields),
    )


# Lists


def _read_list(fields: FieldReader, read: Callable[[FieldReader], T]) -> tuple[T, ...]:
    """A list of structures, each with its tagged fields behind it."""
    items = []
    for _ in range(fields.count()):
        items.append(read(fields))
        fields.tags()
    return tuple(items)


def _write_pairs(fields: FieldWriter, pairs: Sequence[tuple[str, str]]) -> None:
    fields.count(len(pairs))
    for key, value in pairs:
        fields.text(key)
        fields.text(value)
        fields.tags()


def _read_pairs(fields: FieldReader) -> tuple[tuple[str, str], ...]:
    return _read_list(fields, lambda each: (each.text(), each.text()))


_STATES: Final = {state.value: state for state in MemberState}
_READERS: Final[Mapping[int, Callable[[FieldReader, bytes | None], GroupRecord]]] = {
    EPOCH_KIND: _read_epoch,
    MEMBER_KIND: _read_member,
    TARGET_EPOCH_KIND: _read_target_epoch,
    TARGET_KIND: _read_target,
    CURRENT_KIND: _read_current,
    TOPOLOGY_KIND: _read_topology,
}
RECORD_TYPES: Final = frozenset(_READERS)
