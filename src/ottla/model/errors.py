"""The exception tree, named by what the caller should do, and the wire code each error answers with.

`OttlaError` is the root. Its children say whose move it is: `RetriableError` (try again), `FencedError` (a newer owner
exists, stop), `InvalidRequestError` (the request can never succeed), `DeniedError` (permission), `CorruptError` (stored
or sent bytes are damaged), `StorageError` (the disk failed), `MisuseError` (the program calls us wrongly).
"""

from collections.abc import Sequence
from typing import ClassVar

from ottla.model.error_codes import ErrorCode


class OttlaError(Exception):
    """Anything that Ottla raises on purpose. The message says what happened, where, and what to do."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR


class RetriableError(OttlaError):
    """The same request may succeed later."""


class FencedError(OttlaError):
    """A newer owner exists; whoever gets this must stop acting."""


class InvalidRequestError(OttlaError):
    """The request can never succeed as it is."""

    code = ErrorCode.INVALID_REQUEST


class DeniedError(OttlaError):
    """The caller may not do this."""


class CorruptError(OttlaError):
    """Bytes are not what was written: a failed checksum, a lying length, an impossible field."""

    code = ErrorCode.CORRUPT_MESSAGE


class StorageError(OttlaError):
    """The disk refused: full, read-only, gone, or broken. Names the file."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class OlderMetadataError(StorageError):
    """The metadata store is behind what this broker has acted on: it was restored from a backup, or replaced."""


class MisuseError(OttlaError):
    """The calling program is wrong: a closed log, an argument out of range."""


# Records and the log


class CorruptBatchError(CorruptError):
    """A record batch is damaged; names its base offset or position."""


class InvalidBatchError(InvalidRequestError):
    """A produced batch is refused; `record_errors` names the records at fault as (index in the batch, why)."""

    def __init__(self, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class InvalidRecordError(InvalidBatchError):
    """A batch has an intact checksum but is not acceptable here: a missing key, a malformed record, a control batch."""

    code = ErrorCode.INVALID_RECORD


class InvalidTimestampError(InvalidBatchError):
    """A record's timestamp is further from the broker's clock than the topic allows."""

    code = ErrorCode.INVALID_TIMESTAMP


class BatchTooLargeError(InvalidRequestError):
    """A batch exceeds `max.message.bytes`, or explodes beyond the bound when decompressed."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class SegmentTooSmallError(InvalidRequestError):
    """A batch is larger than a whole segment may be."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class UnsupportedCodecError(InvalidRequestError):
    """The batch names a codec that does not exist."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class OffsetOutOfRangeError(InvalidRequestError):
    """The offset lies below the log's start or above its end."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class OutOfOrderSequenceError(InvalidRequestError):
    """An idempotent producer left a gap in its sequence."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpochError(FencedError):
    """A newer incarnation of this producer has written."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionStateError(InvalidRequestError):
    """A write outside a transaction from a producer that has one open, or the reverse."""

    code = ErrorCode.INVALID_TXN_STATE


class CoordinatorFencedError(FencedError):
    """A marker comes from a transaction coordinator that has been replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class UnknownPartitionError(RetriableError):
    """No such partition on this broker."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Leadership


class NotLeaderError(RetriableError):
    """This broker does not lead the partition; ask the metadata who does."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class FencedLeaderEpochError(RetriableError):
    """The asker knows an older leader epoch than the partition has; refresh the metadata."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpochError(RetriableError):
    """The asker knows a newer leader epoch than this broker does; try again when it has caught up."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotEnoughReplicasError(RetriableError):
    """Fewer replicas are in sync than `min.insync.replicas` asks for; nothing was written."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppendError(RetriableError):
    """Written, but on fewer replicas than `min.insync.replicas` asks for, since some fell out meanwhile."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class UnknownTopicIdError(RetriableError):
    """No topic has this id here."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


# Configuration


class InvalidConfigError(InvalidRequestError):
    """A config is unknown, or its value is not allowed; names the key, the value, and what is allowed."""

    code = ErrorCode.INVALID_CONFIG


# Cluster metadata


class UnknownTopicError(RetriableError):
    """The cluster has no topic of this name."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class NotControllerError(RetriableError):
    """This broker is not the controller, or no longer; ask the metadata who is."""

    code = ErrorCode.NOT_CONTROLLER


class InvalidTopicNameError(InvalidRequestError):
    """A topic cannot have this name."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


# Coordinators


class CoordinatorLoadingError(RetriableError):
    """The coordinator is here, and is being brought back from its log."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailableError(RetriableError):
    """Nobody coordinates this at the moment."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinatorError(RetriableError):
    """Another broker coordinates this."""

    code = ErrorCode.NOT_COORDINATOR


class ProducerIdMappingError(InvalidRequestError):
    """The transactional id is not that of this producer id, or nobody has it."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class ConcurrentTransactionsError(RetriableError):
    """The producer's last transaction is still being ended."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionAbortableError(InvalidRequestError):
    """The transaction cannot be committed any more; abort it and begin another."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class OffsetNotAvailableError(RetriableError):
    """A new leader does not know yet how far its predecessor had committed; try again in a moment."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class LeaderNotAvailableError(RetriableError):
    """The same for askers that are too old to know the other code."""

    code = ErrorCode.LEADER_NOT_AVAILABLE
