"""The walk over a produced batch's records, against a slow one in Python."""

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.model.errors import InvalidRecordError
from ottla.records.survey import find_faults, survey

NOW = 1_700_000_000_000
ANY_TIME = (-(2**63), 2**63 - 1)


class Malformed(Exception):
    """What the reference raises."""


class Sent(NamedTuple):
    """A record as a producer might send it; `pad` bytes more than needed for each number."""

    delta: int = 0
    key: bytes | None = None
    value: bytes | None = b"value"
    headers: tuple[tuple[bytes | None, bytes | None], ...] = ()
    pad: int = 0


def varint(value: int, pad: int = 0) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    for _ in range(pad):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def field(value: bytes | None, pad: int = 0) -> bytes:
    return varint(-1, pad) if value is None else varint(len(value), pad) + value


def encoded(records: Iterable[Sent]) -> bytes:
    out = bytearray()
    for index, record in enumerate(records):
        pad = record.pad
        body = (
            b"\0"
            + varint(record.delta, pad if abs(record.delta) < 2**40 else 0)
            + varint(index, pad)
            + field(record.key, pad)
        )
        body += field(record.value, pad) + varint(len(record.headers), pad)
        body += b"".join(field(key) + field(value) for key, value in record.headers)
        out += varint(len(body), pad) + body
    return bytes(out)


class Reader:
    """Reads one number or field after the other and never beyond `end`."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def varint(self, width: int = 32) -> int:
        raw = shift = 0
        while shift < width:
            if self.at >= self.end:
                raise Malformed
            byte = self.data[self.at]
            self.at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                if raw >> width:
                    raise Malformed
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
        raise Malformed

    def field(self) -> int:
        size = self.varint()
        if size < -1 or size > self.end - self.at:
            raise Malformed
        self.at += max(size, 0)
        return size


def wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def reference(payload: bytes, count: int, base: int, oldest: int, newest: int) -> tuple[int, int, int]:
    """What `survey` promises, one field at a time."""
    outer = Reader(payload, 0, len(payload))
    timestamps, keyless = [], 0
    for index in range(count):
        size = outer.varint()
        if size < 1 or size > outer.end - outer.at:
            raise Malformed
        record = Reader(payload, outer.at + 1, outer.at + size)
        outer.at += size
        timestamps.append(wrapped(base + record.varint(64)))
        if record.varint() != index:
            raise Malformed
        keyless += record.field() < 0
        record.field()
        headers = record.varint()
        if headers < 0:
            raise Malformed
        for _ in range(headers):
            if record.field() < 0:
                raise Malformed
            record.field()
        if record.at != record.end:
            raise Malformed
    if outer.at != outer.end:
        raise Malformed
    untimely = sum(each != -1 and not oldest <= each <= newest for each in timestamps)
    return max([-1, *timestamps]), keyless, untimely


def check(payload: bytes, count: int, base: int = NOW, oldest: int = ANY_TIME[0], newest: int = ANY_TIME[1]) -> bool:
    """Compares both; says whether the payload is well formed."""
    try:
        expected = reference(payload, count, base, oldest, newest)
    except Malformed:
        with pytest.raises(InvalidRecordError):
            survey(payload, count, base, oldest, newest)
        return False
    assert expected == survey(payload, count, base, oldest, newest)
    return True


sizes = st.one_of(st.integers(0, 20), st.sampled_from([62, 63, 64, 65, 126, 127, 128, 8190, 8191, 8192, 8193, 20_000]))
fields = st.none() | sizes.map(lambda size: b"x" * size)
deltas = st.one_of(
    st.integers(-200, 200),
    st.sampled_from([63, 64, -64, -65, 8191, 8192, -8192, -8193, 2**31, -(2**31), 2**62, -(2**62)]),
    st.integers(-(2**63), 2**63 - 1),
)
headers = st.lists(st.tuples(sizes.map(lambda size: b"h" * min(size, 200)), fields), max_size=3).map(tuple)
sent = st.builds(Sent, deltas, fields, fields, st.one_of(st.just(()), headers), st.sampled_from([0, 0, 0, 1, 2]))
times = st.one_of(st.integers(-1000, 1000), st.sampled_from([NOW, -(2**63), 2**63 - 1, -1]))


@given(st.lists(sent, min_size=1, max_size=6), times, times, times)
@example([Sent(-1)], 0, 0, 10)
@example([Sent(2**62), Sent(2**62)], 2**62, 0, 10)
def test_well_formed_records(records: list[Sent], base: int, oldest: int, newest: int) -> None:
    assert check(encoded(records), len(records), base, oldest, newest)


@given(st.lists(sent, min_size=1, max_size=6), st.randoms(use_true_random=False), st.integers(1, 3))
def test_damaged_records(records: list[Sent], random: Random, changes: int) -> None:
    payload = bytearray(encoded(records))
    for _ in range(changes):
        at = random.randrange(min(len(payload), 40)) if random.random() < 0.7 else random.randrange(len(payload))
        payload[at] = random.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFF, payload[at] ^ 1, payload[at] ^ 0x80])
    if random.random() < 0.3:
        del payload[random.randrange(len(payload)) :]
    check(bytes(payload), len(records))


@given(st.binary(max_size=80), st.integers(0, 6))
def test_garbage(payload: bytes, count: int) -> None:
    check(payload, count)


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193, 8200, 16384])
def test_many_records(count: int) -> None:
    """Offset deltas of one, two and three bytes."""
    assert check(encoded(Sent(index) for index in range(count)), count)


@pytest.mark.parametrize("index", [0, 1, 64, 8192, 8199])
@pytest.mark.parametrize("wrong", [b"\x80\x80", b"\x81\x80\x00", b"\x06", b"\x7f"])
def test_a_wrong_offset_anywhere(index: int, wrong: bytes) -> None:
    """A number that goes on after its second byte must not be taken for one that ends there."""
    before = encoded(Sent(each) for each in range(index))
    body = b"\0" + varint(0) + wrong + field(None) + field(b"v" * 30) + varint(0)
    payload = before + varint(len(body)) + body
    after = encoded(Sent(each) for each in range(index + 3))[len(encoded(Sent(each) for each in range(index + 1))) :]
    assert not check(payload + after, index + 3)


def test_a_record_that_ends_with_the_payload() -> None:
    """Numbers near the end are read with a check for each byte."""
    whole = encoded([Sent(1, b"key", b"v" * 50)] * 3)
    for cut in range(1, len(whole)):
        assert not check(whole[:-cut], 3)
    assert check(whole, 3)


def test_untimely_records_are_counted_and_found() -> None:
    records = [Sent(0, b"k"), Sent(500), Sent(-500, b"k"), Sent(-NOW - 1)]
    payload = encoded(records)
    assert (NOW + 500, 2, 2) == survey(payload, 4, NOW, NOW - 100, NOW + 100)
    of_keys: list[tuple[int, int | None]] = [(1, None), (2, NOW - 500), (3, None)]
    of_times: list[tuple[int, int | None]] = [(1, NOW + 500), (2, NOW - 500)]
    for needs_keys, faults in ((True, of_keys), (False, of_times)):
        for faults_max in range(5):
            found = find_faults(payload, 4, NOW, NOW - 100, NOW + 100, needs_keys=needs_keys, faults_max=faults_max)
            assert faults[:faults_max] == found
