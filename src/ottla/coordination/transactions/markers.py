"""Which partitions of a decided transaction still lack their marker, and when to try again.

Volatile: nothing of it is in the log, and a new coordinator begins with all partitions. That is harmless, since a
partition that gets the same marker twice is none the worse. The decision itself is `transaction_state.py`'s.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ottla.coordination.transactions.records import TransactionEntry, TransactionStatus
from ottla.coordination.transactions.requests import SendMarkers, TransactionSettings
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition

DONE: Final = frozenset(
    {
        ErrorCode.NONE,
        # The cluster no longer has the partition: no reader waits for its marker.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Outcomes after which a partition needs no marker."""

FENCED: Final = frozenset({ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Outcomes that show a newer coordinator, which completes the transaction. Any other error is retried."""


def markers_of(transactional_id: str, entry: TransactionEntry, coordinator_epoch: int) -> SendMarkers:
    """The markers of a decided transaction, for all its partitions."""
    return SendMarkers(
        transactional_id=transactional_id,
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        coordinator_epoch=coordinator_epoch,
        commit=entry.status is TransactionStatus.PREPARE_COMMIT,
        partitions=entry.partitions,
        transaction_version=entry.client_version,
    )


class MarkerProgress:
    """The markers of one decided transaction. All are in flight at first, since the decision's own effects send them;
    `resend_all` is for a coordinator that has replayed the decision."""

    __slots__ = ("_all", "_attempts", "_under_way", "_waiting", "is_fenced")

    def __init__(self, transactional_id: str, entry: TransactionEntry, coordinator_epoch: int) -> None:
        self._all = markers_of(transactional_id, entry, coordinator_epoch)
        self._waiting = dict.fromkeys(entry.partitions)
        self._under_way = dict.fromkeys(entry.partitions)
        self._attempts = 0
        self.is_fenced = False

    @property
    def waiting(self) -> tuple[TopicPartition, ...]:
        """The partitions that still lack a marker."""
        return tuple(self._waiting)

    def resend_all(self) -> None:
        """No marker is in flight, as far as a coordinator knows that has replayed the decision."""
        self._under_way.clear()

    def take_due(self) -> SendMarkers | None:
        """The markers that are neither written nor in flight; they are in flight from now on."""
        due = tuple(partition for partition in self._waiting if partition not in self._under_way)
        if not due or self.is_fenced:
            return None
        self._under_way.update(dict.fromkeys(due))
        return replace(self._all, partitions=due)

    def on_written(self, sent: SendMarkers, errors: Mapping[TopicPartition, ErrorCode]) -> bool:
        """Records the outcomes of an earlier effect; a partition without an outcome is retried. False, without any
        change, for an effect of another decision."""
        if replace(sent, partitions=self._all.partitions) != self._all:
            return False
        self._attempts += 1
        for partition in sent.partitions:
            self._under_way.pop(partition, None)
            error = errors.get(partition, ErrorCode.REQUEST_TIMED_OUT)
            if error in DONE:
                self._waiting.pop(partition, None)
            elif error in FENCED:
                self.is_fenced = True
        return True

    def backoff_ms(self, settings: TransactionSettings) -> int:
        """How long to wait before the next retry: doubled each time, up to a limit."""
        doublings = min(max(self._attempts - 1, 0), 30)
        return min(settings.retry_ms << doublings, settings.retry_max_ms)
