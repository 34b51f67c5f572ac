"""What a share fetch returned of one partition: batches, and which of their offsets were acquired.

A batch also has records that other members have, or that are done. `AcquiredReader` picks the acquired ones, some at a
time, and finds the acquired offsets that have no record: gaps that compaction and transaction markers leave, which must
be acknowledged too. A record that cannot be deserialized is released, and the acquired records of a corrupt batch are
rejected, after the records before them were returned. `arrow_acquired.py` makes Arrow batches of the same chunks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.consumer.errors import RecordDeserializationError, UnreadableRecordError
from ottla.client.serializers import Deserializer, NotPreparedError
from ottla.client.share.acquired_records_state import Lock
from ottla.client.share.values import AcknowledgeType, ShareRecord
from ottla.client.values import ConsumerRecord
from ottla.model.errors import CorruptError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.protocol.share_frames import GAP, AcknowledgementBatch, AcquiredRange
from ottla.records.batch import Batch
from ottla.records.record_reader import RecordReader

_READ_RECORDS: Final = 256
"""How many records of a batch are made at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquiredChunk:
    """Whole batches of one partition, and the acquired ranges in them, sorted and without overlaps."""

    partition: TopicPartition
    lock: Lock
    batches: Sequence[Batch]
    ranges: Sequence[AcquiredRange]

    @property
    def count(self) -> int:
        """How many offsets were acquired."""
        return sum(each.last_offset - each.first_offset + 1 for each in self.ranges)


def sorted_ranges(ranges: Iterable[AcquiredRange]) -> list[AcquiredRange]:
    """Acquired ranges in order; an offset that is in two of them counts for the first."""
    found: list[AcquiredRange] = []
    for each in sorted(ranges):
        first = max(each.first_offset, found[-1].last_offset + 1) if found else each.first_offset
        if first <= each.last_offset:
            found.append(each._replace(first_offset=first))
    return found


class AcquiredRanges:
    """The acquired offsets of a chunk that were not passed yet; collects those that have no record."""

    def __init__(self, ranges: Sequence[AcquiredRange]) -> None:
        self.own: list[AcknowledgementBatch] = []
        """Acquired offsets that no poll returns, and how they are to be acknowledged; the owner takes them."""
        self._left = list(reversed(ranges))
        """The next range is the last."""

    @property
    def is_done(self) -> bool:
        """Whether all offsets were passed."""
        return not self._left

    @property
    def left(self) -> tuple[AcquiredRange, ...]:
        """The offsets that were not passed yet, in order."""
        return tuple(reversed(self._left))

    def count_at(self, offset: int) -> int | None:
        """The delivery count at an offset, None if it is not acquired; acquired offsets before it are gaps."""
        self.pass_to(offset)
        if not self._left or offset < self._left[-1].first_offset:
            return None
        return self._left[-1].delivery_count

    def pass_to(self, offset: int | None, how: int = GAP) -> None:
        """Passes the acquired offsets before `offset`, None for all, which are acknowledged like that."""
        while self._left and (offset is None or self._left[-1].first_offset < offset):
            first, last, _ = self._left[-1]
            upto = last if offset is None else min(last, offset - 1)
            self.own.append(AcknowledgementBatch(first, upto, how))
            self._shorten(upto + 1)

    def pass_record(self, offset: int) -> None:
        """Passes the offset of a record, which `count_at` found acquired."""
        self._shorten(offset + 1)

    def _shorten(self, start: int) -> None:
        current = self._left.pop()
        if start <= current.last_offset:
            self._left.append(current._replace(first_offset=start))


class AcquiredReader:
    """Reads the acquired records of a chunk, from front to back."""

    def __init__(
        self,
        chunk: AcquiredChunk,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        check_crcs: bool = True,
    ) -> None:
        self.chunk = chunk
        self._key = _call_of(key_deserializer, is_key=True)
        self._value = _call_of(value_deserializer, is_key=False)
        self._check_crcs = check_crcs
        self._batches = list(chunk.batches)
        self._ranges = AcquiredRanges(chunk.ranges)
        self._raw: list[ConsumerRecord] = []
        """Records that were made and not looked at yet; the next is the last."""
        self._reader = self._reader_from(chunk.ranges[0].first_offset if chunk.ranges else 0)
        self._failure: OttlaError | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to return or raise."""
        return self._ranges.is_done and self._failure is None

    def rest(self) -> AcquiredChunk:
        """What was not read yet, as a chunk of its own."""
        return AcquiredChunk(
            partition=self.chunk.partition,
            lock=self.chunk.lock,
            batches=self._batches,
            ranges=self._ranges.left,
        )

    def take_own(self) -> list[AcknowledgementBatch]:
        """Acquired offsets that are not returned, and how they are to be acknowledged; each once."""
        own, self._ranges.own = self._ranges.own, []
        return own

    def read(self, count_max: int) -> list[ShareRecord]:
        """The next records. Raises `RecordDeserializationError` or `UnreadableRecordError` if the next one is bad, and
        `NotPreparedError` if its deserializer must be prepared first; then the call can be repeated."""
        found: list[ShareRecord] = []
        while self._failure is None and not self._ranges.is_done and len(found) < count_max:
            try:
                record = self._next()
            except NotPreparedError:
                if found:
                    return found
                raise
            if record is not None:
                found.append(record)
        if not found and self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return found

    def _next(self) -> ShareRecord | None:
        """The next acquired record; None if that is known only after another step."""
        raw = self._next_raw()
        if raw is None:
            if self._failure is None:
                self._ranges.pass_to(None)
            return None
        count = self._ranges.count_at(raw.offset)
        made = None if count is None else self._made(raw, count)
        self._raw.pop()
        if made is not None:
            self._ranges.pass_record(raw.offset)
        return made

    def _next_raw(self) -> ConsumerRecord | None:
        """The next record with an acquired offset or a higher one, which stays in `_raw`; None at the end."""
        while not self._raw:
            if self._reader.is_done:
                return None
            try:
                self._raw = self._reader.read(_READ_RECORDS)
            except CorruptError as error:
                self._skip_batch(self._reader.next_offset, error)
                return None
            self._raw.reverse()
        return self._raw[-1]

    def _made(self, raw: ConsumerRecord, delivery_count: int) -> ShareRecord | None:
        """The record with its key and value deserialized; None if that failed, and the record is released."""
        try:
            key = raw.key if self._key is None or raw.key is None else self._key(raw, raw.key)
            value = raw.value if self._value is None or raw.value is None else self._value(raw, raw.value)
        except NotPreparedError:
            raise
        except Exception as error:
            self._fail(raw.offset, f"a deserializer raised {type(error).__name__}: {error}")
            return None
        return ShareRecord(*raw[:6], key, value, *raw[8:], delivery_count)

    def refuse(self, error: BaseException) -> None:
        """The deserializer of the next record cannot be prepared: the record is released, and `read` raises that."""
        if self._raw:
            self._fail(self._raw.pop().offset, f"the deserializer cannot be prepared: {error}")

    def _fail(self, offset: int, why: str) -> None:
        partition = self.chunk.partition
        self._ranges.pass_to(offset + 1, AcknowledgeType.RELEASE)
        words = f"{partition} at offset {offset}: {why}; the record is released, and delivered again up to the limit"
        self._failure = RecordDeserializationError(partition, offset, words)

    def _skip_batch(self, offset: int, error: CorruptError) -> None:
        """Rejects the acquired records of a corrupt batch and goes on after it."""
        end = next((each.next_offset for each in self._batches if each.next_offset > offset), offset + 1)
        self._ranges.pass_to(offset)
        self._ranges.pass_to(end, AcknowledgeType.REJECT)
        words = f"{self.chunk.partition} at offset {offset}: {error}; the records of the batch are rejected"
        self._failure = UnreadableRecordError(self.chunk.partition, offset, words)
        self._reader = self._reader_from(end)

    def _reader_from(self, start: int) -> "RecordReader[ConsumerRecord]":
        self._batches = [each for each in self._batches if each.next_offset > start]
        topic, partition = self.chunk.partition
        return RecordReader(ConsumerRecord, topic, partition, self._batches, start, check_crcs=self._check_crcs)


def _call_of(deserializer: Deserializer | None, *, is_key: bool) -> Any:
    """A function of (record, bytes); None without a deserializer."""
    if deserializer is None:
        return None
    of_record = getattr(deserializer, "deserialize_record", None)
    if of_record is not None:
        return lambda raw, data: of_record(raw.topic, raw.headers, data, is_key)
    return lambda _, data: deserializer(data)  # type: ignore[operator]
