"""Produce: appends batches to their partitions, and responds when all of them are as safe as `acks` asks for.

Each partition has its own result: one that is refused does not affect the others. A request with acks=0 has no
response; if one of its batches fails, the connection is closed. Whether a transactional batch belongs to its
transaction is decided in `ottla.coordination.transactions.verification`.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ottla.broker.requests.decompression import NOTHING as NOTHING_DECOMPRESSED
from ottla.broker.requests.decompression import Part
from ottla.broker.requests.leader_hints import endpoints_of, leader_hint, topic_name
from ottla.broker.requests.services import Services
from ottla.broker.requests.throttling import throttle
from ottla.broker.schema_validation.held_batches import UndecidedError
from ottla.controller.companions_state import mark_of
from ottla.coordination.transactions.verification import TransactionalPart, TransactionalWrites
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import (
    CorruptError,
    InvalidBatchError,
    InvalidRecordError,
    InvalidRequestError,
    NotLeaderError,
    OttlaError,
    ProducerIdMappingError,
    StorageError,
    UnknownTopicIdError,
)
from ottla.model.ids import QUEUE_PRODUCER_BIT
from ottla.model.invariants import violated
from ottla.model.queue_names import PARKING_KINDS, CompanionKind
from ottla.protocol.results import ProduceResult
from ottla.protocol.scan import ProduceRequest
from ottla.records.batch import Batch
from ottla.replication.partition import Partition
from ottla.replication.timing_wheel import Deadline
from ottla.security.authorizer import TopicAuthorizationError, allows_cached
from ottla.security.resources import CLUSTER_NAME, Operation, ResourceType
from ottla.storage.batch_validation import validate_ahead
from ottla.storage.log import Appended
from ottla.transport.connection import Slot

PARTITIONS_MAX: Final = 250_000
"""Of one request: each takes microseconds, in which no other request is served."""

_ACKS: Final = frozenset({-1, 0, 1})
_CODEC_ZSTD: Final = 4
_ZSTD_VERSION: Final = 7
_MESSAGES_VERSION: Final = 8
_DELIVERED_TO_TOPIC: Final = PARKING_KINDS - {CompanionKind.RETRY}
"""Companions whose records the broker delivers to the topic that they belong to."""
_REPEATED: Final = "each partition may be only once in a Produce request; this one is there more than once"
_NONE_REPEATED: Final[Collection[tuple[str | bytes, int]]] = frozenset()
_NOTHING_DENIED: Final[Mapping[str | bytes, OttlaError]] = {}
_NOTHING_YET: Final = ProduceResult(ErrorCode.UNKNOWN_SERVER_ERROR)
"""The result of a part that is not written yet."""


class PendingProduce:
    """One request while its parts are being written."""

    __slots__ = (
        "_decompressed",
        "_has_failed",
        "_missing",
        "_partitions",
        "_request",
        "_results",
        "_services",
        "_slot",
        "_timer",
    )

    def __init__(self, services: Services, request: ProduceRequest, slot: Slot) -> None:
        count = len(request.parts)
        self._services = services
        self._request = request
        self._slot = slot
        self._missing = count
        self._has_failed = False
        self._results: list[ProduceResult] = [_NOTHING_YET] * count
        self._partitions: list[Partition | None] = []
        self._timer: Deadline | None = None
        self._decompressed = NOTHING_DECOMPRESSED

    def start(self, buffer: bytearray) -> bool:
        """Queues every part. False if nothing was done and the request must be offered again; see `Decompression`."""
        request = self._request
        acks, version = request.acks, request.version
        if acks not in _ACKS:
            self._refuse_all(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks} is not -1, 0 or 1")
            return True
        if not request.parts:
            self._finish()
            return True
        if request.transactional_id is not None:
            return self._start_transactional(request.transactional_id, buffer)
        services = self._services
        is_free_for_all = services.authorizer.allows_all
        denied = _NOTHING_DENIED if is_free_for_all else self._denied_topics()
        repeated = _NONE_REPEATED if len(request.parts) == 1 else _repeated(request)
        find, partitions, is_little = services.partitions.find, self._partitions, services.decompression.is_little
        parts: list[Part] = []
        looked_into: list[Part] = []
        failed: list[tuple[int, OttlaError]] = []
        for at, (topic, index, position, size) in enumerate(request.parts):
            try:
                if denied and topic in denied and not self._is_delivery(buffer, position, size, denied[topic]):
                    raise denied[topic]
                if repeated and (topic, index) in repeated:
                    raise InvalidRequestError(_REPEATED)
                partition = find(topic, index)
                batch = _only_batch(buffer, position, size, version)
                if batch.is_transactional:
                    raise _NoTransactionalIdError("a transactional batch needs a request with a transactional id")
                if not is_free_for_all and batch.producer_id >= QUEUE_PRODUCER_BIT:
                    self._check_queue_producer(batch)
                partitions.append(partition)
                part = (at, partition, batch)
                parts.append(part)
                if batch.codec:
                    if not is_little(partition, batch):
                        looked_into.append(part)
                elif partition.log.config.compression is not None:
                    looked_into.append(part)
            except OttlaError as error:
                partitions.append(None)
                failed.append((at, error))
        if looked_into and not self._decompress(looked_into):
            return False
        for at, refused in failed:
            self.on_outcome(at, refused)
        # Batches stay in order behind those that wait, even if the partition has no gate any more.
        has_held = bool(services.held_batches.places)
        for at, partition, batch in parts:
            try:
                if looked_into:
                    batch = self._decompressed_batch(at, batch)
                if partition.gate is not None or has_held:
                    batch = self._gated(partition, batch)
                partition.append_soon(batch, acks, self, at)
            except UndecidedError as undecided:
                self._hold(at, partition, undecided)
            except OttlaError as error:
                self.on_outcome(at, error)
        return True

    def _start_transactional(self, transactional_id: str, buffer: bytearray) -> bool:
        """Queues every part that is in no transaction, and hands the others on, which may have to be asked for."""
        request, partitions = self._request, self._partitions
        authorizer, client = self._services.authorizer, self._slot.client
        if not allows_cached(
            authorizer, client, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
        ) and self._has_transactional_batch(buffer):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            self._refuse_all(code, f"the client is not authorized to write with transactional id {transactional_id!r}")
            return True
        denied = _NOTHING_DENIED if authorizer.allows_all else self._denied_topics()
        repeated = _repeated(request)
        parts: list[Part] = []
        failed: list[tuple[int, OttlaError]] = []
        producers: set[tuple[int, int]] = set()
        for at, (topic, index, position, size) in enumerate(request.parts):
            try:
                if denied and topic in denied:
                    raise denied[topic]
                if (topic, index) in repeated:
                    raise InvalidRequestError(_REPEATED)
                partition = self._services.partitions.find(topic, index)
                batch = _only_batch(buffer, position, size, request.version)
                if batch.producer_id >= QUEUE_PRODUCER_BIT:
                    raise ProducerIdMappingError(f"producer id {batch.producer_id} belongs to a queue")
                if batch.is_transactional:
                    if not batch.has_producer_id:
                        raise InvalidRecordError("a transactional batch needs a producer id")
                    producers.add((batch.producer_id, batch.producer_epoch))
                partitions.append(partition)
                parts.append((at, partition, batch))
            except OttlaError as error:
                partitions.append(None)
                failed.append((at, error))
        looked_into = [part for part in parts if part[2].codec or part[1].log.config.compression is not None]
        if looked_into and not self._decompress(looked_into):
            return False
        if len(producers) > 1:
            mixed = ProducerIdMappingError(
                "all batches of a transactional request must have the same producer id and epoch"
            )
            failed += [(at, mixed) for at, _, batch in parts if batch.is_transactional]
            parts = [part for part in parts if not part[2].is_transactional]
        asked: list[TransactionalPart] = []
        held: list[tuple[int, Partition, UndecidedError]] = []
        for at, partition, batch in parts:
            try:
                batch = self._decompressed_batch(at, batch)
                if partition.gate is not None or self._services.held_batches.places:
                    batch = self._gated(partition, batch)
                if batch.is_transactional:
                    asked.append(TransactionalPart(partition, batch, at))
                else:
                    partition.append_soon(batch, request.acks, self, at)
            except UndecidedError as undecided:
                held.append((at, partition, undecided))
            except OttlaError as error:
                failed.append((at, error))
        for at, refused in failed:
            self.on_outcome(at, refused)
        for at, partition, waits in held:
            self._hold(at, partition, waits)
        if asked:
            self._append_transactional(asked)
        return True

    def _decompress(self, parts: Sequence[Part]) -> bool:
        """Whether the batches are decompressed as far as they must be; if not, the request must be offered again."""
        done = self._services.decompression.decompress(self._request, parts, self._slot.connection)
        if done is None:
            return False
        self._decompressed = done
        return True

    def _decompressed_batch(self, at: int, batch: Batch) -> Batch:
        """The batch that takes this one's place in the request, which may be a recompressed one. Raises if there is
        none."""
        found = self._decompressed.batches.get(at, batch)
        if isinstance(found, OttlaError):
            raise found
        return found

    def _append_transactional(self, parts: list[TransactionalPart]) -> None:
        request = self._request
        assert request.transactional_id is not None
        writes = TransactionalWrites(request.transactional_id, request.version, request.acks, self)
        self._services.verification.append(writes, parts)

    # Batches whose gate has to ask before it decides

    def _gated(self, partition: Partition, batch: Batch) -> Batch:
        """The batch as the partition's gate lets it pass; batches of one client stay in order."""
        if self._services.held_batches.has(self._slot.connection, partition):
            raise UndecidedError(batch, None)
        if partition.gate is None:
            return batch
        gated = partition.gate(batch)
        if gated.codec:
            # Not when it is appended, which may be later: what is decompressed is counted now.
            gated, _ = validate_ahead(gated, partition.log.config, self._services.clock.now_ms())
        return gated

    def _hold(self, at: int, partition: Partition | None, undecided: UndecidedError) -> None:
        if partition is None:
            violated("a gate without a partition was undecided")
        self.on_waiting()
        try:
            self._services.held_batches.hold(self._slot.connection, partition, undecided, partial(self._resume, at))
        except OttlaError as error:
            self.on_outcome(at, error)

    def _resume(self, at: int, batch: Batch) -> None:
        """Appends a batch that was held, or refuses it. Raises `UndecidedError` if the gate has to ask again."""
        if self._results[at] is not _NOTHING_YET:
            return  # Its time was up before.
        topic, index, _, _ = self._request.parts[at]
        decompression = self._services.decompression
        if batch.codec and not decompression.has_room:
            raise UndecidedError(batch, decompression.wait_room())
        try:
            # The partition may have another leader or other configs by now.
            partition = self._partitions[at] = self._services.partitions.find(topic, index)
            if batch.codec:
                decompression.read_gated(partition, batch)
            if partition.gate is not None:
                batch = partition.gate(batch)
            if batch.is_transactional:
                self._append_transactional([TransactionalPart(partition, batch, at)])
            else:
                partition.append_soon(batch, self._request.acks, self, at)
        except UndecidedError:
            raise
        except OttlaError as error:
            self.on_outcome(at, error)
        except Exception as error:
            self.on_outcome(at, _BrokenError(f"{type(error).__name__}: {error}"))
            raise

    def _denied_topics(self) -> dict[str | bytes, OttlaError]:
        """The error of each topic that the client may not write to. A topic id without a name in the image is unknown,
        even if its partition is already served: its name, and so the permission, is not known yet."""
        services = self._services
        denied = TopicAuthorizationError("the client is not authorized to write to this topic")
        errors: dict[str | bytes, OttlaError] = {}
        for topic in dict.fromkeys(part[0] for part in self._request.parts):
            name = topic_name(services.image, topic)
            if name is None:
                errors[topic] = UnknownTopicIdError("no topic has this id")
            elif not self._may_write(name):
                errors[topic] = denied
        return errors

    def _may_write(self, name: str) -> bool:
        """What is parked in a companion arrives in its topic: the client must be allowed to write to both."""
        authorizer, client, write = self._services.authorizer, self._slot.client, Operation.WRITE
        if not allows_cached(authorizer, client, write, ResourceType.TOPIC, name):
            return False
        found = self._services.image.topics.get(name)
        mark = mark_of(found) if found is not None else None
        if mark is None or mark.kind not in _DELIVERED_TO_TOPIC:
            return True
        return allows_cached(authorizer, client, write, ResourceType.TOPIC, mark.topic)

    def _is_delivery(self, buffer: bytearray, position: int, size: int, error: OttlaError) -> bool:
        """Whether a broker delivers for a queue, to a topic that it may not write to: it acts for the cluster."""
        try:
            is_of_queue = size > 0 and Batch(buffer, position).producer_id >= QUEUE_PRODUCER_BIT
        except CorruptError:
            return False
        authorizer, client = self._services.authorizer, self._slot.client
        return (
            is_of_queue
            and isinstance(error, TopicAuthorizationError)
            and allows_cached(authorizer, client, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        )

    def _check_queue_producer(self, batch: Batch) -> None:
        """Only brokers deliver for queues: a client's batch could be taken for a delivery."""
        authorizer, client = self._services.authorizer, self._slot.client
        if not allows_cached(authorizer, client, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            raise ProducerIdMappingError(
                f"producer id {batch.producer_id} belongs to a queue; the client is not authorized as a broker"
            )

    def _has_transactional_batch(self, buffer: bytearray) -> bool:
        return any(_is_transactional(buffer, position, size) for _, _, position, size in self._request.parts)

    def on_outcome(self, at: int, outcome: Appended | OttlaError) -> None:
        """A part is as safe as was asked for, or has failed."""
        if self._results[at] is not _NOTHING_YET:
            return  # Its time was up before.
        partition = self._partitions[at]
        if isinstance(outcome, OttlaError) or partition is None:
            self._results[at] = self._failed(at, outcome)
        else:
            self._results[at] = ProduceResult(0, outcome.base_offset, outcome.append_time, partition.log.start_offset)
        self._missing -= 1
        if self._missing == 0:
            self._finish()

    def on_waiting(self) -> None:
        """A part waits for replicas or the disk: not for longer than the client said."""
        if self._timer is None:
            self._timer = self._services.timers.after(self._request.timeout_ms, self._on_timeout)

    def _on_timeout(self) -> None:
        self._has_failed = True
        timed_out = ProduceResult(ErrorCode.REQUEST_TIMED_OUT)
        self._results = [timed_out if result is _NOTHING_YET else result for result in self._results]
        self._missing = 0
        self._finish()

    def _failed(self, at: int, error: Any) -> ProduceResult:
        self._has_failed = True
        self._services.counts.failed_produces += 1
        code = int(error.code)
        leader = None
        if isinstance(error, NotLeaderError):
            leader = leader_hint(self._services.image, self._request.parts[at][0], self._request.parts[at][1])
        if isinstance(error, StorageError) or code == ErrorCode.UNKNOWN_SERVER_ERROR:
            self._services.report_failure(error)
        if self._request.version < _MESSAGES_VERSION:
            return ProduceResult(code, leader=leader)
        record_errors: list[tuple[int, str | None]] | None = None
        if isinstance(error, InvalidBatchError):
            record_errors = list(error.record_errors)
        return ProduceResult(code, record_errors=record_errors, message=str(error), leader=leader)

    def _refuse_all(self, code: ErrorCode, reason: str) -> None:
        # A request without parts has nothing that could fail.
        self._has_failed = bool(self._results)
        self._results = [ProduceResult(code, message=reason)] * len(self._results)
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        results, request = self._results, self._request
        quotas = self._services.quotas
        throttle_ms = (
            0
            if quotas.is_unlimited
            else throttle(
                quotas,
                request,
                self._slot,
                0,
                is_answered=request.acks != 0,
                decompressed_bytes=self._decompressed.charged_bytes,
            )
        )
        if request.acks == 0:
            if self._has_failed:
                failed = next(result for result in results if result.error_code)
                why = failed.message or ErrorCode(failed.error_code).name
                self._slot.fail(f"a batch sent with acks=0 was refused: {why}")
            else:
                self._slot.complete(())
            return
        try:
            endpoints = (
                endpoints_of(self._services.image, self._slot.client.listener, results) if self._has_failed else []
            )
            self._slot.complete((request.answer(results, endpoints, throttle_ms),))
        except Exception as error:
            self._slot.fail(f"cannot answer a Produce request: {error}")
            raise


def produce(services: Services, request: ProduceRequest, buffer: bytearray, slot: Slot) -> bool:
    """Serves one request; its slot is completed when it is done. False if it must be offered again."""
    if len(request.parts) > PARTITIONS_MAX:
        slot.fail(f"a Produce request has {len(request.parts)} partitions; the limit is {PARTITIONS_MAX}")
        return True
    return PendingProduce(services, request, slot).start(buffer)


def _repeated(request: ProduceRequest) -> Collection[tuple[str | bytes, int]]:
    """The partitions that the request names more than once: it does not say which of their batches comes first."""
    parts = request.parts
    if len({part[:2] for part in parts}) == len(parts):
        return _NONE_REPEATED
    return {place for place, count in Counter(part[:2] for part in parts).items() if count > 1}


def _only_batch(buffer: bytearray, position: int, size: int, version: int) -> Batch:
    """The one batch that a part may have."""
    if size <= 0:
        raise InvalidRecordError("each partition in a Produce request must have exactly one batch; this one has none")
    batch = Batch(buffer, position)
    if batch.size_bytes != size:
        if batch.size_bytes > size:
            raise CorruptError(f"a batch of {batch.size_bytes} bytes does not fit its {size} bytes")
        raise InvalidRecordError("each partition in a Produce request must have exactly one batch; this one has more")
    if batch.base_offset != 0:
        raise InvalidRecordError(f"a produced batch must have base offset 0, not {batch.base_offset}")
    if batch.has_producer_id and batch.base_sequence < 0:
        raise InvalidRecordError("a batch with a producer id needs a sequence number")
    if version < _ZSTD_VERSION and batch.codec == _CODEC_ZSTD:
        raise _ZstdTooOldError("zstd needs a Produce request of version 7 or newer")
    return batch


def _is_transactional(buffer: bytearray, position: int, size: int) -> bool:
    """Whether a part has a transactional batch; one that cannot be read has none, and fails on its own."""
    try:
        return size > 0 and Batch(buffer, position).is_transactional
    except CorruptError:
        return False


class _ZstdTooOldError(OttlaError):
    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class _NoTransactionalIdError(OttlaError):
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class _BrokenError(OttlaError):
    """A held batch could not be dealt with, because of a fault in the broker."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR
