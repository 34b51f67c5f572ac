"""The gate of companions, with the rules of delayed delivery."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptBatchError, InvalidRecordError
from ottla.model.ids import TimestampMs
from ottla.model.queue_names import BROKER_HEADERS
from ottla.queues.gate import Admission, Gate
from ottla.queues.kinds.delay_admission import DelayAdmission
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.decode import decode_records
from ottla.records.header_stamp import Stamp
from ottla.records.layout import ATTRIBUTES_AT, COUNT_AT, LAST_OFFSET_DELTA_AT, Codec
from ottla.records.record import Headers, Record
from tests.unit.records.record_strategies import broken, codecs, with_payload

NOW = TimestampMs(1_700_000_000_000)
MAX_MS = 1_000_000
RULES = DelayAdmission(delay_ms=5_000, delay_max_ms=MAX_MS)
GATE = Gate(RULES.admit)


def batch_of(*headers: Headers, **options: object) -> Batch:
    records = [Record(at, NOW - 10 + at, b"k%d" % at, b"v%d" % at, some) for at, some in enumerate(headers)]
    return Batch(bytearray(build_batch(records, **options)))  # type: ignore[arg-type]


def headers_after(*headers: Headers) -> list[Headers]:
    return [record.headers for record in decode_records(GATE.admit(batch_of(*headers), NOW))]


def due(value: int) -> tuple[str, bytes]:
    return ("ottla.due-ms", b"%d" % value)


# When records are due


def test_each_record_gets_the_time_when_it_is_due() -> None:
    at, delay, other = ("ottla.deliver-at-ms", b"%d" % (NOW + 7)), ("ottla.delay-ms", b"250"), ("other", b"x")
    assert [
        (at, due(NOW + 7)),
        (other, delay, due(NOW + 250)),
        (other, due(NOW + 5_000)),
        (due(NOW + 5_000),),
    ] == headers_after((at,), (other, delay), (other,), ())


def test_without_a_fixed_delay_records_are_due_at_once() -> None:
    gate = Gate(DelayAdmission(delay_ms=0, delay_max_ms=MAX_MS).admit)
    assert [(due(NOW),)] == [record.headers for record in decode_records(gate.admit(batch_of(()), NOW))]


@pytest.mark.parametrize("past", [0, 1, NOW - 1, NOW])
def test_a_time_in_the_past_is_due_at_once(past: int) -> None:
    at = ("ottla.deliver-at-ms", b"%d" % past)
    assert [(at, due(NOW))] == headers_after((at,))


def test_a_delay_up_to_the_limit_is_accepted() -> None:
    delay, at = ("ottla.delay-ms", b"%d" % MAX_MS), ("ottla.deliver-at-ms", b"%d" % (NOW + MAX_MS))
    assert [(delay, due(NOW + MAX_MS)), (at, due(NOW + MAX_MS))] == headers_after((delay,), (at,))


def test_a_repeated_header_counts_once_and_must_not_contradict_itself() -> None:
    one, other = ("ottla.delay-ms", b"3"), ("ottla.delay-ms", b"4")
    assert [(one, one, due(NOW + 3))] == headers_after((one, one))
    for contradicting in ((one, other), (other, one)):
        with pytest.raises(InvalidRecordError, match=r"ottla\.delay-ms is repeated with different values"):
            headers_after(contradicting)


def test_a_record_that_cancels_is_not_parked() -> None:
    cancel = ("ottla.delay.cancel", b"order-1")
    named = (("ottla.delay.id", b"order-1"), ("ottla.delay.replace", b"true"))
    assert [(cancel,), (*named, due(NOW + 5_000))] == headers_after((cancel,), named)


def test_headers_of_the_broker_are_removed() -> None:
    forged = tuple((name, b"1") for name in BROKER_HEADERS)
    assert [(("mine", None), due(NOW + 5_000))] == headers_after((*forged, ("mine", None), *forged))


def test_unknown_headers_of_queues_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidRecordError) as caught:
        GATE.admit(batch_of((), (("ottla.delay.ms", b"5"),), (("mine.ottla.x", b"ottla.y"), ("ottla.zzz", b""))), NOW)
    assert [
        (1, "header ottla.delay.ms is unknown; did you mean ottla.delay-ms?"),
        (2, "header ottla.zzz is unknown"),
    ] == list(caught.value.record_errors)


def test_a_header_that_is_repeated_with_another_value_is_refused() -> None:
    header, other = ("ottla.delay-ms", b"100"), ("ottla.delay-ms", b"60000")
    assert [(header, header, due(NOW + 100))] == headers_after((header, header))
    with pytest.raises(InvalidRecordError, match=r"header ottla\.delay-ms is repeated with different values"):
        GATE.admit(batch_of((header, other)), NOW)


def test_other_headers_of_queues_stay() -> None:
    mine = (
        ("ottla.ttl-ms", b"5"),
        ("ottla.retry.reason", b"a"),
        ("ottla.retry.reason", b"b"),
        ("x", b"ottla.delay.ms"),
    )
    assert [(*mine, due(NOW + 5_000))] == headers_after(mine)


# What stays


@pytest.mark.parametrize("codec", Codec)
def test_everything_else_in_the_batch_stays(codec: Codec) -> None:
    batch = batch_of(
        (), (("x", b"y"),), codec=codec, producer_id=7, producer_epoch=2, base_sequence=11, transactional=True
    )
    admitted = GATE.admit(batch, NOW)
    admitted.check()
    expected = [record._replace(headers=(*record.headers, due(NOW + 5_000))) for record in decode_records(batch)]
    assert expected == decode_records(admitted)
    assert (codec, 7, 2, 11, True) == (
        admitted.codec,
        admitted.producer_id,
        admitted.producer_epoch,
        admitted.base_sequence,
        admitted.is_transactional,
    )
    admitted.stamp(99, 3)
    assert 99 == admitted.base_offset


def test_a_kind_may_add_other_headers() -> None:
    seen: list[tuple[bytes, int, int]] = []

    def admit(payload: memoryview, count: int, now_ms: TimestampMs) -> Admission:
        seen.append((bytes(payload), count, now_ms))
        return Admission((Stamp("n", array("q", [1, -1])),), {1: (("why", b"because"),)})

    batch = batch_of((), ())
    admitted = Gate(admit).admit(batch, NOW)
    assert [(("n", b"1"),), (("why", b"because"),)] == [record.headers for record in decode_records(admitted)]
    assert [(bytes(batch.payload), 2, NOW)] == seen


# What is refused


def refused(*headers: Headers) -> InvalidRecordError:
    with pytest.raises(InvalidRecordError) as caught:
        GATE.admit(batch_of(*headers), NOW)
    return caught.value


AT, DELAY, ID, CANCEL, REPLACE = (
    "ottla.deliver-at-ms",
    "ottla.delay-ms",
    "ottla.delay.id",
    "ottla.delay.cancel",
    "ottla.delay.replace",
)
DIGITS = "; use milliseconds as decimal digits"
LARGEST = "is too large; at most 9223372036854775807, in at most 19 digits"


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (((DELAY, b"soon"),), f"header {DELAY}: 'soon' is not a decimal number{DIGITS}"),
        (((DELAY, b""),), f"header {DELAY}: '' is not a decimal number{DIGITS}"),
        (((DELAY, None),), f"header {DELAY}: '' is not a decimal number{DIGITS}"),
        (((DELAY, b"1.5"),), f"header {DELAY}: '1.5' is not a decimal number{DIGITS}"),
        (((DELAY, b"\xff\x00"),), f"header {DELAY}: '\\\\xff\\x00' is not a decimal number{DIGITS}"),
        (((DELAY, b"-1"),), f"header {DELAY}: '-1' is negative{DIGITS}"),
        (((AT, b"-1700000000000"),), f"header {AT}: '-1700000000000' is negative{DIGITS}"),
        (((AT, b"9223372036854775808"),), f"header {AT}: '9223372036854775808' {LARGEST}"),
        (((DELAY, b"1" * 50),), f"header {DELAY}: '{'1' * 40}'... (50 bytes) {LARGEST}"),
        (((DELAY, b"1000001"),), f"header {DELAY}: a delay of 1000001 ms exceeds ottla.delay.max.ms=1000000"),
        (
            ((AT, b"%d" % (NOW + MAX_MS + 1)),),
            f"header {AT}: a delay of 1000001 ms exceeds ottla.delay.max.ms=1000000",
        ),
        (
            ((DELAY, b"9223372036854775807"),),
            f"header {DELAY}: a delay of 9223372036854775807 ms exceeds ottla.delay.max.ms=1000000",
        ),
        (((AT, b"1"), (DELAY, b"1")), f"headers {AT} and {DELAY} contradict each other; set one of them"),
        (((AT, b"x"), (DELAY, b"y")), f"headers {AT} and {DELAY} contradict each other; set one of them"),
        (
            ((CANCEL, b"a"), (DELAY, b"1")),
            f"headers {CANCEL} and {DELAY} contradict each other; a cancel is not delivered",
        ),
        (
            ((CANCEL, b"a"), (ID, b"a")),
            f"headers {CANCEL} and {ID} contradict each other; cancel with a record of its own",
        ),
        (
            ((CANCEL, b"a"), (REPLACE, b"true")),
            f"headers {CANCEL} and {REPLACE} contradict each other; cancel with a record of its own",
        ),
        (((ID, b""),), f"header {ID}: an id has 1 to 255 bytes, not 0"),
        (((CANCEL, b"x" * 256),), f"header {CANCEL}: an id has 1 to 255 bytes, not 256"),
        (((ID, b"\xff"),), f"header {ID}: '\\\\xff' is not UTF-8 text"),
        (((ID, b"a"), (REPLACE, b"yes")), f"header {REPLACE}: 'yes' is not true or false"),
        (
            ((REPLACE, b"true"),),
            f"header {REPLACE} needs the header {ID}, which names the record to replace",
        ),
    ],
)
def test_headers_that_make_no_sense_are_refused_by_name(headers: Headers, reason: str) -> None:
    error = refused((), headers, ())
    assert [(1, reason)] == list(error.record_errors)
    assert f"1 of 3 records are invalid; record 1: {reason}" == str(error)


def test_every_invalid_record_is_named() -> None:
    error = refused(((DELAY, b"x"),), (), ((AT, b"-1"),))
    assert [0, 2] == [index for index, _ in error.record_errors]


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([AT, DELAY, ID, CANCEL, REPLACE, "other"]),
                st.none()
                | st.binary(max_size=4)
                | st.integers(-(2**64), 2**65).map(lambda number: b"%d" % number)
                | st.integers(0, 2 * MAX_MS).map(lambda number: b"%d" % number)
                | st.sampled_from([b"true", b"false", b"0" * 25, b"%d" % (NOW + 5)]),
            ),
            max_size=3,
        ).map(tuple),
        min_size=1,
        max_size=5,
    ),
    codecs,
)
def test_a_batch_is_refused_with_reasons_or_every_parked_record_is_due_in_time(
    headers: list[Headers], codec: Codec
) -> None:
    admitted = outcome(batch_of(*headers, codec=codec))
    if isinstance(admitted, InvalidRecordError):
        assert admitted.record_errors
        assert all("ottla.del" in reason for _, reason in admitted.record_errors)
        return
    for before, record in zip(headers, decode_records(admitted), strict=True):
        if CANCEL in dict(before):
            assert before == record.headers
        else:
            assert before == record.headers[:-1]
            name, value = record.headers[-1]
            assert ("ottla.due-ms", True) == (name, NOW <= int(value or b"-1") <= NOW + MAX_MS)


def outcome(batch: Batch) -> Batch | InvalidRecordError:
    try:
        return GATE.admit(batch, NOW)
    except InvalidRecordError as error:
        return error


# Batches that no log accepts


def test_a_wrong_checksum_is_not_made_right() -> None:
    data = bytearray(batch_of(()).buffer)
    data[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="fails its checksum"):
        GATE.admit(Batch(data), NOW)


def test_malformed_records_are_refused() -> None:
    batch = bytes(batch_of((("a", b"1"),)).buffer)
    malformed = Batch(bytearray(with_payload(batch, batch[61:-3])))
    with pytest.raises(InvalidRecordError, match="record 0"):
        GATE.admit(malformed, NOW)
    garbage = Batch(bytearray(with_payload(bytes(batch_of((), codec=Codec.ZSTD).buffer), b"not zstd")))
    with pytest.raises(InvalidRecordError, match="cannot be decompressed"):
        GATE.admit(garbage, NOW)


@pytest.mark.parametrize(
    ("at", "layout", "value"),
    [
        (ATTRIBUTES_AT, ">h", 0x20),
        (ATTRIBUTES_AT, ">h", 5),
        (COUNT_AT, ">i", 0),
        (COUNT_AT, ">i", -1),
        (COUNT_AT, ">i", 2**31 - 1),
        (LAST_OFFSET_DELTA_AT, ">i", 4),
    ],
)
def test_what_the_log_refuses_anyway_is_left_to_it(at: int, layout: str, value: int) -> None:
    batch = Batch(bytearray(broken(bytes(batch_of(()).buffer), at, layout, value)))
    assert batch is GATE.admit(batch, NOW)
