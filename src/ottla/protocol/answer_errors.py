"""Error codes of responses as exceptions: `answer_error` makes the right one of a code.

The code stays what it is (`AnswerError.error_code`); what to do about it is in the class: a `RetriableError` may go
away by itself.
"""

from typing import Final

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, OttlaError, RetriableError

RETRIABLE_CODES: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Those that Kafka's clients try again."""

_ADVICE: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist; `ottla topics list` shows all topics",
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic with this name already exists",
    ErrorCode.MESSAGE_TOO_LARGE: "the batch is larger than the topic's max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than the topic's segment.bytes",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "the topic name is not valid; use up to 249 letters, digits, dots, dashes and underscores"
    ),
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is outside the partition's log",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the replication factor is larger than the number of brokers, or below one",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is not valid; it can only be increased",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas; nothing was written",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader",
    ErrorCode.REQUEST_TIMED_OUT: "the broker did not finish within the timeout",
    ErrorCode.TOPIC_DELETION_DISABLED: "the broker's delete.topic.enable is false",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the broker's ACLs do not allow this on the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the broker's ACLs do not allow this on the cluster",
}


class AnswerError(OttlaError):
    """A broker refused. `error_code` says why in the protocol's terms, the message in words."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class RetriableAnswerError(AnswerError, RetriableError):
    """A broker refused for now."""


class UnsupportedByBrokerError(InvalidRequestError):
    """The broker and the client support no common version of this request."""

    code = ErrorCode.UNSUPPORTED_VERSION


def error_code_of(code: int) -> ErrorCode:
    """A wire code as our enumeration; one from the future counts as the broker's own failure."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def answer_error(code: int, what: str, message: str | None = None) -> AnswerError:
    """The exception for a code other than 0; `what` says about what it is, `message` is the broker's own word."""
    error_code = error_code_of(code)
    advice = _ADVICE.get(error_code)
    # A broker's word for a missing topic speaks of the broker, ours of what to do.
    ours_first = error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    words = (advice or message) if ours_first else (message or advice)
    words = (words or error_code.name.lower().replace("_", " ")).rstrip(". ")
    kind = RetriableAnswerError if error_code in RETRIABLE_CODES else AnswerError
    return kind(error_code, f"{what}: {words} ({error_code.name}, {code})")
