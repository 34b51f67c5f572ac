"""JSON values to rows: the fast way and the exact way agree, and no value disturbs its neighbours."""

import json
import math
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.registry.serde.arrow.json_rows import JsonValues
from ottla.registry.serde.arrow.row_decoding import BlockRefusedError, decode_rows
from ottla.spark.values.value_types import arrow_fields
from tests.effort import effort
from tests.unit.spark.value_cases import array_of, decoded, map_of, spark_schema

pytestmark = pytest.mark.slow

ITEM = spark_schema(sku="string", quantity="integer")
ORDER = spark_schema(
    id="string",
    customer="long",
    amount="double",
    paid="boolean",
    price="decimal(10,2)",
    at="timestamp",
    day="date",
    items=array_of(ITEM),
    address=spark_schema(street="string", number="short"),
)


def values_of(**fields: Any) -> JsonValues:
    return JsonValues(pa.struct(arrow_fields(spark_schema(**fields))))


def test_an_order_becomes_a_row_in_one_block() -> None:
    text = (
        '{"id":"a","customer":7,"amount":1.5,"paid":true,"price":2.50,"at":"2024-05-01T12:00:00Z","day":"2024-05-01",'
        '"items":[{"sku":"x","quantity":2},{"sku":null}],"address":{"street":"High","number":3,"city":"?"},"more":[{}]}'
    )
    rows = JsonValues(pa.struct(arrow_fields(ORDER))).decode_block(pa.array([text.encode(), b"{}"], pa.binary()))
    nothing = dict.fromkeys(("id", "customer", "amount", "paid", "price", "at", "day", "items", "address"))
    assert [
        {
            "id": "a",
            "customer": 7,
            "amount": 1.5,
            "paid": True,
            "price": Decimal("2.50"),
            "at": datetime(2024, 5, 1, 12, tzinfo=UTC),
            "day": date(2024, 5, 1),
            "items": [{"sku": "x", "quantity": 2}, {"sku": None, "quantity": None}],
            "address": {"street": "High", "number": 3},
        },
        nothing,
    ] == rows.to_pylist()


BAD = None
"""Stands for a reason in the table below."""
NEW_YEAR = datetime(2020, 1, 1, tzinfo=ZoneInfo("UTC"))


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "9223372036854775808", BAD),
        ("long", "1.0", BAD),
        ("long", '"1"', BAD),
        ("long", "true", BAD),
        ("long", "01", BAD),
        ("byte", "-128", -128),
        ("byte", "128", BAD),
        ("double", "1", 1.0),
        ("double", "NaN", math.nan),
        ("double", '"NaN"', math.nan),
        ("double", "-Infinity", -math.inf),
        ("double", '"-Infinity"', -math.inf),
        ("double", "1e400", math.inf),
        ("double", '"1.5"', BAD),
        ("float", "1.5", 1.5),
        ("decimal(10,2)", "1.555", Decimal("1.56")),
        ("decimal(10,2)", "1.545", Decimal("1.55")),
        ("decimal(10,2)", '"1.5"', Decimal("1.50")),
        ("decimal(10,2)", "1e3", Decimal("1000.00")),
        ("decimal(10,2)", "12345678901", BAD),
        ("decimal(10,2)", "99999999.995", BAD),
        ("decimal(10,2)", "1e-999999999", Decimal("0.00")),
        ("decimal(10,2)", "1e999999999", BAD),
        ("decimal(10,2)", "1" * 5000, BAD),
        ("string", '"a\\u00e9\\n"', "aé\n"),
        ("string", "1.10", "1.10"),
        ("string", '{"b": [1]}', '{"b": [1]}'),
        ("string", '"\\ud83d\\ude00"', "😀"),
        ("string", '"\\ud800"', BAD),
        ("string", '"\\udc00"', BAD),
        ("boolean", "false", False),
        ("boolean", '"true"', BAD),
        ("timestamp", '"2020-01-01"', NEW_YEAR),
        ("timestamp", '"2020-1-1 0:0:0"', NEW_YEAR),
        ("timestamp", '"2020-01-01T02:00:00+02:00"', NEW_YEAR),
        ("timestamp", '"2020-01-01T00:00:00.123456789Z"', NEW_YEAR.replace(microsecond=123456)),
        ("timestamp", "1577836800", NEW_YEAR),
        ("timestamp", '"2020-02-30"', BAD),
        ("timestamp", '"2020-01-01T00:00:00+99:00"', BAD),
        ("timestamp", "9223372036854775807", BAD),
        ("timestamp_ntz", '"2020-01-01T00:00:00"', NEW_YEAR.replace(tzinfo=None)),
        ("date", '"2020-1-1"', date(2020, 1, 1)),
        ("date", '"2020-01-01T10:00"', date(2020, 1, 1)),
        ("date", "18000", BAD),
        ("binary", '"YWJj"', b"abc"),
        ("binary", '"$"', BAD),
        (array_of("integer"), "[1,null]", [1, None]),
        (array_of("integer"), '[1,"a"]', BAD),
        (array_of("integer"), "1", BAD),
        (map_of("integer"), '{"a":1,"b":null}', [("a", 1), ("b", None)]),
        (map_of("integer"), "[]", BAD),
        (spark_schema(x="integer"), '{"x":1,"y":2}', {"x": 1}),
        (spark_schema(x="integer"), '{"x":"a"}', BAD),
        (spark_schema(x="integer"), '"{}"', BAD),
    ],
)
def test_each_type_is_read_as_spark_reads_it(kind: Any, text: str, expected: Any) -> None:
    value = f'{{"a":{text}}}'.encode()
    format = values_of(a=kind)
    (row,) = decoded(format, [value])
    if expected is BAD:
        assert isinstance(row, str), row
        assert "field a" in row or "not JSON" in row
    else:
        assert repr({"a": expected}) == repr(row)
    try:
        block = format.decode_block(pa.array([value], pa.binary())).to_pylist()
    except BlockRefusedError:
        return
    assert repr([row]) == repr(block), "a block reads otherwise than a row"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"  ",
        b"5",
        b"[]",
        b'[{"a":1}]',
        b'"x"',
        b'{"a":1',
        b'{"a":1}}',
        b'{"a":1}{"a":2}',
        b'{"a":1},{"a":2}',
        b'{"a":1}\n{"a":2}',
        b'{"a":1}}\n{"v":{"a":2}',
        b'{"a":1,}',
        b"{'a':1}",
        b'{"z":"a\nb","a":1}',
        b'\xff{"a":1}',
        b'{"z":"\xff","a":1}',
        b"\x00",
        b"null null",
    ],
)
def test_what_is_not_one_object_is_bad_and_its_neighbours_are_good(value: bytes) -> None:
    good = b'{"a":1}'
    rows = decoded(values_of(a="integer"), [good, value, good, None, b'{"a":\n2}'])
    assert [{"a": 1}, {"a": 1}, None, {"a": 2}] == [rows[0], *rows[2:]]
    assert isinstance(rows[1], str)


def test_the_last_of_two_fields_of_the_same_name_counts() -> None:
    assert [{"a": 2}] == decoded(values_of(a="integer"), [b'{"a":1,"a":2}'])


def test_a_field_that_must_be_there_makes_its_row_bad() -> None:
    kind = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.int32())])
    rows = decoded(JsonValues(kind), [b'{"a":1}', b'{"b":1}', None])
    missing = "field a is missing, but the schema says NOT NULL"
    assert [{"a": 1, "b": None}, missing, missing] == rows


@pytest.mark.parametrize(("bad", "alone_max"), [(b"{", 1), (b'{"a":"x"}', 128)])
def test_one_bad_row_does_not_slow_down_all_the_others(
    monkeypatch: pytest.MonkeyPatch, bad: bytes, alone_max: int
) -> None:
    format = values_of(a="integer")
    alone: list[bytes] = []
    decode_row = format.decode_row

    def counted(value: bytes) -> dict[str, Any] | None:
        alone.append(value)
        return decode_row(value)

    monkeypatch.setattr(format, "decode_row", counted)
    values = [b'{"a":%d}' % number for number in range(10_000)]
    values[5_000] = bad
    found = decode_rows(format, pa.array(values, pa.binary()))
    assert [5_000] == [each.index for each in found.rejected]
    assert alone_max >= len(alone)
    assert list(range(4_990, 5_000)) == found.rows.slice(4_990, 10).field(0).to_pylist()


N = 1_000_000


@pytest.mark.parametrize(
    ("kind", "value", "is_good"),
    [
        ("long", b'{"z":' + b"[" * N + b"]" * N + b',"a":1}', True),
        ("long", b'{"z":' + b'{"b":' * N + b"1" + b"}" * N + b',"a":1}', True),
        ("long", b'{"z":' + b"[" * N, False),
        ("long", b'{"a":' + b"[" * N + b"]" * N + b"}", False),
        ("string", b'{"a":' + b"[" * N + b"]" * N + b"}", False),
        ("long", b'{"a":' + b"1" * N + b"}", False),
        ("double", b'{"a":1e' + b"9" * N + b"}", True),
        ("decimal(38,2)", b'{"a":1e-' + b"9" * N + b"}", False),
        ("decimal(38,2)", b'{"a":' + b"1" * N + b"}", False),
        ("decimal(38,2)", b'{"a":"1e-999999999"}', True),
        ("double", b'{"a":NaN,"b":"' + b'\\"' * N, False),
        ("double", b'{"a":NaN,' + b'\\"' * N, False),
        ("timestamp", b'{"a":"' + b"1" * N + b'"}', False),
        ("binary", b'{"a":"' + b"!" * N + b'"}', False),
        (map_of("long"), b'{"a":{' + b",".join(b'"%d":1' % n for n in range(N // 10)) + b"}}", True),
    ],
)
def test_bombs_take_bounded_time(kind: Any, value: bytes, is_good: bool) -> None:
    begun = time.process_time()
    (row,) = decoded(values_of(a=kind), [value])
    assert is_good == isinstance(row, dict)
    assert isinstance(row, dict) or len(row) < 300
    assert time.process_time() - begun < 10


_garbage = st.one_of(
    st.binary(max_size=12),
    st.text(alphabet='{}[]",:av1 \n\\nulltrefas', max_size=14).map(str.encode),
    st.sampled_from(
        [b'{"a":1,"b":"x"}', b'{"a":null}', b"null", b'{"a":"1"}', b'{"b":{"c":1}}', b'1}\n{"v":1', b'"', b'{},"b":1']
    ),
)


@effort(300)
@given(st.lists(_garbage, max_size=8))
def test_a_value_means_the_same_alone_and_among_others(values: list[bytes]) -> None:
    format = values_of(a="integer", b="string")
    assert [decoded(format, [each])[0] for each in values] == decoded(format, list(values))


_orders = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.text(),
        "customer": st.integers(-(2**63), 2**63 - 1),
        "amount": st.floats(allow_nan=False),
        "paid": st.none() | st.booleans(),
        "items": st.lists(st.fixed_dictionaries({"sku": st.none() | st.text(), "quantity": st.integers(0, 2**31 - 1)})),
        "further": st.recursive(st.none() | st.text(), st.lists),
    },
)


@effort(200)
@given(st.lists(_orders, max_size=6), st.booleans())
def test_what_was_written_as_json_is_read_again(orders: list[dict[str, Any]], ascii_only: bool) -> None:
    format = values_of(id="string", customer="long", amount="double", paid="boolean", items=array_of(ITEM))
    texts = [json.dumps(each, ensure_ascii=ascii_only).encode(errors="surrogatepass") for each in orders]
    expected = [{name: order.get(name) for name in ("id", "customer", "amount", "paid", "items")} for order in orders]
    assert expected == decoded(format, list(texts))
