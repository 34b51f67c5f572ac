"""One batch of a producer: collected, numbered, encoded, sent, perhaps retried or split.

Pure: `accumulator_state.py` decides when to send it; its deliveries wait in its promise (`deliveries.pyx`).
"""

from typing import Final, NamedTuple, Protocol

from ottla.client.producer.batching.deliveries import BatchPromise
from ottla.model.buffer import Buffer
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder
from ottla.records.decode import decode_records
from ottla.records.layout import HEADER_BYTES, Codec

SEQUENCES: Final = 2**31
"""Sequence numbers wrap to 0 here."""
NO_SEQUENCE: Final = -1


class Identity(NamedTuple):
    """The producer id and epoch of an idempotent producer."""

    producer_id: int
    epoch: int


class Content(Protocol):
    """The records of a batch, encoded as late as possible."""

    @property
    def count(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def build(
        self, *, producer_id: int | None = None, producer_epoch: int | None = None, base_sequence: int | None = None
    ) -> Buffer: ...


class EncodedContent:
    """A batch that was encoded by the columnar kernel; sequence numbers are written into its bytes."""

    __slots__ = ("_data", "count")

    def __init__(self, data: bytearray | memoryview, count: int) -> None:
        self._data = data
        self.count = count

    @property
    def size_bytes(self) -> int:
        """The encoded size."""
        return len(self._data)

    def build(
        self, *, producer_id: int | None = None, producer_epoch: int | None = None, base_sequence: int | None = None
    ) -> Buffer:
        """The same bytes with these numbers. They must not be in flight."""
        if producer_id is not None and producer_epoch is not None and base_sequence is not None:
            Batch(self._data).stamp_producer(producer_id, producer_epoch, base_sequence)
        return self._data


class ProducerBatch:
    """Mutable; belongs to one accumulator. Times are in seconds of the monotonic clock."""

    __slots__ = (
        "content",
        "created_at",
        "data",
        "deadline",
        "identity",
        "is_closed",
        "is_doubtful",
        "is_given_up",
        "order",
        "problem",
        "promise",
        "retry_at",
        "sequence",
        "size",
        "tries",
    )

    def __init__(
        self, *, promise: BatchPromise, content: Content, order: tuple[int, ...], created_at: float, deadline: float
    ) -> None:
        self.promise = promise
        self.content = content
        self.order = order
        """The place among the batches of the partition, kept for retries; pieces have places within it."""
        self.created_at = created_at
        self.deadline = deadline
        """When it expires."""
        self.size = content.size_bytes
        """Its share of `buffer_memory`."""
        self.data: Buffer | None = None
        """The encoded bytes; None until it is first sent, and after it was renumbered."""
        self.is_closed = False
        """Takes no more records."""
        self.is_doubtful = False
        """Whether it may be in the log although no broker acknowledged it."""
        self.is_given_up = False
        """Whether it is finished; it may still be in flight."""
        self.tries = 0
        self.retry_at = 0.0
        self.problem = ""
        """The last error."""
        self.identity: Identity | None = None
        self.sequence = NO_SEQUENCE
        """The sequence number of its first record; with `identity`, brokers detect duplicates by it."""

    @property
    def count(self) -> int:
        """The number of records."""
        return self.content.count

    def encoded(self) -> Buffer:
        """The bytes to send, encoded once."""
        if self.data is None:
            if self.identity is None:
                self.data = self.content.build()
            else:
                self.data = self.content.build(
                    producer_id=self.identity.producer_id,
                    producer_epoch=self.identity.epoch,
                    base_sequence=self.sequence,
                )
        return self.data

    def number(self, identity: Identity, sequence: int) -> None:
        """Sets identity and sequence number."""
        self.identity, self.sequence, self.data = identity, sequence, None

    def forget_number(self) -> None:
        """Removes identity and sequence number: no broker has the batch under them."""
        self.identity, self.sequence, self.data = None, NO_SEQUENCE, None

    def drop_content(self) -> None:
        """Frees the memory of the records; deliveries only need the promise."""
        self.data = None
        self.content = _Gone(self.content.count)

    def split(self, bytes_max: int, *, codec: Codec, level: int | None, is_async: bool) -> list["ProducerBatch"]:
        """The same records in at least two batches of at most `bytes_max` where possible, with the same numbers.

        The promises of the pieces complete the promise of this batch, which must have more than one record.
        """
        batch = Batch(self.encoded())
        records = decode_records(batch)
        builders: list[tuple[BatchBuilder, BatchPromise]] = []
        for place, record in enumerate(records):
            bound = len(record.key or b"") + len(record.value or b"") + HEADER_BYTES
            full = bool(builders) and builders[-1][0].size_bytes + bound > bytes_max
            if not builders or full or (place == len(records) // 2 and len(builders) == 1):
                builder = BatchBuilder(codec=codec, level=level, transactional=batch.is_transactional)
                builders.append((builder, BatchPromise(self.promise.topic_partition, is_async)))
            builders[-1][0].append(record.timestamp, record.key, record.value, record.headers)
            builders[-1][1].record(record.timestamp, record.key, record.value)
        pieces: list[ProducerBatch] = []
        sequence = self.sequence
        for builder, promise in builders:
            piece = ProducerBatch(
                promise=promise,
                content=builder,
                order=(*self.order, len(pieces)),
                created_at=self.created_at,
                deadline=self.deadline,
            )
            piece.is_closed = True
            piece.tries = self.tries
            if self.identity is not None:
                piece.number(self.identity, sequence)
                sequence = (sequence + builder.count) % SEQUENCES
            pieces.append(piece)
        self.promise.split([piece.promise for piece in pieces])
        return pieces


class _Gone:
    """The content of a finished batch."""

    __slots__ = ("count",)

    size_bytes = 0

    def __init__(self, count: int) -> None:
        self.count = count

    def build(
        self, *, producer_id: int | None = None, producer_epoch: int | None = None, base_sequence: int | None = None
    ) -> Buffer:
        raise RuntimeError("a finished batch was sent again")
