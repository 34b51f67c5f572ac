"""The exception tree, named by what the caller should do, with the wire code of each error.

`OttlaError` is the root. Its subclasses: `RetriableError` (try again), `FencedError` (a newer owner exists, stop),
`InvalidRequestError` (the request can never succeed), `DeniedError` (permission), `CorruptError` (stored or sent bytes
are damaged), `StorageError` (the disk failed), `MisuseError` (the calling program has a bug).
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from ottla.model.error_codes import ErrorCode


class OttlaError(Exception):
    """Any error that Ottla raises on purpose. The message says what happened, where, and what to do."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR


class RetriableError(OttlaError):
    """The same request may succeed later."""


class FencedError(OttlaError):
    """A newer owner exists; the caller must stop acting."""


class InvalidRequestError(OttlaError):
    """The request can never succeed as it is."""

    code = ErrorCode.INVALID_REQUEST


class DeniedError(OttlaError):
    """The caller is not permitted to do this."""


class CorruptError(OttlaError):
    """Bytes are not what was written: a wrong checksum, a wrong length, an impossible field."""

    code = ErrorCode.CORRUPT_MESSAGE


class StorageError(OttlaError):
    """The disk failed: full, read-only, missing, or broken. Names the file."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class RemovedLogError(StorageError):
    """A log was deleted, set aside or moved while it was in use. Nothing is wrong with the disk."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class OlderMetadataError(StorageError):
    """The metadata store is older than what this broker has acted on: it was restored from a backup, or replaced."""


class MisuseError(OttlaError):
    """The calling program has a bug: it used a closed log, or an argument is out of range."""


# Records and the log


class CorruptBatchError(CorruptError):
    """A record batch is damaged; names its base offset or position."""


RECORD_ERRORS_MAX: Final = 1_000
"""Invalid records that the response for one batch names: a compressed batch may have millions."""


class InvalidBatchError(InvalidRequestError):
    """A produced batch is refused; `record_errors` has the invalid records as (index in the batch, reason)."""

    def __init__(self, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class InvalidRecordError(InvalidBatchError):
    """A batch has a valid checksum but is not acceptable: a missing key, a malformed record, a control batch."""

    code = ErrorCode.INVALID_RECORD


class InvalidTimestampError(InvalidBatchError):
    """A record's timestamp is further from the broker's clock than the topic allows."""

    code = ErrorCode.INVALID_TIMESTAMP


class BatchTooLargeError(InvalidRequestError):
    """A batch exceeds `max.message.bytes`, or the limit after decompression."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class DecompressionLimitError(BatchTooLargeError):
    """A batch's records are larger, once they are decompressed, than the reader allows."""


class SegmentTooSmallError(InvalidRequestError):
    """A batch is larger than `segment.bytes`."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class UnsupportedCodecError(InvalidRequestError):
    """The batch has an unknown compression codec."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class OffsetOutOfRangeError(InvalidRequestError):
    """The offset is below the log start or above the log end."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class OutOfOrderSequenceError(InvalidRequestError):
    """An idempotent producer left a gap in its sequence."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpochError(FencedError):
    """A producer with the same id and a newer epoch has written."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionStateError(InvalidRequestError):
    """A write outside a transaction from a producer with an open one, or the reverse."""

    code = ErrorCode.INVALID_TXN_STATE


class CoordinatorFencedError(FencedError):
    """A marker comes from a transaction coordinator that has been replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class UnknownPartitionError(RetriableError):
    """This broker does not have the partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Leadership


class NotLeaderError(RetriableError):
    """This broker does not lead the partition; get the leader from the metadata."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class FencedLeaderEpochError(RetriableError):
    """The client has an older leader epoch than the partition; refresh the metadata."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpochError(RetriableError):
    """The client has a newer leader epoch than this broker; try again when the broker has caught up."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotEnoughReplicasError(RetriableError):
    """Fewer replicas are in sync than `min.insync.replicas` requires; nothing was written."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppendError(RetriableError):
    """Written, but to fewer replicas than `min.insync.replicas` requires, since some left the ISR in the meantime."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class OpenHalfMessagesError(RetriableError):
    """A partition has as many undecided half messages as it may have; try again when some are decided."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class CancelledIdsError(RetriableError):
    """A partition has as many cancelled ids as it may have; try again when records before them are delivered."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class UnknownTopicIdError(RetriableError):
    """No topic has this id."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


# Configuration


class UnsupportedVersionError(InvalidRequestError):
    """The cluster does not serve this API, or not in this version: a feature is disabled."""

    code = ErrorCode.UNSUPPORTED_VERSION


class InvalidUpdateVersionError(InvalidRequestError):
    """A feature cannot have the level that is asked for."""

    code = ErrorCode.INVALID_UPDATE_VERSION


class InvalidConfigError(InvalidRequestError):
    """A config is unknown, or its value is not allowed; names the key, the value, and what is allowed."""

    code = ErrorCode.INVALID_CONFIG


# Cluster metadata


class UnknownTopicError(RetriableError):
    """The topic does not exist."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class NotControllerError(RetriableError):
    """This broker is not the controller, or no longer; get the controller from the metadata."""

    code = ErrorCode.NOT_CONTROLLER


class InvalidTopicNameError(InvalidRequestError):
    """The topic name is invalid."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


# Coordinators


class CoordinatorLoadingError(RetriableError):
    """The coordinator is loading its state from the log."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailableError(RetriableError):
    """There is no coordinator at the moment."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class TopicRefusedError(CoordinatorNotAvailableError):
    """A topic that the broker needs cannot be created, however often it is tried."""


class NotCoordinatorError(RetriableError):
    """Another broker is the coordinator."""

    code = ErrorCode.NOT_COORDINATOR


class ProducerIdMappingError(InvalidRequestError):
    """The transactional id does not have this producer id, or is unknown."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class ConcurrentTransactionsError(RetriableError):
    """The producer's last transaction is still being completed."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionAbortableError(InvalidRequestError):
    """The transaction can no longer be committed; abort it and begin another."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class OffsetNotAvailableError(RetriableError):
    """A new leader does not know yet how far its predecessor had committed; try again in a moment."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class LeaderNotAvailableError(RetriableError):
    """The same for clients that do not know OFFSET_NOT_AVAILABLE."""

    code = ErrorCode.LEADER_NOT_AVAILABLE
