"""Types and promises of the compiled batch builder."""

from collections.abc import Iterable, Sequence
from typing import final

from typing_extensions import Buffer

from ottla.records.layout import Codec
from ottla.records.record import Record

@final
class BatchBuilder:
    """Collects records for one batch. `build` leaves the builder as it is; make a new one for the next batch."""

    def __init__(
        self,
        *,
        codec: Codec = ...,
        level: int | None = None,
        timestamp_type: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        base_offset: int = 0,
        leader_epoch: int = -1,
    ) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """The whole batch as it would be without compression."""
    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        *,
        offset_delta: int | None = None,
    ) -> int:
        """Adds a record at the next offset, or at a later one, and returns `size_bytes`.

        Raises `BatchTooLargeError` if no batch could hold it; the builder is then as before.
        """
    def build(
        self,
        *,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        base_sequence: int | None = None,
        last_offset_delta: int | None = None,
    ) -> bytes:
        """A whole batch with its CRC. What a producer learns late can be given here.

        `last_offset_delta` may be larger than that of the last record, if those after it were removed. Without it, an
        empty batch raises `MisuseError`.
        """

def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    last_offset_delta: int | None = None,
    codec: Codec = ...,
    level: int | None = None,
    timestamp_type: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
) -> bytes:
    """A batch of these records at their own offsets, which must grow; the first is the base unless one is given."""
