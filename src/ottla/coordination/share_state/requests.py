"""Requests, responses and effects of the share coordinator: plain values, without wire types."""

from dataclasses import dataclass

from ottla.coordination.share_state.records import NOT_SET
from ottla.coordination.share_state.state_batches import StateBatch
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStateSettings:
    """The settings of the share coordinator, `share.coordinator.*`, with Kafka's defaults."""

    updates_per_snapshot: int = 500
    prune_interval_ms: int = 300_000
    cold_snapshot_interval_ms: int = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWrite:
    """WriteShareGroupState, for one share-partition. A leader epoch, start offset or state epoch of -1 is not checked,
    or not changed."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = NOT_SET
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOutcome:
    """How one share-partition's request ended."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRead:
    """The state of one share-partition; with an error the rest is empty."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    start_offset: int = 0
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSummary:
    """Start offset and epochs of one share-partition. Without state: -1, and epochs of 0."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NOT_SET
    delivery_complete_count: int = NOT_SET


@dataclass(frozen=True, slots=True)
class PruneLog:
    """Effect: no state needs the records of the partition below this offset."""

    before: Offset
