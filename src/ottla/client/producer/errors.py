"""What a producer can tell its program, beyond what every client can (`errors.py`)."""

from ottla.client.errors import DeadlineError
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import FencedError, InvalidRequestError, MisuseError, OttlaError


class ProducerClosedError(MisuseError):
    """The producer was closed; make another one."""


class SerializationError(MisuseError):
    """A serializer failed, or gave something that is neither bytes nor None; the record was not sent."""


class RecordTooLargeError(InvalidRequestError):
    """A record alone exceeds `max_request_size` or `buffer_memory`; it was not sent."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class BufferFullError(DeadlineError):
    """The records that wait fill `buffer_memory`, and none left within `max_block_ms`; this one was not sent."""


class NotDeliveredError(DeadlineError):
    """A record was not acknowledged within `delivery_timeout_ms`; the message says whether it may be in the log."""


class NotEncodedError(OttlaError):
    """A batch could not be compressed or laid out, such as for want of memory; none of its records was sent."""


class DeliveryTimeoutError(DeadlineError, TimeoutError):
    """The timeout given to a delivery is over, and the record is still under way; `delivery_timeout_ms` bounds that."""


class ProducerFencedError(FencedError):
    """Another producer has taken this one's transactional id, or its transaction timed out; close this one."""

    code = ErrorCode.PRODUCER_FENCED


class TransactionAbortedError(OttlaError):
    """A record was not sent, because its transaction was aborted."""


class TransactionFailedError(OttlaError):
    """Something in the transaction failed, so it cannot be committed: call `abort_transaction`, then begin again."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class ProducerBrokenError(OttlaError):
    """The producer can do nothing more, for the reason that it names: close it and make another one."""
