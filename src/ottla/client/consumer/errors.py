"""What can go wrong for a consumer beyond what any client is told (`errors.py`). Each says what to do next."""

from collections.abc import Collection

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError, FencedError, InvalidRequestError, MisuseError, OttlaError
from ottla.model.ids import TopicPartition


class WakeupError(OttlaError):
    """Another thread called `wakeup`; poll again, or close."""


class CommitFailedError(FencedError):
    """The group has gone on without this member, so its offsets do not count. Poll, to join again."""


class LeftGroupError(FencedError):
    """The group does not take this member, or not any more, and joining again would not help; says why."""


class UnknownPositionError(InvalidRequestError):
    """Partitions have no committed offset, and nobody said where to begin: `auto_offset_reset` is none. Use `seek`."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, partitions: Collection[TopicPartition], message: str) -> None:
        super().__init__(message)
        self.partitions = tuple(partitions)


class LogTruncatedError(CorruptError):
    """Records that were read exist no more: a broker lost them. `offsets` says where each partition's log now parts
    from what was read, None if nobody knows; `seek` there to go on."""

    def __init__(self, offsets: dict[TopicPartition, int | None], message: str) -> None:
        super().__init__(message)
        self.offsets = offsets


class RecordDeserializationError(InvalidRequestError):
    """A deserializer failed. `seek` to the offset after this one to leave the record out."""

    def __init__(self, partition: TopicPartition, offset: int, message: str) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class UnreadableRecordError(CorruptError):
    """A fetched batch is damaged. `seek` beyond it to leave it out."""

    def __init__(self, partition: TopicPartition, offset: int, message: str) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class ConsumerBrokenError(OttlaError):
    """The consumer failed in a way that it should not; says how. Close it, and report this."""


class NotAssignedError(MisuseError):
    """A partition was asked about that this consumer does not have."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition} is not assigned to this consumer; `assignment()` shows what is")
        self.partition = partition
