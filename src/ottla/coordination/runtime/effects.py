"""What a coordinator's state machine answers: records to write, responses to give, and to whom.

Pure values. A machine's method returns a list of effects, to be carried out in order: `Write` appends its records to
the machine's partition as one batch, and gives its responses only when that is committed; without records it gives them
when everything before it is. `Respond` gives one at once. A record is applied to the machine by its own `replay` when
it is written, before it is committed, and again when the partition is loaded after a failure: there is one way into the
state.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.model.ids import ProducerEpoch, ProducerId


class CoordinatorRecord(NamedTuple):
    """A record of an internal topic, encoded; a `value` of None deletes what the key had."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Respond:
    """An answer to the request that was handed over with this token."""

    token: Hashable
    response: Any


@dataclass(frozen=True, slots=True)
class Write:
    """Records to append, all or none, in this order; then the responses. If the write fails, `on_failure` is given
    instead, a response for each token."""

    records: tuple[CoordinatorRecord, ...]
    responses: tuple[Respond, ...] = ()
    on_failure: tuple[Respond, ...] = ()


Effect = Respond | Write


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalWrite:
    """Like `Write`, but the records are part of the producer's transaction.

    They are appended as one batch with this producer id and epoch and no sequence, and applied by `replay` with the
    producer id. They come into force by `on_marker`, when the transaction's marker is written behind them.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    records: tuple[CoordinatorRecord, ...]
    responses: tuple[Respond, ...] = ()
    on_failure: tuple[Respond, ...] = ()
