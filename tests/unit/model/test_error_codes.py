"""The error codes are facts of the protocol: each exception answers with the number that clients know."""

import pytest

from ottla.model import errors
from ottla.model.error_codes import ErrorCode
from ottla.model.invariants import InvariantViolation, violated

KNOWN = {
    -1: "UNKNOWN_SERVER_ERROR",
    0: "NONE",
    1: "OFFSET_OUT_OF_RANGE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    6: "NOT_LEADER_OR_FOLLOWER",
    10: "MESSAGE_TOO_LARGE",
    18: "RECORD_LIST_TOO_LARGE",
    25: "UNKNOWN_MEMBER_ID",
    32: "INVALID_TIMESTAMP",
    35: "UNSUPPORTED_VERSION",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    46: "DUPLICATE_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH",
    48: "INVALID_TXN_STATE",
    52: "TRANSACTION_COORDINATOR_FENCED",
    56: "KAFKA_STORAGE_ERROR",
    59: "UNKNOWN_PRODUCER_ID",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    79: "MEMBER_ID_REQUIRED",
    87: "INVALID_RECORD",
    90: "PRODUCER_FENCED",
    100: "UNKNOWN_TOPIC_ID",
    110: "FENCED_MEMBER_EPOCH",
    120: "TRANSACTION_ABORTABLE",
    133: "SHARE_SESSION_LIMIT_REACHED",
}

CODES = {
    errors.StorageError: 56,
    errors.CorruptError: 2,
    errors.CorruptBatchError: 2,
    errors.InvalidRequestError: 42,
    errors.InvalidRecordError: 87,
    errors.InvalidTimestampError: 32,
    errors.BatchTooLargeError: 10,
    errors.SegmentTooSmallError: 18,
    errors.UnsupportedCodecError: 76,
    errors.OffsetOutOfRangeError: 1,
    errors.OutOfOrderSequenceError: 45,
    errors.InvalidProducerEpochError: 47,
    errors.InvalidTransactionStateError: 48,
    errors.CoordinatorFencedError: 52,
    errors.UnknownPartitionError: 3,
    errors.MisuseError: -1,
}


def test_numbers() -> None:
    assert KNOWN == {number: ErrorCode(number).name for number in KNOWN}


def test_no_number_is_missing() -> None:
    assert list(range(-1, len(ErrorCode) - 1)) == sorted(ErrorCode)


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: str(kind.__name__))
def test_each_error_knows_its_code(kind: type[errors.OttlaError]) -> None:
    assert CODES[kind] == kind("what happened").code
    assert issubclass(kind, errors.OttlaError)


def test_a_broken_invariant_is_no_ordinary_error() -> None:
    with pytest.raises(InvariantViolation, match="1 > 0"):
        violated("1 > 0")
    assert not issubclass(InvariantViolation, Exception)
