"""Produce: batches as they arrived to their partitions, and one response when the last of them is safe enough.

Each part is its own: one that is refused says why, the others go on. A request with acks=0 has no response; if one of
its parts fails, the connection is closed, the only sign there is. Whether a transactional batch belongs to its
transaction is `transaction_verification.py`'s to say.
"""

from typing import TYPE_CHECKING, Any, Final

from ottla.broker.transaction_verification import TransactionalPart, TransactionalWrites
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import (
    CorruptError,
    InvalidBatchError,
    InvalidRecordError,
    InvalidTopicNameError,
    NotLeaderError,
    OttlaError,
    ProducerIdMappingError,
    StorageError,
)
from ottla.protocol.scan import ProduceRequest, ProduceResult
from ottla.records.batch import Batch
from ottla.replication.partition import Partition
from ottla.replication.timing_wheel import Timer
from ottla.storage.log import Appended
from ottla.transport.connection import Slot

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

PARTITIONS_MAX: Final = 50_000
"""Of one request: each is looked at in microseconds, during which nobody else is served."""

_ACKS: Final = frozenset({-1, 0, 1})
_CODEC_ZSTD: Final = 4
_ZSTD_VERSION: Final = 7
_MESSAGES_VERSION: Final = 8
_NOTHING_YET: Final[ProduceResult] = (int(ErrorCode.UNKNOWN_SERVER_ERROR), -1, -1, -1, None, None, None)
"""Stands for the outcome of a part that has none."""


class PendingProduce:
    """One request while its parts are being written."""

    __slots__ = ("_broker", "_has_failed", "_missing", "_partitions", "_request", "_results", "_slot", "_timer")

    def __init__(self, broker: "Broker", request: ProduceRequest, slot: Slot) -> None:
        count = len(request.parts)
        self._broker = broker
        self._request = request
        self._slot = slot
        self._missing = count
        self._has_failed = False
        self._results: list[ProduceResult] = [_NOTHING_YET] * count
        self._partitions: list[Partition | None] = []
        self._timer: Timer | None = None

    def start(self, buffer: bytearray) -> None:
        """Queues every part."""
        request = self._request
        acks, version = request.acks, request.version
        if acks not in _ACKS:
            self._refuse_all(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks} is none of -1, 0 and 1")
            return
        if request.transactional_id is not None:
            self._start_transactional(request.transactional_id, buffer)
            return
        find, partitions = self._broker.partitions.find, self._partitions
        at = 0
        for topic, index, position, size in request.parts:
            try:
                partition = find(topic, index)
                partitions.append(partition)
                batch = _only_batch(buffer, position, size, version, partition)
                if batch.is_transactional:
                    raise _NoTransactionalIdError("a transactional batch came in a request without a transactional id")
                partition.append_soon(batch, acks, self, at)
            except OttlaError as error:
                if len(partitions) == at:
                    partitions.append(None)
                self.on_outcome(at, error)
            at += 1
        if at == 0:
            self._finish()

    def _start_transactional(self, transactional_id: str, buffer: bytearray) -> None:
        """Queues every part that is in no transaction, and hands the others on, which may have to be asked for."""
        request, partitions = self._request, self._partitions
        if not request.parts:
            self._finish()
            return
        asked: list[TransactionalPart] = []
        failed: list[tuple[int, OttlaError]] = []
        for at, (topic, index, position, size) in enumerate(request.parts):
            try:
                partition = self._broker.partitions.find(topic, index)
                partitions.append(partition)
                batch = _only_batch(buffer, position, size, request.version, partition)
                if not batch.is_transactional:
                    partition.append_soon(batch, request.acks, self, at)
                elif batch.has_producer_id:
                    asked.append(TransactionalPart(partition, batch, at))
                else:
                    raise InvalidRecordError("a transactional batch needs a producer id")
            except OttlaError as error:
                if len(partitions) == at:
                    partitions.append(None)
                failed.append((at, error))
        if len({(part.batch.producer_id, part.batch.producer_epoch) for part in asked}) > 1:
            mixed = ProducerIdMappingError("the batches of one transactional id must be of one producer in one epoch")
            failed += [(part.at, mixed) for part in asked]
            asked = []
        for at, refused in failed:
            self.on_outcome(at, refused)
        if asked:
            writes = TransactionalWrites(transactional_id, request.version, request.acks, self)
            self._broker.verification.append(writes, asked)

    def on_outcome(self, at: int, outcome: Appended | OttlaError) -> None:
        """A part is as safe as was asked for, or has failed."""
        if self._results[at] is not _NOTHING_YET:
            return  # Its time was up before.
        partition = self._partitions[at]
        if isinstance(outcome, OttlaError) or partition is None:
            self._results[at] = self._failed(at, outcome)
        else:
            self._results[at] = (
                0,
                outcome.base_offset,
                outcome.append_time,
                partition.log.start_offset,
                None,
                None,
                None,
            )
        self._missing -= 1
        if self._missing == 0:
            self._finish()

    def on_waiting(self) -> None:
        """A part waits for replicas or the disk: not for longer than the client said."""
        if self._timer is None:
            self._timer = self._broker.timers.after(self._request.timeout_ms, self._on_timeout)

    def _on_timeout(self) -> None:
        self._has_failed = True
        timed_out = (int(ErrorCode.REQUEST_TIMED_OUT), -1, -1, -1, None, None, None)
        self._results = [timed_out if result is _NOTHING_YET else result for result in self._results]
        self._missing = 0
        self._finish()

    def _failed(self, at: int, error: Any) -> ProduceResult:
        self._has_failed = True
        self._broker.failed_produces += 1
        code = int(error.code)
        leader = None
        if isinstance(error, NotLeaderError):
            leader = self._broker.leader_hint(self._request.parts[at][0], self._request.parts[at][1])
        if isinstance(error, StorageError) or code == ErrorCode.UNKNOWN_SERVER_ERROR:
            self._broker.report_failure(error)
        if self._request.version < _MESSAGES_VERSION:
            return (code, -1, -1, -1, None, None, leader)
        record_errors: list[tuple[int, str | None]] | None = None
        if isinstance(error, InvalidBatchError):
            record_errors = list(error.record_errors)
        return (code, -1, -1, -1, record_errors, str(error), leader)

    def _refuse_all(self, code: ErrorCode, reason: str) -> None:
        # A request without parts has nothing that could fail.
        self._has_failed = bool(self._results)
        self._results = [(int(code), -1, -1, -1, None, reason, None)] * len(self._results)
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        results, request = self._results, self._request
        if request.acks == 0:
            if self._has_failed:
                code, message = next((result[0], result[5]) for result in results if result[0])
                self._slot.fail(f"a batch sent with acks=0 was refused: {message or ErrorCode(code).name}")
            else:
                self._slot.complete(())
            return
        try:
            endpoints = self._broker.endpoints_of(results, 6) if self._has_failed else []
            self._slot.complete((request.answer(results, endpoints, 0),))
        except Exception as error:
            self._slot.fail(f"a produce request cannot be answered: {error}")
            raise


def produce(broker: "Broker", request: ProduceRequest, buffer: bytearray, slot: Slot) -> None:
    """Serves one request; its slot is completed when it is done."""
    if len(request.parts) > PARTITIONS_MAX:
        slot.fail(f"a produce request has {len(request.parts)} partitions, {PARTITIONS_MAX} at most")
        return
    PendingProduce(broker, request, slot).start(buffer)


def _only_batch(buffer: bytearray, position: int, size: int, version: int, partition: Partition) -> Batch:
    """The one batch that a part may have."""
    if partition.topic in INTERNAL_TOPICS:
        raise InvalidTopicNameError(f"{partition.topic} is the broker's own; only its coordinators write to it")
    if size <= 0:
        raise InvalidRecordError("a produced part must have exactly one batch; this has none")
    batch = Batch(buffer, position)
    if batch.size_bytes != size:
        if batch.size_bytes > size:
            raise CorruptError(f"a batch of {batch.size_bytes} bytes does not fit its {size} bytes")
        raise InvalidRecordError("a produced part must have exactly one batch; this has more")
    if batch.base_offset != 0:
        raise InvalidRecordError(
            f"a produced batch begins at offset 0, which the broker replaces; not {batch.base_offset}"
        )
    if batch.has_producer_id and batch.base_sequence < 0:
        raise InvalidRecordError("a batch with a producer id needs a sequence number")
    if version < _ZSTD_VERSION and batch.codec == _CODEC_ZSTD:
        raise _ZstdTooOldError("zstd needs a Produce request of version 7 or newer")
    return batch


class _ZstdTooOldError(OttlaError):
    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class _NoTransactionalIdError(OttlaError):
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
