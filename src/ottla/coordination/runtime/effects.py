"""What a coordinator's state machine returns: records to write, and responses to requests.

Pure values. A machine's method returns a list of effects, to be carried out in order: `Write` appends its records to
the machine's partition as one batch, and sends its responses when that is committed; without records it sends them when
everything before it is committed. `Respond` sends one at once. A record is applied to the machine by `replay` when it
is written, before it is committed, and again when the partition is loaded: there is no other way into the state.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from ottla.model.ids import ProducerEpoch, ProducerId


class CoordinatorRecord(NamedTuple):
    """A record of an internal topic, encoded; a `value` of None is a tombstone."""

    key: bytes
    value: bytes | None


class PackedRecords(Protocol):
    """Records that write their own batch: there may be many, and none has to be an object."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[CoordinatorRecord]: ...

    def batch(self, timestamp: int) -> bytearray:
        """A batch of all of them, uncompressed and of no producer."""


class DecodedRecord(CoordinatorRecord):
    """A record that this broker encoded itself, with what it was encoded from: `replay` need not decode it.

    Equal to the plain record with the same bytes; `content` is what decoding these bytes gives.
    """

    content: Any


class Respond(Struct, frozen=True):
    """The response to the request that came with this token."""

    token: Hashable
    response: Any


class Write(Struct, frozen=True):
    """Records to append as one batch, then the responses. If the write fails, `on_failure` is sent instead, a response
    for each token."""

    records: tuple[CoordinatorRecord, ...] | PackedRecords
    responses: tuple[Respond, ...] = ()
    on_failure: tuple[Respond, ...] = ()


Effect = Respond | Write


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalWrite:
    """Like `Write`, but the records are part of the producer's transaction.

    They are appended as one batch with this producer id and epoch and no sequence, and applied by `replay` with the
    producer id. They take effect with `on_marker`, when the transaction's marker is written after them.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    records: tuple[CoordinatorRecord, ...]
    responses: tuple[Respond, ...] = ()
    on_failure: tuple[Respond, ...] = ()
