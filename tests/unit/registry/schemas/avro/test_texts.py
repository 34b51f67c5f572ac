"""The texts of Avro schemas against those recorded from Confluent's registry 8; numbers and strings as in Java."""

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.registry.schemas.avro.avro_schema import parse, parse_new
from ottla.registry.schemas.avro.json_text import as_single, read_double, read_json, write_double, write_string
from ottla.registry.schemas.parsed_schema import InvalidSchemaError

RECORDED = json.loads((Path(__file__).parent / "recorded_texts.json").read_text())
ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"}]}'


@pytest.mark.parametrize("case", RECORDED, ids=[each["name"] for each in RECORDED])
def test_texts_are_those_of_confluents_registry(case: dict[str, Any]) -> None:
    for parser in (parse_new, parse):
        schema = parser(case["text"], case["references"])
        assert case["canonical"] == schema.canonical_text
        assert case["normalized"] == schema.normalized_text()
        assert case["resolved"] == schema.formatted("resolved")


@pytest.mark.parametrize("case", RECORDED, ids=[each["name"] for each in RECORDED])
def test_canonical_and_normalized_texts_stay_what_they_are(case: dict[str, Any]) -> None:
    if case["name"] != "aliases are sorted":  # Java drops the dot that marks an alias of the null namespace
        assert case["canonical"] == parse_new(case["canonical"], case["references"]).canonical_text
    assert case["normalized"] == parse_new(case["normalized"], case["references"]).canonical_text


def test_the_layout_of_the_text_does_not_matter() -> None:
    spread = "/* orders */ " + json.dumps(json.loads(ORDER), indent=4) + "\n"
    assert ORDER == parse_new(spread, {}).canonical_text


def test_formats() -> None:
    schema = parse_new(ORDER, {})
    assert [ORDER, ORDER, ORDER] == [schema.formatted(each) for each in ("", "default", "RESOLVED")]
    assert ORDER == schema.formatted("ignore_extensions")  # clients may know formats that the registry does not


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"), (-0.0, "-0.0"), (0.001, "0.001"), (0.00099, "9.9E-4"), (9999999.0, "9999999.0"), (1e7, "1.0E7"),
        (1.5e300, "1.5E300"), (5e-324, "4.9E-324"), (123456.789, "123456.789"), (float("inf"), '"Infinity"'),
    ],
)  # fmt: skip
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert text == write_double(value)


def test_single_precision_keeps_the_digits_it_needs() -> None:
    assert [0.1, 16777216.0, 3.4e38, 1.4e-45, float("inf")] == [
        as_single(each) for each in (0.1, 16777217.0, 3.4e38, 1e-45, 1e39)
    ]


@pytest.mark.parametrize(
    ("text", "value"), [("1.5f", 1.5), (" -2e3D ", -2000.0), ("+Infinity", float("inf")), (".5", 0.5)]
)
def test_numbers_in_strings_are_read_as_java_reads_them(text: str, value: float) -> None:
    assert value == read_double(text)


@pytest.mark.parametrize("text", ["", "inf", "1_0", "1.5g", "0x", "nan", "١"])
def test_other_strings_are_not_numbers(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        read_double(text)


def test_only_what_must_be_escaped_is_escaped() -> None:
    assert '"\\"\\\\/\\b\\t\\n\\f\\r\\u0001\\u001F\x7fé\u2028😀"' == write_string('"\\/\b\t\n\f\r\x01\x1f\x7fé\u2028😀')


@pytest.mark.parametrize(
    "text", ["", " ", "{", '{"a":NaN}', "[1,]", "'a'", '"a" "b"', '"int" // c', '"\\ud800"', '"\ud800"', "1" * 1001]
)
def test_texts_that_are_not_json(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        parse_new(text, {})


def test_the_last_of_equal_keys_counts_at_the_place_of_the_first() -> None:
    assert ["a", "b"] == list(read_json('{"a":1,"b":2,"a":3}'))
    assert 3 == read_json('{"a":1,"b":2,"a":3}')["a"]


def test_comments_inside_of_strings_are_text() -> None:
    assert {"a": "/* // */"} == read_json('{"a": /* "x" */ "/* // */" // end\n}')
