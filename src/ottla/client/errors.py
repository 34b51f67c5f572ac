"""What a client can be told, as exceptions: a broker refused, the connection broke, no broker answers.

Refusals of brokers come from `ottla.protocol.answer_errors`, broken connections from
`ottla.transport.client_connection`; they are named here too, for programs that use the clients.
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
    """The batch at `offset` is corrupt in the broker's log, and no other replica has it. Read on behind it to skip it.

    Its last offset is unknown to the client; `ottla cluster health` tells it.
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
    """What was asked did not succeed in its time, although it was tried again; says what stood in the way last."""


class NotSentError(OttlaError):
    """A batch was never sent, because one before it failed; that one's error says why."""
