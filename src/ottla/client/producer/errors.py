"""The errors of producers, beyond those that every client raises (`ottla.client.errors`)."""

from ottla.client.errors import DeadlineError
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import FencedError, InvalidRequestError, MisuseError, OttlaError


class ProducerClosedError(MisuseError):
    """The producer was closed; create a new one."""


class SerializationError(MisuseError):
    """A serializer failed, or returned something other than bytes or None. The record was not sent."""


class RecordTooLargeError(InvalidRequestError):
    """A single record exceeds `max_request_size` or `buffer_memory`. The record was not sent."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class BufferFullError(DeadlineError):
    """`buffer_memory` was full for `max_block_ms`. The record was not sent."""


class NotDeliveredError(DeadlineError):
    """A record was not acknowledged within `delivery_timeout_ms`; the message says whether it may be in the log."""


class NotEncodedError(OttlaError):
    """A batch could not be encoded or compressed, for example for lack of memory. Its records were not sent."""


class DeliveryTimeoutError(DeadlineError, TimeoutError):
    """The timeout of waiting for a delivery expired. The producer keeps trying for up to `delivery_timeout_ms`."""


class ProducerFencedError(FencedError):
    """Another producer uses the transactional id, or the transaction timed out; close this producer."""

    code = ErrorCode.PRODUCER_FENCED


class TransactionAbortedError(OttlaError):
    """The record was not sent because its transaction was aborted, or failed and must be aborted."""


class TransactionFailedError(OttlaError):
    """A part of the transaction failed, so it cannot be committed: call `abort_transaction`, then begin a new one."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class ProducerBrokenError(OttlaError):
    """The producer failed for the reason in the message: close it and create a new one."""

    def __init__(self, message: str, error_code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> None:
        super().__init__(message)
        self.error_code = error_code
        """What the broker answered, if it refused."""


def producer_closed() -> ProducerClosedError:
    """For a method called after `close`."""
    return ProducerClosedError("the producer is closed; create a new one")
