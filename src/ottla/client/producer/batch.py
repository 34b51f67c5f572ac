"""One batch on its way: collected, numbered, encoded, sent, perhaps again, perhaps in pieces.

Pure: when to send it is decided in `accumulator_state.py`, and who waits for it is in its promise (`deliveries.pyx`).
"""

from typing import Final, NamedTuple, Protocol

from ottla.client.producer.deliveries import BatchPromise
from ottla.model.buffer import Buffer
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder
from ottla.records.decode import decode_records
from ottla.records.layout import HEADER_BYTES, Codec

SEQUENCES: Final = 2**31
"""Sequences wrap here to 0."""
NO_SEQUENCE: Final = -1


class Identity(NamedTuple):
    """Who an idempotent producer is for its brokers."""

    producer_id: int
    epoch: int


class Content(Protocol):
    """What a batch is made of, encoded as late as possible."""

    @property
    def count(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def build(
        self, *, producer_id: int | None = None, producer_epoch: int | None = None, base_sequence: int | None = None
    ) -> Buffer: ...


class EncodedContent:
    """A batch that came encoded, such as the columnar kernel makes them: stamped in place when it is numbered."""

    __slots__ = ("_data", "count")

    def __init__(self, data: bytearray | memoryview, count: int) -> None:
        self._data = data
        self.count = count

    @property
    def size_bytes(self) -> int:
        """What it takes on the wire."""
        return len(self._data)

    def build(
        self, *, producer_id: int | None = None, producer_epoch: int | None = None, base_sequence: int | None = None
    ) -> Buffer:
        """The same bytes, with the numbers given. Nobody may be sending them meanwhile."""
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
        """The place among the partition's batches, also when it comes back; pieces have places within its place."""
        self.created_at = created_at
        self.deadline = deadline
        """When it is given up."""
        self.size = content.size_bytes
        """What it takes of `buffer_memory`."""
        self.data: Buffer | None = None
        """Encoded; None until it is first sent, and after it was given another number."""
        self.is_closed = False
        """Takes no more records."""
        self.is_doubtful = False
        """It was sent, and nobody knows whether it was written then."""
        self.is_given_up = False
        """Its program was told that it failed, though it may still be on the wire."""
        self.tries = 0
        self.retry_at = 0.0
        self.problem = ""
        """What went wrong last."""
        self.identity: Identity | None = None
        self.sequence = NO_SEQUENCE
        """Of its first record; with `identity` it makes a batch sent twice one batch in the log."""

    @property
    def count(self) -> int:
        """How many records."""
        return self.content.count

    def encoded(self) -> Buffer:
        """The bytes to send; made once."""
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
        """Gives it its numbers."""
        self.identity, self.sequence, self.data = identity, sequence, None

    def forget_number(self) -> None:
        """It will get new ones: no broker has it under the old."""
        self.identity, self.sequence, self.data = None, NO_SEQUENCE, None

    def drop_content(self) -> None:
        """Frees the memory; deliveries keep only the promise."""
        self.data = None
        self.content = _Gone(self.content.count)

    def split(self, bytes_max: int, *, codec: Codec, level: int | None, is_async: bool) -> list["ProducerBatch"]:
        """The same records in batches of at most that size where possible, two at least, numbered on where this was.

        The promise is kept by those of the pieces. Must have more than one record.
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
    """The content of a batch that is done."""

    __slots__ = ("count",)

    size_bytes = 0

    def __init__(self, count: int) -> None:
        self.count = count

    def build(
        self, *, producer_id: int | None = None, producer_epoch: int | None = None, base_sequence: int | None = None
    ) -> Buffer:
        raise RuntimeError("a batch that is done was sent again")
