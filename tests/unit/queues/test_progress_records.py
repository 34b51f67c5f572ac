"""Progress records: what is encoded is decoded, and what cannot be understood is an error."""

import msgspec
import pytest

from ottla.model.errors import CorruptError
from ottla.queues.progress_records import (
    Action,
    Done,
    Grew,
    Plan,
    ProgressRecord,
    Refused,
    Settled,
    SinkProgress,
    Snapshot,
    decode,
    encode,
)

SINK = SinkProgress("t", 3, 2**62 + 7, 1, 2**31 - 1)
PLAN = Plan("t", 3, 2**62 + 7, 1, 2**31 - 2, (10, 2, 5, 1), Action.DEAD, "too large", 17)


@pytest.mark.parametrize(
    "record",
    [
        PLAN,
        Done((SINK,)),
        Refused("t", 3, 2**62 + 7, 1, 5, "too large", is_unknown_producer=True),
        Grew(12),
        Settled((10, 2, 5, 1)),
        Snapshot(2**62 + 7, (SINK,), 12, 2**40),
    ],
)
def test_a_record_is_read_as_it_was_written(record: ProgressRecord) -> None:
    assert decode(encode(record)) == record


def test_a_plan_knows_its_records() -> None:
    assert list(PLAN.offsets()) == [10, 11, 5]
    assert (PLAN.count, PLAN.first_offset, PLAN.next_sequence) == (3, 5, 1)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode(["future", 1]),
        msgspec.msgpack.encode(["plan", "t"]),
        encode(PLAN)[:-1],
        encode(msgspec.structs.replace(PLAN, runs=())),
        encode(msgspec.structs.replace(PLAN, runs=(1, 2, 3))),
        encode(msgspec.structs.replace(PLAN, runs=(1, 0))),
        encode(msgspec.structs.replace(PLAN, runs=(-1, 1))),
        encode(Settled((1, 2, 3))),
    ],
)
def test_what_cannot_be_understood_is_an_error(value: bytes) -> None:
    with pytest.raises(CorruptError, match="progress record"):
        decode(value)
