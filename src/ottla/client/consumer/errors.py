"""The errors of consumers, beside those of all clients (`ottla.client.errors`). Each says what to do next."""

from collections.abc import Collection

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError, FencedError, InvalidRequestError, MisuseError, OttlaError
from ottla.model.ids import TopicPartition


class WakeupError(OttlaError):
    """`wakeup` was called; poll again, or close the consumer."""


class CommitFailedError(FencedError):
    """The consumer is not a member of the group any more, so its commit was refused. Poll to join again."""


class LeftGroupError(FencedError):
    """The group does not accept this member, and joining again would not help; the message says why."""


class UnknownPositionError(InvalidRequestError):
    """Partitions have no committed offset, and `auto_offset_reset` is "none". Call `seek` for each of `partitions`."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, partitions: Collection[TopicPartition], message: str) -> None:
        super().__init__(message)
        self.partitions = tuple(partitions)


class LogTruncatedError(CorruptError):
    """Records that were read are not in the log any more: a broker lost them.

    `offsets` has for each partition the first offset at which the log differs from what was read, None if that is
    unknown. Call `seek` to continue there.
    """

    def __init__(self, offsets: dict[TopicPartition, int | None], message: str) -> None:
        super().__init__(message)
        self.offsets = offsets


class RecordDeserializationError(InvalidRequestError):
    """A deserializer raised an error for the record at `offset`. Call `seek` with the next offset to skip it."""

    def __init__(self, partition: TopicPartition, offset: int, message: str) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class UnreadableRecordError(CorruptError):
    """The batch at `offset` is corrupt. Call `seek` with a later offset to skip it."""

    def __init__(self, partition: TopicPartition, offset: int, message: str) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class ConsumerBrokenError(OttlaError):
    """An internal error ended the consumer. Close it, and report the error."""


class NotAssignedError(MisuseError):
    """The partition is not assigned to this consumer."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition} is not assigned to this consumer; `assignment()` returns those that are")
        self.partition = partition


class RetryNotEnabledError(MisuseError):
    """Records of this topic cannot be handed back; the message says which config the topic needs."""


class RecordGoneError(InvalidRequestError):
    """The record to hand back or reject was deleted from the log, and the consumer has only its deserialized form."""
