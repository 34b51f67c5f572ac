"""The filter language: what it accepts, what it means, and that masks over columns agree with the predicate."""

import contextlib
import json
from array import array
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.filters import FilterError, parse_filter, predicate
from ottla.console.filters.candidates import column_filter
from ottla.console.filters.json_fields import json_fields, rows_with
from ottla.console.filters.parser import DEPTH_MAX
from ottla.console.filters.syntax import Node, Root
from ottla.console.services.records.rows import ReadRecord
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.records.arrow import SCHEMA


class Row:
    """A record of JSON or of any other bytes."""

    def __init__(
        self,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        offset: int = 0,
        partition: int = 0,
        timestamp: int = 0,
    ) -> None:
        self.key, self.value, self.headers = key, value, headers
        self.offset, self.partition, self.timestamp = offset, partition, timestamp

    def data(self, part: Root) -> bytes | None:
        return self.key if part is Root.KEY else self.value

    def text(self, part: Root) -> str | None:
        data = self.data(part)
        return None if data is None else data.decode("utf-8", "replace")

    def tree(self, part: Root) -> Any:
        try:
            return json.loads(self.data(part) or b"null")
        except ValueError:
            return None

    def header(self, name: str) -> bytes | None:
        return next((value for key, value in reversed(self.headers) if key == name), None)


def parsed(text: str) -> Node:
    found = parse_filter(text)
    assert found is not None
    return found


def passes(text: str, row: Row) -> bool:
    return predicate(parsed(text))(row)


ORDER = Row(
    key=b"abc",
    value=json.dumps(
        {
            "user": {"id": 42, "name": "Ann\nLee", "tags": ["a", "b"]},
            "active": True,
            "note": None,
            "amount": 9.5,
            "or": 1,
            "a b": {"c.d": 3},
        }
    ).encode(),
    headers=(("x", b"1"), ("x", b"2"), ("n", None)),
    offset=7,
    partition=3,
    timestamp=1_714_564_800_000,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('value.user.id == 42 && key startsWith "a"', True),
        ("value.user.id == 42.0", True),
        ('value.user.id == "42"', False),
        ("value.user.id != 42", False),
        ("value.missing != 42", True),
        ("value.missing == null", True),
        ("value.note == null", True),
        ("value.user.tags[1] == 'b'", True),
        ("value.user.tags[-1] == 'b'", True),
        ("value.user.tags[-2] == 'a'", True),
        ("value.user.tags[-3] == null", True),
        ("value.user.tags[2] == 'b'", False),
        ('value.user.tags contains "a"', True),
        ('value["user"]["name"] contains "\\n"', True),
        ('value["a b"]["c.d"] >= 3', True),
        ("value.active", True),
        ("value.active == true", True),
        ("value.active == 1", False),
        ("not value.active or value.amount > 9", True),
        ("!(value.active && value.amount < 9)", True),
        ("value.or == 1", True),
        ('value.user.name < "B"', True),
        ("value.user.name < 3", False),
        ('headers["x"] == "2"', True),
        ('headers["x"] == "1"', False),
        ("headers.n == null", True),
        ('headers["missing"] != null', False),
        ("size(key) == 3", True),
        ("size(value.user.tags) == 2", True),
        ("size(value.amount) == 1", False),
        ('lower(value.user.name) startsWith "ann"', True),
        ('value matches "Ann.*Lee"', True),
        ('key matches "^b"', False),
        ("offset >= 7 && partition in [1, 3]", True),
        ('timestamp >= "2024-05-01T12:00:00Z"', True),
        ('timestamp > "2024-05-01T14:00:00+02:00"', False),
        ("timestamp == 1714564800000", True),
        ('"Ann"', True),
        ('"abc"', True),
        ("'nowhere'", False),
        ("value.user.id in [41, '42']", False),
        ('"nowhere" || value.user.id in [41, 42]', True),
        ('"nowhere" && "Ann" || key == "abc"', True),
        ("value == null", False),
    ],
)
def test_a_filter_means(text: str, expected: bool) -> None:
    assert expected == passes(text, ORDER)


def test_bytes_that_are_no_json_have_no_fields() -> None:
    odd = Row(key=None, value=b"\xff\x00<script>")
    assert not passes("value.a == 1", odd)
    assert passes('value contains "<script>" && key == null', odd)
    assert passes("size(value) == 10 && value.a.b[0] == null", odd)


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("value.id = 42", 10, "write == to compare"),
        ("value.id == 42 & key == 'a'", 16, "write &&"),
        ("vlaue.id == 42", 1, "did you mean value?"),
        ("value.id startswith 'a'", 10, "did you mean startsWith?"),
        ('value.name == "abc', 15, "a quote is missing"),
        (r'value.name == "a\qb"', 17, "unknown escape"),
        (r'value matches "\ud800"', 16, "half a character"),
        ("value.id ==", 12, "the filter ends here"),
        ("(value.id == 1", 15, ") is missing"),
        ("value.id == 1 value.id == 2", 15, "unexpected 'value'"),
        ("42 == 42", 1, "two constants"),
        ("value", 6, "a comparison is missing"),
        ("42", 1, "a condition is missing"),
        ("value matches '('", 15, "not a valid RE2 pattern"),
        ("value contains 42", 16, "needs a text in quotes"),
        ("timestamp > 'yesterday'", 13, "not a time"),
        ("offset.x == 1", 8, "has no fields"),
        ("headers == 'a'", 1, "name a header"),
        ("value.a in 3", 12, "[ is missing"),
        ("value.a in [1 2]", 15, "] or , is missing"),
        ("1 < value.a < 3", 13, "two comparisons in a row"),
        ("size(3) > 1", 6, "size needs"),
        ("value.a == __import__('os')", 12, "unknown name __import__"),
        ("hello", 1, "a text needs quotes"),
        ("value;drop", 6, "unexpected character ';'"),
    ],
)
def test_an_error_points_at_the_column(text: str, column: int, words: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text)
    assert column == caught.value.column
    assert words in str(caught.value)
    assert caught.value.pointer.splitlines()[1] == " " * (column - 1) + "^"


def test_depth_and_length_are_bounded() -> None:
    assert parse_filter("(" * DEPTH_MAX + "value.a == 1" + ")" * DEPTH_MAX)
    for text in (
        "(" * 1000 + "value.a == 1" + ")" * 1000,
        "!" * 1000 + "value.a",
        "value" + ".a" * 100 + " == 1",
        "value.a == '" + "x" * 5000 + "'",
        "value.a in [" + "1," * 1500 + "1]",
        "value.a == " + "9" * 100,
    ):
        with pytest.raises(FilterError):
            parse_filter(text)


def test_an_empty_filter_is_none() -> None:
    assert parse_filter("  ") is None


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_an_error_with_a_column(text: str) -> None:
    try:
        found = parse_filter(text)
    except FilterError as caught:
        column = caught.column
    else:
        column = 1
        if found is not None:
            predicate(found)(ORDER)
    assert 1 <= column <= len(text) + 1


# Masks over columns

WORDS = ["", "a", "ab", "b", "e", "4", "42", "\\", "\n", "ä", "\ufffd", '"', "1e2", "100"]
CONSTANTS = st.one_of(
    st.sampled_from(WORDS).map(json.dumps),
    st.sampled_from(["42", "0", "100", "-4", "4.5", "1e999", "9007199254740993", "null", "true"]),
)
FIELDS = st.sampled_from(
    ["value.a", "value.a.b", "value[0]", "key.a", "value[-1]", "value.a[1]", 'value["ä"]', "key[0].a"]
)
COMPARISONS = st.one_of(
    st.tuples(
        FIELDS
        | st.sampled_from(
            ["key", "value", "offset", "partition", "timestamp", 'headers["a"]', "size(value)", "size(value.a)"]
        ),
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        CONSTANTS,
    ),
    st.tuples(
        FIELDS
        | st.sampled_from(["key", "value", 'headers["a"]', "lower(value)", "lower(value.a)", 'lower(headers["a"])']),
        st.sampled_from(["contains", "startsWith", "endsWith"]),
        st.sampled_from(WORDS).map(json.dumps),
    ),
    st.tuples(
        FIELDS | st.sampled_from(["key", "value", "offset", 'headers["a"]']),
        st.just("in"),
        st.lists(CONSTANTS, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    ),
    st.tuples(
        st.sampled_from(["key", "value", "value.a", 'headers["a"]']),
        st.just("matches"),
        st.sampled_from(['"^a"', '"b$"', '"^.$"', '"ä"']),
    ),
).map(" ".join)
EXPRESSIONS = st.recursive(
    COMPARISONS
    | st.sampled_from(WORDS[1:]).map(json.dumps)
    | st.sampled_from(["value.a", "4 < value.a", "'a' != value.a"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda terms: f"({' && '.join(terms)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda terms: f"({' || '.join(terms)})"),
        inner.map(lambda term: f"!({term})"),
    ),
    max_leaves=5,
)
SCALARS = st.sampled_from([*WORDS, 42, 100, 4.5, 0, -4, True, None])
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
)
DATA = st.one_of(
    st.none(),
    TREES.flatmap(lambda tree: st.booleans().map(lambda ascii_: json.dumps(tree, ensure_ascii=ascii_).encode())),
    st.sampled_from(WORDS).map(str.encode),
    st.sampled_from([b"\xff", b"a\xffb", b'{"a": 1e2}', b'{"a": 42.0}', b'{"\\u0061": "\\u0061b"}', b'{"a":4.2E1}']),
)
NUMBERS = [
    *("0", "-0", "0.0", "-0.0", "1", "1.0", "10e-1", "1e2", "1E+2", "100", "42", "-42", "0.1", "1e-7", "4.35", "2.5"),
    *("9007199254740992", "9007199254740993", "9007199254740993.0", "999999999999999999", "1000000000000000000"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616"),
    *("0.1234567890123456789", "123456789012345678901234567890.5", "1e22", "1e23", "1e200", "1e308", "5e-324"),
    *("1e400", "1" * 60, "1" * 5000, "1e" + "0" * 80 + "2"),
]
NO_NUMBERS = ["01", "1.", ".5", "+1", "--1", "1e", "1e+", "-", "NaN", "Infinity"]
TEXTS = [
    *("a", "ab", "ä", "\U0001f600", "\\n", r"\u0061", r"\u00e4", r"\ud83d\ude00", r"\ud83d", r"\ude00", r"\ud83dx"),
    *(r"\q", r"\u00", "\x01", "x" * 20, "x" * 7 + '\\"', "\x7f", r"\/", "", "0", "-1", r"\u0000", "abcdefgh\tz"),
]
LEAVES = st.sampled_from(
    [*NUMBERS, *NO_NUMBERS, *(f'"{each}"' for each in TEXTS), "true", "false", "null", "nul", "truex", ""]
)
SPACES = st.sampled_from(["", " ", "\n\t\r ", "\x0b"])
DOCUMENTS = (
    st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.tuples(SPACES, st.lists(inner, max_size=3), SPACES).map(lambda it: f"[{it[0]}{','.join(it[1])}{it[2]}]"),
            st.tuples(SPACES, st.lists(st.tuples(st.sampled_from(["a", "b", *TEXTS]), inner), max_size=3)).map(
                lambda it: "{" + ",".join(f'{it[0]}"{name}":{it[0]}{value}' for name, value in it[1]) + "}"
            ),
        ),
        max_leaves=6,
    )
    .flatmap(
        lambda text: st.one_of(
            st.just(text.encode()),
            # Damaged: a byte that is missing, or another one in its place.
            st.tuples(
                st.integers(0, len(text.encode())), st.sampled_from([b"", b"\xff", b'"', b"}", b",", b"\xc3"])
            ).map(lambda it: text.encode()[: it[0]] + it[1] + text.encode()[it[0] + 1 :]),
        )
    )
    .map(lambda data: data if len(data) % 5 else data + b" ")
)
"""JSON of many forms, and what is almost JSON."""
ROWS = st.builds(
    Row,
    key=DATA,
    value=DATA,
    headers=st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([None, b"a", b"42", b"\xff"])), max_size=2
    ).map(tuple),
    offset=st.sampled_from([0, 4, 42, 100]),
    timestamp=st.sampled_from([0, 42, 100]),
)


def arrow_batch(rows: list[Row]) -> pa.RecordBatch:
    columns = {
        "offset": [row.offset for row in rows],
        "timestamp": [row.timestamp for row in rows],
        "key": [row.key for row in rows],
        "value": [row.value for row in rows],
        "headers": [[{"key": name, "value": value} for name, value in row.headers] for row in rows],
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def passing(text: str, rows: list[Row], skipped: int = 0) -> tuple[list[bool], list[bool]]:
    """What the masks say, and the predicate of real records, which decode with the console's JSON decoder."""
    node = parsed(text)
    # A slice has an offset into the buffers, as a batch that a limit cut has.
    mask = column_filter(node)(arrow_batch([ORDER] * skipped + rows).slice(skipped), 42)
    expected = [predicate(node)(real_record(row)) for row in rows]
    possible, certain = mask.possible.to_pylist(), mask.certain.to_pylist()
    assert all(may or not wanted for may, wanted in zip(possible, expected, strict=True)), (possible, expected)
    assert all(wanted or not sure for sure, wanted in zip(certain, expected, strict=True)), (certain, expected)
    return certain, expected


def real_record(row: Row) -> ReadRecord:
    return ReadRecord(
        TopicPartition("t", 42), row.offset, row.timestamp, row.key, row.value, lambda: row.headers, reader=None
    )


@given(EXPRESSIONS, st.lists(ROWS, max_size=4), st.integers(0, 2), st.sampled_from([0, 20]))
def test_masks_agree_with_the_predicate(text: str, rows: list[Row], skipped: int, others: int) -> None:
    # Random operands: a time that is none, for example.
    with contextlib.suppress(FilterError):
        # Of many rows of which few may pass, only these are read.
        passing(text, [*rows, *[Row(key=b"{}", value=b'{"b": "c"}')] * others], skipped)


@given(
    st.lists(DOCUMENTS, min_size=1, max_size=3),
    FIELDS,
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    st.sampled_from(NUMBERS).filter(lambda word: len(word) < 40) | st.sampled_from(["null", "true", '"a"', '"ä"']),
)
def test_documents_of_any_form_agree_with_the_predicate(
    documents: list[bytes], field: str, comparison: str, constant: str
) -> None:
    passing(f"{field} {comparison} {constant}", [Row(key=each, value=each) for each in documents])


SHAPES = ['{"a": %s, "b": {"a": %s}, "\u00e4": %s}', '{"a":[%s,%s],"b":%s}', '{"b": [{"a": %s}, {"a": %s}], "a": %s}']


@given(
    st.sampled_from(SHAPES).flatmap(
        lambda shape: st.lists(
            st.tuples(LEAVES, LEAVES, LEAVES).flatmap(
                lambda leaves: st.one_of(
                    st.just((shape % leaves).encode()),
                    # Damaged: bytes that are missing, or others in their place.
                    st.tuples(
                        st.integers(0, len(shape)),
                        st.integers(0, 3),
                        st.sampled_from([b"", b"a", b",", b'"', b"\xc3", b'"a":', b'"a":1,', b"{", b"}", b" ", b"\\"]),
                    ).map(
                        lambda it: (
                            (shape % leaves).encode()[: it[0]] + it[2] + (shape % leaves).encode()[it[0] + it[1] :]
                        )
                    ),
                )
            ),
            min_size=2,
            max_size=5,
        )
    ),
    FIELDS | st.sampled_from(["value.b.a", "value.b[0].a", "value.b[1].a", "value.b"]),
    st.sampled_from(["== 1", "!= 1", "> 41", "<= 100", "== null", "== 'a'", "startsWith 'a'", "contains 'x'"]),
)
def test_documents_with_the_same_names_agree_with_the_predicate(
    documents: list[bytes], field: str, comparison: str
) -> None:
    passing(f"{field} {comparison}", [Row(key=each, value=each) for each in documents])


@pytest.mark.parametrize("text", ["value.a.n > 41", "value.a.n == 42", 'value.t == "x42"', 'value.t endsWith "42"'])
@pytest.mark.parametrize("every", [1000, 301, 7, 2, 1])
def test_however_many_rows_may_pass_all_are_found(text: str, every: int) -> None:
    def document(number: int) -> bytes:
        value = 42 if number % every == 0 else 41
        plain = f'{{"n": "none", "a": {{"n": {value}}}, "t": "x{value}"}}'
        return (plain if number % 10 else plain.replace("x4", "x\\u0034") if number % 20 else plain[:-1]).encode()

    certain, expected = passing(text, [Row(value=document(number)) for number in range(1, 701)])
    assert expected == certain
    assert (every < 1000) == any(expected)


@given(
    st.lists(st.lists(st.sampled_from([b"a", b"b", b"\\", b"ab" * 20]), max_size=4).map(b"".join), max_size=5),
    st.sampled_from([1, 40]),
    st.sampled_from([b"a", b"ab", b"bab", b"ab" * 20, b"ab" * 40]),
    st.booleans(),
    st.integers(0, 2),
)
def test_bytes_are_found_in_rows(rows: list[bytes], times: int, wanted: bytes, may_escape: bool, first: int) -> None:
    column = pa.array([b"ab"] * first + rows * times, pa.binary())
    _, offsets, data = column.buffers()
    marks = rows_with(offsets or bytes(4), data or b"", first, len(rows) * times, wanted, may_escape=may_escape)
    assert bytes(wanted in each or (may_escape and b"\\" in each) for each in rows * times) == marks


def test_what_is_outside_of_the_data_is_refused() -> None:
    for offsets in ([0, 5], [-1, 2], [3, 2], [0, 4, 3, 4]):
        with pytest.raises(MisuseError):
            rows_with(array("i", offsets), b"abcd", 0, len(offsets) - 1, b"a")
    with pytest.raises(MisuseError):
        rows_with(array("i", [0, 4]), b"abcd", 0, 2, b"a")
    with pytest.raises(MisuseError):
        rows_with(array("i", [0, 4]), b"abcd", 0, 1, b"")
    with pytest.raises(MisuseError):
        json_fields(array("i", [0, 4]), b"abcd", 0, 1, [("a",)], b"\1\1")


@pytest.mark.parametrize(
    "text",
    [
        'value contains "apple" || size(value) == 4',
        "value.id == 42",
        "value.id > 41.5 && !(value.id in [1, 2, 'x'])",
        "41 < value.id",
        'value.name startsWith "Ann"',
        'value.name matches "^A.*n$"',
        'lower(value.name) == "ann"',
        'value.name >= "Ann"',
        "size(value.name) == 3",
        "value.user.active",
        "value.note == null and value.name != null",
        'headers["trace"] contains "b"',
        'headers["trace"] == null',
        'lower(headers["trace"]) in ["ab", "x"]',
        'key >= "k2"',
        "timestamp >= 2 && offset < 0.5",
    ],
)
def test_a_filter_is_decided_without_decoding(text: str) -> None:
    rows = [
        Row(value=b"an apple", key=b"k1", timestamp=1),
        Row(value=None, headers=(("trace", b"ab"), ("trace", None))),
        Row(value=b"pear", headers=(("trace", b"x"), ("trace", b"AB"))),
        Row(value=b'{"id": 42, "name": "Ann", "user": {"active": true}}', key=b"k3", timestamp=3),
        Row(value=b'{"id": 4.2e1, "name": "\\u0041nn"}', headers=(("trace", b"ab"),)),
        Row(value=b'{"id": 7, "id": "x", "note": null}'),
        Row(value=b'{"x": 42, "name": "Anna"}'),
        Row(value=b'{"id": 42'),
    ]
    certain, expected = passing(text, rows)
    assert expected == certain
    assert True in expected
    assert False in expected


def test_more_fields_than_are_read_at_once() -> None:
    text = " || ".join(f"value.f{number} == 1" for number in range(100))
    _, expected = passing(text, [Row(value=b'{"f99": 1}'), Row(value=b'{"f1": 1}'), Row(value=b'{"f100": 1}')])
    assert [True, True, False] == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('value.a == "ab"', rb'{"\u0061": "\u0061b"}'),
        ('value.a == "ab"', rb'{"a": "\u0061b"}'),
        ('value.a contains "\\n"', rb'{"a": "x\ny"}'),
        ('value.a endsWith "ä"', rb'{"a": "\u00e4"}'),
        ("value.a == 42", b'{"a": 4.2e1}'),
        ("value.a == 100", b'{"a": 1E2}'),
        ("value.a == 42", b'{"a": 42.0}'),
        ("value.a == -42", b'{"a": -42}'),
        ("value.a == 42", rb'{"\u0061": 42}'),
        ('value.a in ["x", "ab"]', rb'{"a": "\u0061b"}'),
        ("value[1] == 42", b"[0, 4.2E+1]"),
    ],
)
def test_the_ways_to_write_json_are_found(text: str, value: bytes) -> None:
    row = Row(value=value)
    assert ([True], [True]) == passing(text, [row])
