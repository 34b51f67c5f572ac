"""What must hold for a batch on a topic with schema validation: each key or value has an id of a registered schema.

The id is a zero byte and four bytes before the key or value, or a one byte and a GUID in the header `__key_schema_id`
or `__value_schema_id`. Null passes, so that tombstones can be written. Batches that the broker itself delivers for a
queue are not checked: their records were accepted once.
"""

from collections.abc import Callable
from typing import Final

from ottla.broker.schema_validation.held_batches import SchemasUnknownError, UndecidedError
from ottla.broker.schema_validation.schema_ids import SchemaIds
from ottla.broker.schema_validation.schema_ids_state import Failed, Question, Refused
from ottla.metadata.configs.schema_settings import SchemaSettings, SubjectStrategy
from ottla.model.errors import RECORD_ERRORS_MAX, CorruptBatchError, InvalidConfigError, InvalidRecordError
from ottla.model.ids import QUEUE_PRODUCER_BIT
from ottla.queues.gate import read_admitted, refusal
from ottla.records.batch import Batch
from ottla.records.header_edit import HeaderNames
from ottla.records.schema_frames import records_with_frames, schema_frames
from ottla.storage.batch_validation import is_malformed

ProduceGate = Callable[[Batch], Batch]
"""Returns the batch to append, the same or a rewritten one; raises an OttlaError for one that is refused, and
`UndecidedError` for one about which it has to ask."""

_FRAME_BYTES_MIN: Final = 5
_ASKED_AT_ONCE_MAX: Final = 16
"""A batch with many unknown ids, most likely invalid ones, does not flood the registry."""
DIFFERENT_IDS_MAX: Final = 1_000
"""In one batch. Looking at each id takes time, in which no other request is served."""
_KEY_HEADER: Final = HeaderNames("__key_schema_id")
_VALUE_HEADER: Final = HeaderNames("__value_schema_id")


class SchemaGate:
    """The gate of the partitions of a topic. A batch that passes is handed to the next gate, if there is one."""

    def __init__(self, ids: SchemaIds, topic: str, settings: SchemaSettings, then: ProduceGate | None) -> None:
        self._ids = ids
        self._topic = topic
        self._then = then
        self._parts: list[tuple[bool, HeaderNames, SubjectStrategy]] = []
        if settings.key is not None:
            self._parts.append((True, _KEY_HEADER, settings.key))
        if settings.value is not None:
            self._parts.append((False, _VALUE_HEADER, settings.value))

    def __call__(self, batch: Batch) -> Batch:
        """The batch to append. Raises `InvalidRecordError` with the invalid records, `UndecidedError`,
        `SchemasUnknownError`, and `InvalidConfigError` without a registry."""
        # A batch that no log accepts is left to the log, which knows the reason.
        if not is_malformed(batch) and not (batch.has_producer_id and batch.producer_id & QUEUE_PRODUCER_BIT):
            self._check(batch)
        return batch if self._then is None else self._then(batch)

    def _check(self, batch: Batch) -> None:
        if not self._ids.has_registry:
            raise InvalidConfigError(
                f"topic {self._topic} has schema validation, but this broker has no registry: set the broker config"
                " confluent.schema.registry.url"
            )
        batch.check()
        count = batch.count
        faults: list[tuple[int, str]] = []
        unknown: list[Question] = []
        failure: Failed | None = None
        has_too_many = False
        try:
            payload = read_admitted(batch)
            for is_key, header, strategy in self._parts:
                # One more for null.
                frames = schema_frames(payload, count, header, is_key, DIFFERENT_IDS_MAX + 2)
                has_too_many = has_too_many or len(frames) - (None in frames) > DIFFERENT_IDS_MAX
                reasons: dict[bytes, str] = {}
                for frame in frames:
                    if frame is None:
                        continue
                    if len(frame) < _FRAME_BYTES_MIN:
                        reasons[frame] = _no_id(frame, is_key)
                        continue
                    question = Question(frame, self._topic, is_key, strategy)
                    match self._ids.verdict(question):
                        case None:
                            unknown.append(question)
                        case Refused(reason=told):
                            reasons[frame] = f"{'key' if is_key else 'value'}: {told}"
                        case Failed() as failed:
                            failure = failed
                if reasons:
                    bad = records_with_frames(payload, count, header, is_key, frozenset(reasons), RECORD_ERRORS_MAX)
                    faults += [(index, reasons[frame]) for index, frame in bad]
        except CorruptBatchError as error:
            # The checksum was right, so that sending the batch again would not help.
            raise InvalidRecordError(str(error)) from error
        if faults:
            raise self._refused(_refusal(faults, count))
        if has_too_many:
            raise self._refused(
                InvalidRecordError(
                    f"the batch has more than {DIFFERENT_IDS_MAX} different schema ids; send smaller ones"
                )
            )
        # Before more is asked: the other questions would fail one after the other.
        if failure is not None:
            raise self._unchecked(f"cannot check the schema ids, so nothing was written: {failure.reason}")
        if unknown:
            decided = self._ids.ask(unknown[:_ASKED_AT_ONCE_MAX])
            if decided is None:
                raise self._unchecked("too many schema ids are being looked up; try again later")
            raise UndecidedError(batch, decided)

    def _refused(self, error: InvalidRecordError) -> InvalidRecordError:
        self._ids.refused_batches[self._topic, "invalid"] += 1
        return error

    def _unchecked(self, reason: str) -> SchemasUnknownError:
        self._ids.refused_batches[self._topic, "unchecked"] += 1
        return SchemasUnknownError(reason)


def _refusal(faults: list[tuple[int, str]], count: int) -> InvalidRecordError:
    """Names the first invalid records; a compressed batch may have millions."""
    faults.sort()
    if len(faults) < RECORD_ERRORS_MAX:
        return refusal(faults, count)
    del faults[RECORD_ERRORS_MAX:]
    index, reason = faults[0]
    return InvalidRecordError(
        f"{RECORD_ERRORS_MAX} or more of {count} records are invalid; record {index}: {reason}", faults
    )


def _no_id(start: bytes, is_key: bool) -> str:
    part = "key" if is_key else "value"
    began = f"begins with {start.hex()}" if start else "is empty"
    return f"{part} has no schema id: it {began}, but 00 and the id must come first, or a header __{part}_schema_id"
