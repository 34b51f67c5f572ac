"""One `poll_arrow` of a share consumer: chunks become Arrow batches, and what is not returned goes back or is released.

Needs pyarrow. `arrow_acquired.py` decodes, `ottla.client.fetch.typed_columns` makes typed columns.
"""

from collections.abc import Sequence

from ottla.client.consumer.errors import RecordDeserializationError
from ottla.client.fetch.arrow_chunks import Polled, as_batches
from ottla.client.fetch.typed_columns import BadValues, TypedColumns
from ottla.client.needed_arrow import pa
from ottla.client.share.acquired_chunk import AcquiredChunk, AcquiredRanges
from ottla.client.share.arrow_acquired import ArrowAcquired, acquired_columns
from ottla.client.share.core import ShareConsumerCore
from ottla.client.share.values import AcknowledgeType
from ottla.model.ids import TopicPartition
from ottla.protocol.share_frames import AcknowledgementBatch


class ArrowPoll:
    """The work of one poll, in the program's thread."""

    def __init__(self, core: ShareConsumerCore, *, headers: bool, bad_values: BadValues) -> None:
        config = core.config
        self._core = core
        self._headers = headers
        self._bad_values = bad_values
        self._typed = TypedColumns.of(config.key_deserializer, config.value_deserializer)

    def batches(self, chunks: Sequence[AcquiredChunk]) -> dict[TopicPartition, pa.RecordBatch]:
        """The records of these chunks, each of another partition. Raises `NotPreparedError`: prepare, and call again.

        Raises `UnreadableRecordError` if a corrupt batch comes first, whose records are rejected, and
        `RecordDeserializationError` if a value cannot be read, whose record is released. The other records are returned
        by the next poll.
        """
        decoded = [acquired_columns(each, headers=self._headers or bool(self._typed)) for each in chunks]
        both = list(zip(chunks, decoded, strict=True))
        polled = Polled(
            batches={chunk.partition: found.batches for chunk, found in both if found.batches},
            rewinds={},
            error=None,
        )
        if self._typed:
            polled = self._typed.apply(polled, (), headers=self._headers, bad_values=self._bad_values)
        if polled.error is not None:
            self._put_back(chunks, polled.error)
            raise polled.error
        for chunk, each in reversed(both):
            self._deliver(chunk, each, polled.rewinds.get(chunk.partition))
        failed = [each.error for each in decoded if each.error is not None]
        if failed and not polled.batches:
            raise failed[0]
        for error in failed:
            self._core.raise_later(error)
        return as_batches(polled.batches)

    def release(self, chunks: Sequence[AcquiredChunk]) -> None:
        """Gives all records back to the group: their deserializer cannot be prepared."""
        for chunk in chunks:
            released = [AcknowledgementBatch(first, last, AcknowledgeType.RELEASE) for first, last, _ in chunk.ranges]
            self._core.delivered(chunk, (), released)

    def _deliver(self, chunk: AcquiredChunk, decoded: ArrowAcquired, end: int | None) -> None:
        """Notes what is returned: all, or only the records before `end`, where a value cannot be read."""
        if end is None:
            self._core.delivered(chunk, decoded.offsets, decoded.own)
            rest = decoded.rest
        else:
            ranges = AcquiredRanges(chunk.ranges)
            ranges.pass_to(end)
            own = [
                each._replace(last_offset=min(each.last_offset, end - 1))
                for each in decoded.own
                if each.first_offset < end
            ]
            self._core.delivered(chunk, [each for each in decoded.offsets if each < end], own)
            rest = AcquiredChunk(partition=chunk.partition, lock=chunk.lock, batches=chunk.batches, ranges=ranges.left)
        if rest is not None:
            self._core.put_back(rest)

    def _put_back(self, chunks: Sequence[AcquiredChunk], error: object) -> None:
        """Nothing is returned: the record that cannot be read is released, and all others wait for the next poll."""
        for chunk in reversed(chunks):
            kept = chunk.ranges
            if isinstance(error, RecordDeserializationError) and error.partition == chunk.partition:
                ranges = AcquiredRanges(kept)
                ranges.pass_to(error.offset + 1, AcknowledgeType.RELEASE)
                self._core.delivered(chunk, (), ranges.own)
                kept = ranges.left
            if kept:
                self._core.put_back(
                    AcquiredChunk(partition=chunk.partition, lock=chunk.lock, batches=chunk.batches, ranges=kept)
                )
