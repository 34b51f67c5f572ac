"""Lines into records and records into lines, and that one undoes the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.record_formats import Field, OutputFormat, record_format
from ottla.cli.record_lines import BadLineError, InputFormat, LineShape, NewRecord, line_parser, parse_headers
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
        (LineShape(format=InputFormat.HEX), b"abc", "it is not hex"),
        (LineShape(format=InputFormat.BASE64), b"*", "it is not base64"),
        (LineShape(format=InputFormat.JSON), b"{", "it is not JSON"),
        (LineShape(format=InputFormat.JSON), b"\xff", "it is not JSON"),
        (LineShape(format=InputFormat.JSON), b"[]", "it is no JSON object"),
        (LineShape(format=InputFormat.JSON), b'{"vlaue":1}', "it has a field 'vlaue'"),
        (LineShape(format=InputFormat.JSON), b'{"timestamp":"now"}', "its timestamp is 'now'"),
        (LineShape(format=InputFormat.JSON), b'{"partition":-1}', "its partition is -1"),
        (LineShape(format=InputFormat.JSON), b'{"headers":3}', "its headers are neither"),
        (LineShape(format=InputFormat.JSON), b'{"headers":[["a"]]}', "its headers are neither"),
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
    written = record_format(OutputFormat.JSON, (), b"\t", b"null")(PARTITION, Record(9, timestamp, key, value, headers))
    read = line_parser(LineShape(format=InputFormat.JSON))(written.removesuffix(b"\n"))
    assert NewRecord(key, value, headers, timestamp, 3) == read


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        (OutputFormat.TEXT, (), b"v\xff\n"),
        (OutputFormat.TEXT, tuple(Field), b"3;9;5;a=1,b=~;~;v\xff\n"),
        (OutputFormat.HEX, (Field.KEY,), b"~;76ff\n"),
        (OutputFormat.BASE64, (Field.OFFSET,), b"9;dv8=\n"),
        (OutputFormat.RAW, tuple(Field), b"v\xff"),
    ],
)
def test_a_record_becomes_a_line(kind: OutputFormat, fields: tuple[Field, ...], expected: bytes) -> None:
    record = Record(9, 5, None, b"v\xff", (("a", b"1"), ("b", None)))
    assert expected == record_format(kind, fields, b";", b"~")(PARTITION, record)
