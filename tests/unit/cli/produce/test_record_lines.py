"""Lines into records and records into lines, and that one undoes the other."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.consume.record_formats import (
    BadTemplateError,
    Field,
    LineStyle,
    OutputFormat,
    TimeFormat,
    record_format,
    time_text,
)
from ottla.cli.produce.record_lines import BadLineError, InputFormat, LineShape, NewRecord, line_parser, parse_headers
from ottla.model.ids import TopicPartition
from ottla.records.record import Record

PARTITION = TopicPartition("t", 3)


@pytest.mark.parametrize(
    ("shape", "line", "expected"),
    [
        (LineShape(), b"a:b \xff", NewRecord(None, b"a:b \xff")),
        (LineShape(), b"", NewRecord(None, b"")),
        (LineShape(key=b"k"), b"v", NewRecord(b"k", b"v")),
        (LineShape(key_separator=b":"), b"k:v:w", NewRecord(b"k", b"v:w")),
        (LineShape(key_separator=b"::", null_mark=b"-"), b"-::-", NewRecord(None, None)),
        (
            LineShape(key_separator=b":", header_separator=b"|", headers=(("all", b"1"),)),
            b"a=1,b|k:v",
            NewRecord(b"k", b"v", (("all", b"1"), ("a", b"1"), ("b", None))),
        ),
        (LineShape(format=InputFormat.HEX, key_separator=b":"), b"00ff:0A", NewRecord(b"\x00\xff", b"\n")),
        (LineShape(format=InputFormat.BASE64), b"/wA=", NewRecord(None, b"\xff\x00")),
        (LineShape(format=InputFormat.JSON), b'{"value":"v"}', NewRecord(None, b"v")),
        (LineShape(format=InputFormat.JSON, key=b"k"), b'{"value":null}', NewRecord(b"k", None)),
        (LineShape(format=InputFormat.JSON), b'{"value":{"a":[1]},"key":2}', NewRecord(b"2", b'{"a":[1]}')),
        (
            LineShape(format=InputFormat.JSON),
            b'{"value":{"base64":"/w=="},"headers":{"a":"1"},"timestamp":5,"partition":0,"offset":9,"topic":"x"}',
            NewRecord(None, b"\xff", (("a", b"1"),), 5, 0),
        ),
    ],
)
def test_a_line_becomes_a_record(shape: LineShape, line: bytes, expected: NewRecord) -> None:
    assert expected == line_parser(shape)(line)


@pytest.mark.parametrize(
    ("shape", "line", "words"),
    [
        (LineShape(key_separator=b":"), b"none", "it has no ':' between key and value"),
        (LineShape(header_separator=b"|"), b"none", "after its headers"),
        (LineShape(header_separator=b"|"), b"=1|v", "header '=1' has no name"),
        (LineShape(format=InputFormat.HEX), b"abc", "it is not hex"),
        (LineShape(format=InputFormat.BASE64), b"*", "it is not base64"),
        (LineShape(format=InputFormat.JSON), b"{", "it is not JSON"),
        (LineShape(format=InputFormat.JSON), b"\xff", "it is not JSON"),
        (LineShape(format=InputFormat.JSON), b"[]", "it is not a JSON object"),
        (LineShape(format=InputFormat.JSON), b'{"vlaue":1}', "unknown field 'vlaue'"),
        (LineShape(format=InputFormat.JSON), b'{"timestamp":"now"}', "its timestamp 'now' is not a valid timestamp"),
        (LineShape(format=InputFormat.JSON), b'{"partition":-1}', "its partition -1 is not a valid partition"),
        (LineShape(format=InputFormat.JSON), b'{"headers":3}', "its headers are not an object"),
        (LineShape(format=InputFormat.JSON), b'{"headers":[["a"]]}', "its headers are not an object"),
        (LineShape(format=InputFormat.JSON), b'{"value":{"base64":"*"}}', "its value is not base64"),
    ],
)
def test_a_line_that_is_no_record_says_why(shape: LineShape, line: bytes, words: str) -> None:
    with pytest.raises(BadLineError, match=words):
        line_parser(shape)(line)


def test_only_a_shape_that_changes_nothing_is_bare() -> None:
    assert LineShape().is_bare
    others = [LineShape(key=b"k"), LineShape(null_mark=b""), LineShape(headers=parse_headers("a=1"))]
    assert [False] * 3 == [shape.is_bare for shape in others]


DATA = st.none() | st.binary(max_size=20)
HEADERS = st.lists(st.tuples(st.text(max_size=5), DATA), max_size=3).map(tuple)


@given(key=DATA, value=DATA, headers=HEADERS, timestamp=st.integers(-(2**63), 2**63 - 1))
def test_json_lines_come_back_as_they_were(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...], timestamp: int
) -> None:
    written = record_format(OutputFormat.JSON, LineStyle())(PARTITION, Record(9, timestamp, key, value, headers))
    read = line_parser(LineShape(format=InputFormat.JSON))(written.removesuffix(b"\n"))
    assert NewRecord(key, value, headers, timestamp, 3) == read


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        (OutputFormat.TEXT, (), b"v\xff\n"),
        (OutputFormat.TEXT, tuple(Field), b"t;3;9;5;a=1,b=~;~;v\xff\n"),
        (OutputFormat.TEXT, (Field.TIMESTAMP, Field.OFFSET), b"5;9;v\xff\n"),
        (OutputFormat.TEXT, (Field.VALUE, Field.OFFSET), b"v\xff;9\n"),
        (OutputFormat.HEX, (Field.KEY,), b"~;76ff\n"),
        (OutputFormat.BASE64, (Field.OFFSET,), b"9;dv8=\n"),
        (OutputFormat.RAW, tuple(Field), b"v\xff"),
    ],
)
def test_a_record_becomes_a_line(kind: OutputFormat, fields: tuple[Field, ...], expected: bytes) -> None:
    record = Record(9, 5, None, b"v\xff", (("a", b"1"), ("b", None)))
    assert expected == record_format(kind, LineStyle(fields=fields, separator=b";", null_mark=b"~"))(PARTITION, record)


RECORD = Record(9, 5, b"k", b"v\xff", (("a", b"1"), ("b", None)))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (r"%t %p %o %k %s\n", b"t 3 9 k v\xff\n"),
        (r"%T|%h|%K|%S|%%", b"5|a=1,b=null|1|2|%"),
        (r"\t\r\0\\\x41%R", b"\t\r\0\\A\0\0\0\2"),
        ("%s ä", b"v\xff \xc3\xa4"),
    ],
)
def test_a_template_has_kcats_letters_and_escapes(template: str, expected: bytes) -> None:
    assert expected == record_format(template, LineStyle())(PARTITION, RECORD)


def test_the_length_of_null_is_minus_one() -> None:
    record = Record(0, 0, None, None)
    assert b"-1 -1 null" == record_format("%K %S %s", LineStyle())(PARTITION, record)


@pytest.mark.parametrize("template", ["plain", "%x", "%", r"\q", r"\x4", "ends\\"])
def test_a_template_that_is_not_valid_is_refused(template: str) -> None:
    with pytest.raises(BadTemplateError):
        record_format(template, LineStyle())


@pytest.mark.parametrize("text", [OutputFormat.TEXT, "%k %s %h\n"])
def test_what_a_terminal_would_obey_is_escaped(text: str) -> None:
    record = Record(0, 0, b"\x1b[31m", b"a\nb\xff\xc2\x9b", (("h\x07", b"\x00"),))
    style = LineStyle(fields=(Field.KEY, Field.VALUE, Field.HEADERS), separator=b" ", is_escaped=True)
    assert rb"\x1b[31m a\nb\xff\x9b h\x07=\x00" + b"\n" == record_format(text, style)(PARTITION, record)


def test_json_for_a_terminal_is_the_same_document() -> None:
    record = Record(0, 0, "\x1b\x7f\x9b\u202e".encode(), b"v")
    line = record_format(OutputFormat.JSON, LineStyle(is_escaped=True))(PARTITION, record)
    assert line.isascii()
    assert record_format(OutputFormat.JSON, LineStyle())(PARTITION, record) != line
    assert NewRecord(record.key, b"v", (), 0, 3) == line_parser(LineShape(format=InputFormat.JSON))(line)


@pytest.mark.parametrize(
    ("timestamp", "kind", "expected"),
    [
        (1_700_000_000_123, TimeFormat.EPOCH, "1700000000123"),
        (1_700_000_000_123, TimeFormat.ISO, "2023-11-14T22:13:20.123Z"),
        (1_700_000_000_123, TimeFormat.LOCAL, "2023-11-15 00:13:20.123"),
        (-1, TimeFormat.ISO, "-1"),
        (2**63 - 1, TimeFormat.LOCAL, str(2**63 - 1)),
    ],
)
def test_times(timestamp: int, kind: TimeFormat, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    try:
        assert expected == time_text(timestamp, kind)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_header_has_a_value_an_empty_value_or_null() -> None:
    assert (("a", b"1"), ("b", b""), ("c", None), ("d", b"x=y")) == parse_headers("a=1,b=,c,d=x=y")
