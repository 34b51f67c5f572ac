"""The header kernel against `decode_records`, and against bytes that are not records."""

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import BatchTooLargeError, CorruptBatchError, CorruptError, MisuseError, OttlaError
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder, build_batch
from ottla.records.decode import decode_records
from ottla.records.header_edit import ABSENT, MALFORMED, HeaderNames, find_headers, find_numbers, replace_headers
from ottla.records.header_stamp import Stamp
from ottla.records.layout import HEADER_BYTES, Codec
from ottla.records.payload import read_payload
from ottla.records.record import Headers, Record
from tests.unit.records.record_strategies import broken, codecs, record_lists, with_payload

NAMES = ("due", "id", "żółw", "")
NOTHING = HeaderNames()

named = st.tuples(st.sampled_from([*NAMES, "other", "dua", "du"]), st.none() | st.binary(max_size=6))
edited_records = record_lists().flatmap(
    lambda records: st.lists(st.lists(named, max_size=5).map(tuple), min_size=len(records), max_size=len(records)).map(
        lambda found: [record._replace(headers=headers) for record, headers in zip(records, found, strict=True)]
    )
)


def found_in(records: Sequence[Record], names: Sequence[str]) -> list[tuple[int, tuple[bytes | None, ...]]]:
    """What `find_headers` should find, from decoded records."""
    found = []
    for index, record in enumerate(records):
        last = dict(record.headers)
        if any(name in last for name in names):
            found.append((index, tuple((last[name] or b"") if name in last else None for name in names)))
    return found


def one_batch(*headers: Headers, codec: Codec = Codec.NONE) -> Batch:
    """A batch with a record for each tuple of headers."""
    builder = BatchBuilder(codec=codec)
    for number, some in enumerate(headers):
        builder.append(1000 + number, b"k%d" % number, b"v", some)
    return Batch(builder.build())


def numbers_of(*values: bytes | None) -> list[int]:
    batch = one_batch(*((("n", value),) for value in values))
    (numbers,) = find_numbers(batch.payload, batch.count, HeaderNames("n"))
    return list(numbers)


# Finding


@given(edited_records, codecs)
def test_finds_the_last_header_of_each_name(records: list[Record], codec: Codec) -> None:
    batch = Batch(build_batch(records, codec=codec))
    assert found_in(records, NAMES) == find_headers(read_payload(batch), batch.count, HeaderNames(*NAMES))


def test_records_without_the_headers_are_left_out() -> None:
    batch = one_batch((), (("a", b"1"), ("b", None), ("a", b"2")), (("c", b"3"),))
    assert [(1, (b"2", b"", None))] == find_headers(batch.payload, 3, HeaderNames("a", "b", "missing"))


def test_nothing_is_found_in_no_records_and_of_no_names() -> None:
    assert [] == find_headers(b"", 0, HeaderNames("a"))
    assert [] == find_headers(one_batch((("a", b"1"),)).payload, 1, NOTHING)


@given(st.lists(st.none() | st.integers(0, 2**63 - 1), min_size=1, max_size=20))
def test_reads_numbers(values: list[int | None]) -> None:
    batch = one_batch(*(() if value is None else (("x", b"y"), ("n", b"%d" % value)) for value in values))
    expected = array("q", [ABSENT if value is None else value for value in values])
    numbers, others = find_numbers(batch.payload, batch.count, HeaderNames("n", "nowhere"))
    assert expected == numbers
    assert array("q", [ABSENT] * len(values)) == others


def test_a_number_is_made_of_digits_only() -> None:
    good = [b"0", b"007", b"9223372036854775807"]
    bad = [b"", None, b"-1", b"+1", b" 1", b"1 ", b"1.0", b"1e3", b"0x1", "١".encode(), b"\xff"]
    too_large = [b"9223372036854775808", b"9999999999999999999", b"10000000000000000000", b"0" * 20, b"1" * 1000]
    assert [0, 7, 2**63 - 1] == numbers_of(*good)
    assert [MALFORMED] * len(bad) == numbers_of(*bad)
    assert [MALFORMED] * len(too_large) == numbers_of(*too_large)


def test_the_last_number_counts() -> None:
    batch = one_batch((("n", b"1"), ("n", b"2")), (("n", b"3"), ("n", b"x")))
    assert (array("q", [2, MALFORMED]),) == find_numbers(batch.payload, 2, HeaderNames("n"))


def test_large_payloads_are_read_as_small_ones() -> None:
    headers = ((("filler", b"x" * 100), ("n", b"%d" % number)) for number in range(5000))
    batch = one_batch(*headers)
    (numbers,) = find_numbers(batch.payload, batch.count, HeaderNames("n"))
    assert array("q", range(5000)) == numbers


def test_names_have_limits() -> None:
    assert ("x" * 62,) == HeaderNames("x" * 62).names
    with pytest.raises(MisuseError, match="longer than 62 bytes"):
        HeaderNames("x" * 63)
    with pytest.raises(MisuseError, match="too many"):
        HeaderNames(*(f"n{number}" for number in range(65)))


def test_as_many_names_as_possible_are_told_apart() -> None:
    names = [f"n{number}" for number in range(64)]
    batch = one_batch(tuple((name, name.encode()) for name in names))
    assert [(0, tuple(name.encode() for name in names))] == find_headers(batch.payload, 1, HeaderNames(*names))


def test_a_header_with_a_long_name_is_none_of_the_wanted() -> None:
    batch = one_batch((("x" * 5000, b"1"), ("x" * 62, b"2"), ("x" * 63, b"3")))
    assert [(0, (b"2",))] == find_headers(batch.payload, 1, HeaderNames("x" * 62))


# Replacing


@given(
    records=edited_records,
    codec=codecs,
    dropped=st.lists(st.sampled_from([*NAMES, "other"]), unique=True),
    data=st.data(),
    timestamp_type=st.sampled_from([0, 1]),
    transactional=st.booleans(),
)
def test_replaces_headers_and_nothing_else(
    records: list[Record],
    codec: Codec,
    dropped: list[str],
    data: st.DataObject,
    timestamp_type: int,
    transactional: bool,
) -> None:
    batch = Batch(
        build_batch(
            records,
            codec=codec,
            timestamp_type=timestamp_type,
            producer_id=2**40,
            producer_epoch=3,
            base_sequence=77,
            transactional=transactional,
            leader_epoch=5,
        )
    )
    count = batch.count
    due = data.draw(st.lists(st.integers(-2, 2**63 - 1), min_size=count, max_size=count))
    origin = data.draw(st.lists(st.integers(0, 10), min_size=count, max_size=count))
    added = data.draw(st.dictionaries(st.integers(0, count - 1), st.lists(named, max_size=3).map(tuple), max_size=4))
    stamps = [Stamp("due-ms", array("q", due)), Stamp("origin", array("q", origin), b"t/3/")]

    edited = Batch(replace_headers(batch, drop=HeaderNames(*dropped), stamps=stamps, added=added))

    edited.check()
    expected = [
        record._replace(
            headers=(
                *((name, value) for name, value in record.headers if name not in dropped),
                *((("due-ms", b"%d" % due[index]),) if due[index] >= 0 else ()),
                ("origin", b"t/3/%d" % origin[index]),
                *added.get(index, ()),
            )
        )
        for index, record in enumerate(decode_records(batch))
    ]
    assert expected == decode_records(edited)
    assert header_of(batch) == header_of(edited)


def header_of(batch: Batch) -> tuple[int, ...]:
    """Everything in a batch's header but its size and its CRC."""
    return (
        batch.base_offset,
        batch.leader_epoch,
        batch.attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.count,
    )


@given(record_lists(), codecs)
def test_a_batch_without_changes_has_the_same_records_and_bytes(records: list[Record], codec: Codec) -> None:
    batch = Batch(build_batch(records, codec=codec))
    edited = Batch(replace_headers(batch, drop=HeaderNames("not there at all")))
    assert bytes(read_payload(batch)) == bytes(read_payload(edited))
    if codec is Codec.NONE:
        assert bytes(batch.buffer) == bytes(edited.buffer)


def test_the_result_can_be_stamped() -> None:
    edited = Batch(replace_headers(one_batch((("a", b"1"),)), drop=HeaderNames("a")))
    edited.stamp(17, 3)
    assert [Record(17, 1000, b"k0", b"v", ())] == decode_records(edited)


def test_payload_that_is_known_is_not_decompressed_again() -> None:
    batch = one_batch((("a", b"1"),), codec=Codec.ZSTD)
    other = one_batch((("a", b"2"),))
    edited = Batch(replace_headers(batch, drop=NOTHING, payload=other.payload))
    assert Codec.ZSTD == edited.codec
    assert [(("a", b"2"),)] == [record.headers for record in decode_records(edited)]


def test_a_count_of_headers_may_get_longer() -> None:
    many = tuple((f"h{number}", b"") for number in range(63))
    batch = one_batch(many, many)
    edited = Batch(replace_headers(batch, drop=NOTHING, added={1: (("last", b"x" * 5000),)}))
    assert [many, (*many, ("last", b"x" * 5000))] == [record.headers for record in decode_records(edited)]


@pytest.mark.parametrize("codec", Codec)
def test_an_emptied_batch_stays_empty(codec: Codec) -> None:
    batch = Batch(build_batch([], base_offset=7, last_offset_delta=4, codec=codec))
    emptied = Batch(with_payload(bytes(batch.buffer), b"", count=0))
    edited = Batch(replace_headers(emptied, drop=HeaderNames("a"), stamps=[Stamp("n", array("q"))]))
    assert bytes(emptied.buffer) == bytes(edited.buffer)


def test_numbers_and_headers_must_fit_the_records() -> None:
    batch = one_batch((), ())
    with pytest.raises(MisuseError, match="8 bytes of numbers for 2 records"):
        replace_headers(batch, drop=NOTHING, stamps=[Stamp("n", array("q", [1]))])
    for index in (-1, 2):
        with pytest.raises(MisuseError, match=f"record {index}"):
            replace_headers(batch, drop=NOTHING, added={index: (("a", b""),)})


def test_records_that_would_grow_beyond_the_limit_are_refused() -> None:
    batch = one_batch(*([()] * 100), codec=Codec.ZSTD)
    size = len(read_payload(batch))
    with pytest.raises(BatchTooLargeError, match=f"exceeds {size + 100} bytes"):
        replace_headers(batch, drop=NOTHING, added={3: (("a", b"x" * 200),)}, limit=size + 100)


# Damage


def all_agree(batch: Batch) -> None:
    """Either all functions read the records, as `decode_records` does, or all of them refuse."""
    names = HeaderNames("due", "id")
    try:
        records: list[Record] | None = decode_records(batch)
    except OttlaError:
        records = None
    try:
        payload = read_payload(batch)
        found = find_headers(payload, batch.count, names)
        numbers = find_numbers(payload, batch.count, names)
        edited = decode_records(Batch(replace_headers(batch, drop=names)))
    except OttlaError:
        # These do not look at offsets, which `decode_records` does: they accept more.
        assert records is None
        return
    if records is not None:
        assert found_in(records, names.names) == found
        assert [len(records)] * 2 == [len(column) for column in numbers]
        kept = [tuple(header for header in record.headers if header[0] not in names.names) for record in records]
        assert kept == [record.headers for record in edited]


@given(edited_records, st.data())
def test_damaged_records_are_refused_or_read_as_others_read_them(records: list[Record], data: st.DataObject) -> None:
    payload = bytearray(Batch(whole := build_batch(records)).payload)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)) | st.just(len(payload)))
    count = data.draw(st.sampled_from([None, 0, 1, 2**31 - 1]))
    damaged = with_payload(whole, bytes(payload[:cut]), count=count)
    try:
        all_agree(Batch(damaged))
    except CorruptError:
        pytest.fail("decode_records refuses what the edit produced")


@given(st.binary(max_size=200), st.integers(-5, 40))
def test_bytes_that_are_not_records_are_refused(payload: bytes, count: int) -> None:
    for function in (find_headers, find_numbers):
        try:
            function(payload, count, HeaderNames("a", ""))
        except CorruptBatchError:
            continue
        assert 0 <= count <= len(payload) // 7


@pytest.mark.parametrize("length", [0x7E, 0, 1], ids=["too long", "too short", "null"])
def test_headers_must_fill_their_record(length: int) -> None:
    batch = one_batch((), (("a", b"1"),))
    payload = bytearray(batch.payload)
    payload[-2] = length  # of the last header's value
    for function in (find_headers, find_numbers):
        with pytest.raises(CorruptBatchError, match="record 1 has headers that do not fill its rest"):
            function(payload, 2, HeaderNames("a"))
    damaged = Batch(with_payload(bytes(batch.buffer), bytes(payload)))
    with pytest.raises(CorruptBatchError, match="record 1 has headers that do not fill its rest"):
        replace_headers(damaged, drop=NOTHING)


def test_a_count_that_the_bytes_cannot_hold_takes_no_memory() -> None:
    batch = one_batch((("a", b"1"),))
    for count in (2, 2**31 - 1, -1):
        for function in (find_headers, find_numbers):
            with pytest.raises(CorruptBatchError):
                function(batch.payload, count, HeaderNames("a"))
    with pytest.raises(CorruptBatchError):
        replace_headers(Batch(broken(bytes(batch.buffer), 57, ">i", 2**31 - 1)), drop=NOTHING)


def test_numbers_in_more_bytes_than_they_need_are_read() -> None:
    """Varints may be padded: 0x80 0x00 is zero in two bytes."""
    body = b"\x00\x80\x00\x80\x00\x82\x00k\x82\x00v\x82\x00\x82\x00a\x82\x001"
    payload = bytes([2 * len(body)]) + body
    batch = Batch(with_payload(bytes(one_batch(()).buffer), payload, count=1))
    assert [Record(0, 1000, b"k", b"v", (("a", b"1"),))] == decode_records(batch)
    assert [(0, (b"1",))] == find_headers(payload, 1, HeaderNames("a"))
    edited = Batch(replace_headers(batch, drop=HeaderNames("a"), added={0: (("b", None),)}))
    assert [Record(0, 1000, b"k", b"v", (("b", None),))] == decode_records(edited)


def test_the_header_of_a_batch_is_left_as_it_is_when_there_is_nothing_to_edit() -> None:
    batch = one_batch((("a", b"1"),))
    assert bytes(batch.buffer[:HEADER_BYTES]) == bytes(replace_headers(batch, drop=NOTHING)[:HEADER_BYTES])
