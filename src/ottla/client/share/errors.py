"""The errors of share consumers, beside those of all consumers. Each says what happens to the records."""

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import FencedError, MisuseError
from ottla.model.ids import TopicPartition


class NotAcquiredError(MisuseError):
    """The record cannot be acknowledged: the last polls did not return it, or it was acknowledged and committed."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"the record at offset {offset} of {partition} is not acquired by this consumer; acknowledge a record that"
            " `poll` returned, and only until it is committed"
        )
        self.partition = partition
        self.offset = offset


class UnacknowledgedRecordsError(MisuseError):
    """With explicit acknowledgement, all records must be acknowledged before the next poll."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{count} {'record was' if count == 1 else 'records were'} returned by the last poll and not acknowledged;"
            " call acknowledge for each record before the next poll"
        )
        self.count = count


class AcquisitionLockLostError(FencedError):
    """The consumer does not hold the acquisition lock of a record any more, so its acknowledgement was not sent.

    The lock timed out, or the connection to the partition's leader was lost. The group delivers the record again.
    """

    code = ErrorCode.INVALID_RECORD_STATE

    def __init__(self, message: str, error_code: ErrorCode = ErrorCode.INVALID_RECORD_STATE) -> None:
        super().__init__(message)
        self.error_code = error_code
