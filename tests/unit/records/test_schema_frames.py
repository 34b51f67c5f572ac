"""The kernel that finds schema ids, against the same in Python, and against bytes that are not records."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptBatchError
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.header_edit import HeaderNames
from ottla.records.payload import read_payload
from ottla.records.record import Record
from ottla.records.schema_frames import records_with_frames, schema_frames

NAME = "__value_schema_id"
HEADER = HeaderNames(NAME)
framed = st.none() | st.sampled_from(
    [b"", b"\0", b"\0\0\0\0\7", b"\0\0\0\0\7more", b"\0\0\0\0\x08more", b"\1" + bytes(16), b"\1" + bytes(15), b"text"]
)
headers = st.lists(st.tuples(st.sampled_from([NAME, "other", "__value_schema_ie"]), framed), max_size=3).map(tuple)
records = st.lists(st.builds(Record, st.just(0), st.just(0), framed, framed, headers), min_size=1, max_size=20).map(
    lambda found: [record._replace(offset=offset) for offset, record in enumerate(found)]
)


def frame_of(record: Record, *, of_keys: bool) -> bytes | None:
    frame = record.key if of_keys else record.value
    if frame is None:
        return None
    in_header = dict(record.headers).get(NAME)
    frame = frame if in_header is None else in_header
    size = 5 if frame[:1] == b"\0" and len(frame) >= 5 else 17 if frame[:1] == b"\1" and len(frame) >= 17 else 4
    return frame[:size]


def expected(records: Sequence[Record], *, of_keys: bool) -> dict[bytes | None, int]:
    found: dict[bytes | None, int] = {}
    for index, record in enumerate(records):
        found.setdefault(frame_of(record, of_keys=of_keys), index)
    return found


@given(records, st.booleans())
def test_the_kernel_finds_what_python_finds(records: list[Record], of_keys: bool) -> None:
    batch = Batch(build_batch(records))
    payload, count = read_payload(batch), len(records)
    frames = expected(records, of_keys=of_keys)
    assert frames == schema_frames(payload, count, HEADER, of_keys, 100)
    assert dict(list(frames.items())[:2]) == schema_frames(payload, count, HEADER, of_keys, 2)
    wanted = frozenset(each for each in list(frames)[::2] if each is not None)
    found = [(index, frame_of(record, of_keys=of_keys)) for index, record in enumerate(records)]
    found = [each for each in found if each[1] in wanted]
    assert found == records_with_frames(payload, count, HEADER, of_keys, wanted, 100)
    assert found[:2] == records_with_frames(payload, count, HEADER, of_keys, wanted, 2)


@given(records, st.integers(0, 200), st.integers(0, 255))
def test_damage_is_found_or_harmless(records: list[Record], at: int, byte: int) -> None:
    payload = bytearray(read_payload(Batch(build_batch(records))))
    payload[at % len(payload)] = byte
    try:
        frames = schema_frames(payload, len(records), HEADER, False, 100)
    except CorruptBatchError:
        return
    assert all(0 <= index < len(records) for index in frames.values())


def test_wrong_counts_are_refused() -> None:
    payload = read_payload(Batch(build_batch([Record(0, 0, None, b"text")])))
    for count in (-1, 0, 2, 1 << 30):
        with pytest.raises(CorruptBatchError):
            schema_frames(payload, count, HEADER, False, 100)


def test_only_the_first_name_counts() -> None:
    records = [Record(0, 0, None, b"text", (("other", b"\0\0\0\0\7"),))]
    payload = read_payload(Batch(build_batch(records)))
    assert {b"text": 0} == schema_frames(payload, 1, HeaderNames(NAME, "other"), False, 100)
    assert {b"\0\0\0\0\7": 0} == schema_frames(payload, 1, HeaderNames("other", NAME), False, 100)
