"""Requests and responses of the transaction coordinator, and its effects beyond those of `effects.py`.

Plain values, without wire types or versions. Errors are semantic: a fenced producer is always PRODUCER_FENCED here; the
handlers translate it for clients that are too old for that code. AddOffsetsToTxn is `AddPartitions` with the group's
partition of `__consumer_offsets`. The requests are handled in `shard_state.py`.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from ottla.coordination.runtime.effects import Effect, Respond
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)

EPOCH_BUMP_VERSION: Final = 2
"""The `transaction.version` from which on every end of a transaction bumps the producer's epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """The transaction configs of a broker; the defaults are Kafka's.

    `transaction_version` is the cluster's feature level: it decides how timeouts abort and records are written.
    """

    timeout_max_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    transaction_version: int = 2
    retry_ms: int = 100
    retry_max_ms: int = 5_000


# Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer takes a transactional id over, or, with the expected id and epoch, continues after an error."""

    transactional_id: str
    timeout_ms: int
    expected_producer_id: ProducerId = NO_PRODUCER_ID
    expected_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Partitions join the transaction, or with `verify_only` are only verified. `client_version` is 2 if brokers add
    the partitions for the client, 0 if it adds them itself."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False
    client_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """Commit or abort. `client_version` is 2 for a client that expects a new epoch in return, and 0 for one that does
    not."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    commit: bool
    client_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTimedOut:
    """The coordinator's own wish to abort a transaction that ran too long, unless it went on meanwhile."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    start_ms: TimestampMs


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """Which transactional ids to list; an empty filter, or a duration below 0, lets all pass."""

    states: tuple[str, ...] = ()
    producer_ids: frozenset[ProducerId] = frozenset()
    duration_ms: int = -1


# Responses


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdResponse:
    """The response to `InitProducerId` and `EndTransaction`: the id and epoch that the producer continues with.
    A client of version 0 or 1 that ends a transaction keeps its own, and gets -1."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsResponse:
    """An outcome for each partition that was asked for, in that order."""

    errors: tuple[tuple[TopicPartition, ErrorCode], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    """One line of a list."""

    transactional_id: str
    producer_id: ProducerId
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionList:
    """The ids that passed the filter, and the unknown states in it."""

    unknown_states: tuple[str, ...] = ()
    transactions: tuple[ListedTransaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """One transactional id in detail. `start_ms` and `partitions` say since when and where an open transaction holds
    readers back; a producer that holds a partition which is not listed here hangs."""

    transactional_id: str
    error: ErrorCode = ErrorCode.NONE
    state: str = ""
    timeout_ms: int = 0
    start_ms: TimestampMs = NO_TIMESTAMP
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    partitions: tuple[TopicPartition, ...] = ()


# Effects


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMarkers:
    """Write this outcome to these partitions, then call `on_markers_written` with this very effect.

    Carried out only when every record that was written before it is committed, since a marker must never precede its
    decision; and not at all if the `Write` ahead of it in the same list could not be appended. `transaction_version`
    says whether the marker's epoch must exceed that of the data (from 2 on), or may equal it.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedProducerId:
    """A decision needs a new producer id: allocate one, and call `on_producer_id` with this effect. If that fails,
    send `on_failure` instead."""

    request: InitProducerId | EndTransaction | AbortTimedOut
    token: Hashable
    on_failure: tuple[Respond, ...] = ()


TransactionEffect = Effect | SendMarkers | NeedProducerId
"""All that a shard of the transaction coordinator may answer."""
