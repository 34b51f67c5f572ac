from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.registry.schemas.json_schema.json_text import DIGITS_MAX, NESTING_MAX, read_json, write_json
from ottla.registry.schemas.parsed_schema import InvalidSchemaError

SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.decimals(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(VALUES)
def test_what_is_written_is_read_again(value: object) -> None:
    text = write_json(value)
    assert text == write_json(read_json(text))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1.0", "1.0"),
        ("-0.0", "0.0"),
        ("-0", "0"),
        ("1e5", "1E+5"),
        ("1.50E3", "1.50E+3"),
        ("0.0000001", "1E-7"),
        ("0.000001", "0.000001"),
        ("0e-10", "0E-10"),
        ("12345678901234567890123", "12345678901234567890123"),
        ('"\\u001f\\u007f\\/"', '"\\u001F\x7f/"'),
    ],
)
def test_numbers_and_strings_are_written_as_java_writes_them(text: str, written: str) -> None:
    assert written == write_json(read_json(text))


def test_objects_keep_their_order_and_the_last_of_equal_keys() -> None:
    assert '{"b":3,"a":{"d":[],"c":{}}}' == write_json(read_json('{"b":1,"a":{"d":[],"c":{}},"b":3}'))


def test_sorted_keys_are_in_the_order_of_utf_16() -> None:
    value = {"\U0001f600": 1, "\uff5e": 2, "b": [{"d": 3, "c": 4}], "B": 5}
    assert '{"B":5,"b":[{"c":4,"d":3}],"\U0001f600":1,"\uff5e":2}' == write_json(value, sort_keys=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a":1} {"b":2}',
        "{'a':1}",
        '{"a":01}',
        "[" * 100_000,
        "[" * (NESTING_MAX + 1) + "]" * (NESTING_MAX + 1),
        "9" * (DIGITS_MAX + 1),
        "0." + "9" * DIGITS_MAX,
        "1e99999999999999999999",
        "1e3000000000",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        read_json(text)


def test_the_deepest_and_longest_values_are_read() -> None:
    assert "[" * NESTING_MAX + "]" * NESTING_MAX == write_json(read_json("[" * NESTING_MAX + "]" * NESTING_MAX))
    assert Decimal("1e2000000000") == read_json("1e2000000000")
