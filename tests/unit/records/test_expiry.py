"""The expiry kernel against the rule written out in Python, record by record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptBatchError
from ottla.model.queue_names import DUE_MS, TTL_MS
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.compaction import empty_batch, stamp_horizon
from ottla.records.decode import decode_records
from ottla.records.expiry import NEVER, NO_TTL, drop_expired, expiries, expiry_bounds
from ottla.records.layout import COUNT_AT, HEADER_BYTES, Codec
from ottla.records.record import Record
from tests.unit.records.record_strategies import broken, codecs, fields, with_payload

Headers = tuple[tuple[str, bytes | None], ...]

NOW = 1_700_000_000_000


def number(text: bytes | None) -> int | None:
    """What a header's value says, None unless it is a decimal number of 64 bits."""
    is_decimal = text is not None and 1 <= len(text) <= 19 and all(byte in b"0123456789" for byte in text)
    value = int(text) if is_decimal and text is not None else -1
    return value if 0 <= value < 2**63 else None


def expected_expiry(record: Record, ttl_ms: int) -> int:
    """The rule: the later of timestamp and due time, and the TTL of the record or else of the topic."""
    told = dict(record.headers)
    own, due = number(told.get(TTL_MS)), number(told.get(DUE_MS))
    ttl = own if own is not None else ttl_ms
    since = max(record.timestamp, -1 if due is None else due)
    return NEVER if ttl < 0 or since < 0 else min(since + ttl, NEVER)


times = st.integers(NOW - 10_000, NOW + 10_000) | st.sampled_from([-1, 0, 2**62])
numbers = (
    st.integers(0, 20_000).map(lambda value: str(value).encode())
    | st.integers(NOW - 10_000, NOW + 10_000).map(lambda value: str(value).encode())
    | st.sampled_from([None, b"", b"0", b"007", b"-1", b"+5", b" 5", b"5 ", b"1e3", b"9223372036854775807"])
    | st.sampled_from([b"9223372036854775808", b"99999999999999999999", b"\xd9\xa3", b"0" * 40])
)
names = st.sampled_from([TTL_MS, DUE_MS, "ottla.ttl-m", "ottla.ttl-ms2", "Ottla.ttl-ms", "x", ""])
header_lists = st.lists(st.tuples(names, numbers), max_size=4).map(tuple)
ttls = st.just(NO_TTL) | st.integers(0, 20_000) | st.just(2**63 - 1)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Batch, list[Record]]:
    offset = draw(st.integers(0, 2**40))
    base_offset = max(0, offset - draw(st.integers(0, 3)))
    records = []
    for _ in range(draw(st.integers(1, 25))):
        records.append(Record(offset, draw(times), draw(fields), draw(fields), draw(header_lists)))
        offset += draw(st.integers(1, 3))
    content = build_batch(
        records,
        base_offset=base_offset,
        last_offset_delta=records[-1].offset - base_offset + draw(st.integers(0, 3)),
        codec=draw(codecs),
        timestamp_type=(append_time := draw(st.integers(0, 1))),
        producer_id=draw(st.sampled_from([-1, 7])),
        producer_epoch=3,
        base_sequence=11,
        transactional=draw(st.booleans()),
        leader_epoch=5,
    )
    batch = Batch(content)
    if append_time:
        records = decode_records(batch)
    return batch, records


@given(batches(), ttls)
def test_the_expiry_of_each_record(made: tuple[Batch, list[Record]], ttl_ms: int) -> None:
    batch, records = made
    expected = [(expected_expiry(record, ttl_ms), record.offset) for record in records]
    found = expiries(batch, ttl_ms)
    assert [pair for pair in expected if pair[0] != NEVER] == list(zip(found[::2], found[1::2], strict=True))
    whens = [when for when, _ in expected]
    assert (min(whens), max(whens)) == expiry_bounds(batch, ttl_ms)


@given(batches(), ttls, st.integers(NOW - 20_000, NOW + 40_000))
def test_the_batch_without_its_expired_records(made: tuple[Batch, list[Record]], ttl_ms: int, now: int) -> None:
    batch, records = made
    left = [record for record in records if expected_expiry(record, ttl_ms) > now]
    kept, content = drop_expired(batch, ttl_ms, now)
    assert len(left) == kept
    if kept in (0, len(records)):
        assert content is None
        return
    assert content is not None
    rebuilt = Batch(content)
    rebuilt.check()
    assert left == decode_records(rebuilt)
    assert left[-1].offset == rebuilt.last_offset
    for name in (
        "base_offset", "base_timestamp", "leader_epoch", "attributes", "producer_id", "producer_epoch", "base_sequence",
    ):  # fmt: skip
        assert getattr(batch, name) == getattr(rebuilt, name)
    largest = batch.max_timestamp if batch.timestamp_type else max(record.timestamp for record in left)
    assert largest == rebuilt.max_timestamp


def made_of(*headers: Headers, timestamp: int = NOW, **options: object) -> Batch:
    records = [Record(at, timestamp, b"k", b"v", each) for at, each in enumerate(headers)]
    return Batch(build_batch(records, **options))  # type: ignore[arg-type]


def test_the_last_of_repeated_headers_counts() -> None:
    assert (NOW + 7, NOW + 7) == expiry_bounds(made_of(((TTL_MS, b"5"), ("x", None), (TTL_MS, b"7"))), NO_TTL)
    assert (NOW + 9, NOW + 9) == expiry_bounds(made_of(((TTL_MS, b"5"), (TTL_MS, b"soon"))), 9)


def test_a_record_expires_at_its_expiry_and_not_before() -> None:
    batch = made_of(((TTL_MS, b"10"),))
    assert (1, None) == drop_expired(batch, NO_TTL, NOW + 9)
    assert (0, None) == drop_expired(batch, NO_TTL, NOW + 10)


def test_a_record_without_a_timestamp_has_no_age() -> None:
    assert (NEVER, NEVER) == expiry_bounds(made_of(((TTL_MS, b"10"),), timestamp=-1), 10)
    due = ((TTL_MS, b"10"), (DUE_MS, str(NOW).encode()))
    assert (NOW + 10, NOW + 10) == expiry_bounds(made_of(due, timestamp=-1), NO_TTL)


def test_a_delete_horizon_does_not_move_the_expiry() -> None:
    stamped = Batch(stamp_horizon(made_of((), ()), NOW + 10**9))
    assert (NOW + 10, NOW + 10) == expiry_bounds(stamped, 10)


def test_control_batches_and_empty_ones_never_expire() -> None:
    control = made_of(((TTL_MS, b"0"),), control=True)
    assert (NEVER, NEVER) == expiry_bounds(control, 0)
    assert (1, None) == drop_expired(control, 0, NOW + 1)
    empty = Batch(empty_batch(made_of(())))
    assert (NEVER, NEVER) == expiry_bounds(empty, 0)
    assert (0, None) == drop_expired(empty, 0, NOW + 1)
    assert [] == list(expiries(control, 0)) == list(expiries(empty, 0))


@pytest.mark.parametrize("codec", Codec)
def test_damaged_records_are_refused(codec: Codec) -> None:
    good = bytes(made_of((), ((TTL_MS, b"10"),), codec=codec).buffer)
    for content in (
        broken(good, COUNT_AT, ">i", 3),
        broken(good, COUNT_AT, ">i", -1),
        broken(good, COUNT_AT, ">i", 2**31 - 1),
        with_payload(good, good[HEADER_BYTES:-1]),
    ):
        for ask in (
            lambda batch: expiry_bounds(batch, 5),
            lambda batch: expiries(batch, 5),
            lambda batch: drop_expired(batch, 5, NOW),
        ):
            with pytest.raises(CorruptBatchError):
                ask(Batch(content))


def test_headers_that_do_not_fill_the_record_are_damage() -> None:
    good = bytes(made_of((("ab", b"cd"),)).buffer)
    at = good.index(b"ab") - 1
    with pytest.raises(CorruptBatchError, match="headers that do not fill"):
        expiry_bounds(Batch(with_payload(good, good[HEADER_BYTES:at] + b"\x02" + good[at + 1 :])), 5)
