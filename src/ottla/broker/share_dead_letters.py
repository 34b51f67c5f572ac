"""Writes the dead letters of share groups (KIP-1191): which topic, what they contain, and when there is none.

A group names its dead-letter topic. As in Kafka the topic must allow that (`errors.deadletterqueue.group.enable`), its
name must begin with the cluster's prefix, and it is created only if the broker's configs say so. If one of these does
not hold, or the topic refuses the record, the record is archived without a dead letter and the log says so, with group,
partition, offsets and count: a topic that is set up wrong must not stop a group. Everything else that goes wrong, such
as a partition without a leader, is tried again (`DeadLettersDelayedError`).

When dead letters are due is decided in `ottla.coordination.share_partitions`.
"""

import asyncio
import logging
from array import array
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.broker.configs.config_view import ConfigView
from ottla.controller.decisions import NewTopic
from ottla.controller.topic_names import fault_of_name
from ottla.coordination.share_partitions.dead_letter_delivery import DeadLettersDelayedError
from ottla.coordination.share_partitions.settings import SettingsOf
from ottla.coordination.share_partitions.share_counts import ShareCounts
from ottla.coordination.share_partitions.share_partition_state import DeadLetters
from ottla.coordination.share_state.records import ShareKey
from ottla.env.ports import Clock, Disk
from ottla.metadata.configs.topic_configs import TOPIC_CONFIGS
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.model.dead_letters import DeadLetter, Origin, dead_letter_headers, dead_letter_partition
from ottla.model.errors import CorruptError, InvalidConfigError, OttlaError, TopicRefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.queues.sinks import Outcome, Sinks
from ottla.records.batch import Batch, scan
from ottla.records.builder import BatchBuilder
from ottla.records.payload import INLINE_BYTES_MAX, unpack
from ottla.records.picking import RecordBlock
from ottla.records.record import Record
from ottla.replication.partition import Partition

_LOGGER: Final = logging.getLogger(__name__)
_ENABLED: Final = "errors.deadletterqueue.group.enable"
_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
_AUTO_CREATE: Final = "errors.deadletterqueue.auto.create.topics.enable"
RECORDS_MAX: Final = 500
"""Of one batch of dead letters."""
_READ_BYTES: Final = 1024 * 1024
"""Of the records that one batch of dead letters copies."""
_LOOKED_BYTES: Final = 16 * 1024 * 1024
"""What the batches that have these records may decompress to, except for a single larger one."""
_STORY_BYTES_MAX: Final = 2048
"""More than the headers of a dead letter take, without the group's id."""


class _NoPlaceError(Exception):
    """The group's dead letters cannot be written, whatever is tried."""


class _Source(NamedTuple):
    """What the log has of some offsets."""

    records: Mapping[int, Record] = MappingProxyType({})
    """Without those that the log has no more, or that cannot be read."""
    markers: Container[int] = ()
    """Offsets of transaction markers, which are not records."""
    through: int = 2**63 - 1
    """The last offset that was looked at."""


_NOTHING: Final = _Source()


class ShareDeadLetters:
    """Writes dead letters to the partitions of the cluster, for all share groups of this broker."""

    def __init__(
        self,
        sinks: Sinks,
        configs: ConfigView,
        *,
        image: Callable[[], ClusterImage],
        settings_of: SettingsOf,
        create_topic: Callable[[NewTopic], Awaitable[None]],
        clock: Clock,
        disk: Disk,
        counts: ShareCounts,
    ) -> None:
        self._sinks = sinks
        self._configs = configs
        self._image = image
        self._settings_of = settings_of
        self._create_topic = create_topic
        self._clock = clock
        self._disk = disk
        self._counts = counts
        self._decompressing = asyncio.Lock()

    async def write(self, key: ShareKey, partition: Partition, letters: Sequence[DeadLetters]) -> int:
        """Writes one batch of these dead letters; see `WriteDeadLetters`."""
        try:
            topic = await self._topic_of(key.group_id, partition.topic)
        except _NoPlaceError as error:
            return self._give_up(key, partition, letters, str(error))
        wanted = _first_of(letters)
        source = await self._read(partition, wanted, is_copied=self._settings_of(key.group_id).copies_dead_letters)
        bytes_max = self._configs.settings_of(topic.configs).log.batch_bytes_max
        builder = BatchBuilder()
        settled: list[tuple[int, DeadLetters]] = []
        for offset, letter in wanted:
            if offset > source.through:
                break
            if offset not in source.markers:
                record = source.records.get(offset)
                if builder.count and builder.size_bytes + _size_of(record, key.group_id) > bytes_max:
                    break
                self._append(builder, key, partition, offset, letter, record)
            settled.append((offset, letter))
        if not builder.count:
            return len(settled)
        sink = TopicPartition(topic.name, dead_letter_partition(partition.index, len(topic.partitions)))
        outcome, why = await self._sinks.append(sink, bytearray(builder.build()))
        if outcome is Outcome.APPENDED:
            self._counts.dead_letters += builder.count
            return len(settled)
        if outcome is not Outcome.REFUSED:
            raise DeadLettersDelayedError(f"partition {sink}: {why}")
        if not source.records:
            refused = [letter._replace(first=offset, last=offset) for offset, letter in settled]
            return self._give_up(key, partition, refused, f"topic {topic.name} refuses them: {why}")
        return await self._write_one_by_one(key, partition, settled, source, sink)

    async def _write_one_by_one(
        self,
        key: ShareKey,
        partition: Partition,
        wanted: Sequence[tuple[int, DeadLetters]],
        source: _Source,
        sink: TopicPartition,
    ) -> int:
        """The topic refuses a batch: a record that it refuses does not take the others with it."""
        settled = 0
        try:
            for offset, letter in wanted:
                if offset not in source.markers:
                    await self._write_one(key, partition, offset, letter, source.records.get(offset), sink)
                settled += 1
        except DeadLettersDelayedError:
            if not settled:
                raise
        return settled

    async def _write_one(
        self,
        key: ShareKey,
        partition: Partition,
        offset: int,
        letter: DeadLetters,
        record: Record | None,
        sink: TopicPartition,
    ) -> None:
        builder = BatchBuilder()
        self._append(builder, key, partition, offset, letter, record)
        outcome, why = await self._sinks.append(sink, bytearray(builder.build()))
        if outcome is Outcome.APPENDED:
            self._counts.dead_letters += 1
        elif outcome is not Outcome.REFUSED:
            raise DeadLettersDelayedError(f"partition {sink}: {why}")
        elif record is not None:
            await self._write_headers(key, partition, offset, letter, sink, why)
        else:
            alone = letter._replace(first=offset, last=offset)
            self._give_up(key, partition, [alone], f"topic {sink.topic} refuses it: {why}")

    async def _write_headers(
        self, key: ShareKey, partition: Partition, offset: int, letter: DeadLetters, sink: TopicPartition, why: str
    ) -> None:
        """The topic refuses the copy of a record. Its size may be the reason: headers still say which record it was."""
        _LOGGER.warning(
            "share group %s: dead-letter topic %s refuses a copy of the record of partition %s-%d, offset %d: %s; "
            "writing its headers only",
            key.group_id, sink.topic, partition.topic, partition.index, offset, why,
        )  # fmt: skip
        await self._write_one(key, partition, offset, letter, None, sink)

    def _give_up(self, key: ShareKey, partition: Partition, letters: Sequence[DeadLetters], why: str) -> int:
        count = sum(each.last - each.first + 1 for each in letters)
        self._counts.dead_letters_failed += count
        _LOGGER.error(
            "share group %s: archived %d records of partition %s-%d, offsets %d to %d, without a dead letter: %s",
            key.group_id, count, partition.topic, partition.index, min(each.first for each in letters),
            max(each.last for each in letters), why,
        )  # fmt: skip
        return count

    # The topic

    async def _topic_of(self, group_id: str, source: str) -> TopicImage:
        """The group's dead-letter topic, if it may have the group's dead letters."""
        name = self._settings_of(group_id).dead_letter_topic
        if not name:
            raise _NoPlaceError("the group no longer has a dead-letter topic")
        if name == source:
            raise _NoPlaceError(f"dead-letter topic {name} is the topic of the record itself")
        topic = self._image().topics.get(name)
        if topic is not None and not _is_enabled(topic):
            raise _NoPlaceError(f"topic {name} is not enabled for dead letters: set its config {_ENABLED}=true")
        if topic is not None and topic.is_internal:
            # Records get in there through a gate only, which reads and sets their headers.
            raise _NoPlaceError(f"topic {name} is internal: it holds the parked records of a queue")
        values = self._configs.current.values
        prefix = str(values[_PREFIX] or "")
        if not name.startswith(prefix) or name.startswith("__"):
            raise _NoPlaceError(f"the name of dead-letter topic {name} must start with {prefix!r} ({_PREFIX})")
        if topic is None and values[_AUTO_CREATE] is not True:
            raise _NoPlaceError(f"dead-letter topic {name} does not exist, and {_AUTO_CREATE} is false")
        fault = fault_of_name(name) if topic is None else None
        if fault is not None:
            raise _NoPlaceError(fault)
        if topic is None:
            # The times are those of the dead letters, whatever the cluster's default is.
            await self._create(name, {_ENABLED: "true", "message.timestamp.type": "CreateTime"})
            topic = self._image().topics.get(name)
        if topic is None:
            raise DeadLettersDelayedError(f"topic {name} does not exist yet")
        return topic

    async def _create(self, name: str, configs: Mapping[str, str]) -> None:
        try:
            await self._create_topic(NewTopic(name=name, configs=configs))
        except TopicRefusedError as error:
            raise _NoPlaceError(str(error)) from error
        except OttlaError as error:
            raise DeadLettersDelayedError(str(error)) from error
        _LOGGER.info("created dead-letter topic %s", name)

    # The content

    def _append(
        self,
        builder: BatchBuilder,
        key: ShareKey,
        partition: Partition,
        offset: int,
        letter: DeadLetters,
        record: Record | None,
    ) -> None:
        story = DeadLetter(
            origin=Origin(topic=partition.topic, partition=partition.index, offset=offset),
            reason=letter.reason.value,
            group=key.group_id,
            attempts=letter.delivery_count,
        )
        headers = dead_letter_headers(() if record is None else record.headers, story)
        now_ms = self._clock.now_ms()
        if record is None:
            builder.append(now_ms, None, None, headers)
        else:
            builder.append(now_ms, record.key, record.value, headers)

    async def _read(
        self, partition: Partition, wanted: Sequence[tuple[int, DeadLetters]], *, is_copied: bool
    ) -> _Source:
        """What one read of the log tells about these offsets."""
        first, last = max(wanted[0][0], partition.start_offset), wanted[-1][0]
        if first > last:
            return _NOTHING
        try:
            found = partition.read(Offset(first), _READ_BYTES, is_committed=False, at_least_one=True)
            if found is None or not found.size:
                return _NOTHING
            content = await self._disk.in_background(found.file.read_at, found.position, found.size)
            batches, _, problem = scan(content)
            if problem is not None and not batches:
                raise CorruptError(problem)
            return await self._source(batches, [offset for offset, _ in wanted], is_copied=is_copied)
        except OttlaError as error:
            _LOGGER.warning(
                "partition %s-%d: cannot read offsets %d to %d; their dead letters have headers only: %s",
                partition.topic, partition.index, first, last, error,
            )  # fmt: skip
            return _NOTHING

    async def _source(self, batches: Sequence[Batch], wanted: Sequence[int], *, is_copied: bool) -> _Source:
        records: dict[int, Record] = {}
        markers: set[int] = set()
        copied_bytes = looked_bytes = 0
        for batch in batches:
            here = wanted[bisect_left(wanted, batch.base_offset) : bisect_left(wanted, batch.next_offset)]
            if not here:
                continue
            if batch.is_control:
                markers.update(here)
            elif is_copied:
                # One at a time, for all groups: compressed records may take a thousand times the memory of a batch.
                async with self._decompressing:
                    looked_bytes += await unpack(batch, self._disk.in_background)
                    block = await self._pick(batch, here)
                    batch.unpacked = None
                records |= {offset: block.record(offset) for offset in here if offset in block}
                copied_bytes += block.size_bytes
                if copied_bytes >= _READ_BYTES or looked_bytes >= _LOOKED_BYTES:
                    return _Source(records, markers, int(batch.last_offset))
        return _Source(records, markers, int(batches[-1].last_offset))

    async def _pick(self, batch: Batch, offsets: Sequence[int]) -> RecordBlock:
        if batch.unpacked is None or len(batch.unpacked) <= INLINE_BYTES_MAX:
            return RecordBlock(batch, array("q", offsets))
        return await self._disk.in_background(RecordBlock, batch, array("q", offsets))


def _first_of(letters: Sequence[DeadLetters]) -> list[tuple[int, DeadLetters]]:
    """The offsets of the first dead letters, ascending, with what is known of each: those of one batch at most."""
    found: list[tuple[int, DeadLetters]] = []
    for letter in letters:
        if len(found) >= RECORDS_MAX or (found and letter.first <= found[-1][0]):
            break
        last = min(letter.last, letter.first + RECORDS_MAX - len(found) - 1)
        found += [(offset, letter) for offset in range(letter.first, last + 1)]
    return found


def _size_of(record: Record | None, group_id: str) -> int:
    """The size of a dead letter, or a little more."""
    story = _STORY_BYTES_MAX + 4 * len(group_id)
    if record is None:
        return story
    headers = sum(len(name) * 4 + len(value or b"") + 10 for name, value in record.headers)
    return story + len(record.key or b"") + len(record.value or b"") + headers


def _is_enabled(topic: TopicImage) -> bool:
    try:
        return TOPIC_CONFIGS[_ENABLED].parse(topic.configs.get(_ENABLED, "false")) is True
    except InvalidConfigError:
        return False
