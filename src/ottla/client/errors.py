"""The errors of all clients: a broker refused, a connection failed, no broker responded.

Errors of brokers are defined in `ottla.protocol.answer_errors`, those of connections in
`ottla.transport.client_connection`; they can be imported from here too.
"""

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError, RetriableError
from ottla.model.ids import TopicPartition
from ottla.protocol.answer_errors import (
    RETRIABLE_CODES,
    AnswerError,
    RetriableAnswerError,
    UnsupportedByBrokerError,
    answer_error,
    error_code_of,
)
from ottla.transport.client_connection import CannotConnectError, ConnectionLostError

__all__ = [
    "RETRIABLE_CODES",
    "AnswerError",
    "CannotConnectError",
    "ConnectionLostError",
    "CorruptLogError",
    "DeadlineError",
    "NotSentError",
    "RetriableAnswerError",
    "UnsupportedByBrokerError",
    "answer_error",
    "error_code_of",
]


class CorruptLogError(AnswerError):
    """The batch at `offset` is corrupt in the broker's log, and no other replica has it. Seek past it to skip it.

    The client does not know its last offset; `ottla cluster health` shows it.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, advice: str = "seek to a later offset to skip it"
    ) -> None:
        code = ErrorCode.CORRUPT_MESSAGE
        words = f"partition {partition}: the batch at offset {offset} is corrupt in the broker's log"
        super().__init__(code, f"{words} ({code.name}, {code.value}); {advice}")
        self.partition = partition
        self.offset = offset


class DeadlineError(RetriableError):
    """The operation did not succeed in time, in spite of retries; the message has the last problem."""


class NotSentError(OttlaError):
    """A batch was not sent because an earlier one failed, whose error says why."""
