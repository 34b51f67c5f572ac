"""The filter language: what it accepts, what it means, and that masks over columns agree with the predicate."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.filters import FilterError, parse_filter, predicate
from ottla.console.filters.candidates import column_filter
from ottla.console.filters.parser import DEPTH_MAX
from ottla.console.filters.syntax import Node, Root
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
    st.sampled_from(WORDS).map(json.dumps), st.sampled_from(["42", "0", "100", "-4", "4.5", "null", "true"])
)
FIELDS = st.sampled_from(["value.a", "value.a.b", "value[0]", "key.a"])
COMPARISONS = st.one_of(
    st.tuples(
        FIELDS | st.sampled_from(["key", "value", "offset", "partition", "timestamp", 'headers["a"]', "size(value)"]),
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        CONSTANTS,
    ),
    st.tuples(
        FIELDS | st.sampled_from(["key", "value", 'headers["a"]', "lower(value)"]),
        st.sampled_from(["contains", "startsWith", "endsWith"]),
        st.sampled_from(WORDS).map(json.dumps),
    ),
    st.tuples(
        FIELDS | st.sampled_from(["key", "value", "offset", 'headers["a"]']),
        st.just("in"),
        st.lists(CONSTANTS, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    ),
    st.tuples(st.sampled_from(["key", "value"]), st.just("matches"), st.sampled_from(['"^a"', '"b$"', '"^.$"', '"ä"'])),
).map(" ".join)
EXPRESSIONS = st.recursive(
    COMPARISONS | st.sampled_from(WORDS[1:]).map(json.dumps),
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


@given(EXPRESSIONS, st.lists(ROWS, max_size=4), st.integers(0, 2))
def test_masks_agree_with_the_predicate(text: str, rows: list[Row], skipped: int) -> None:
    try:
        node = parsed(text)
    except FilterError:
        # Random operands: a time that is none, for example.
        return
    # A slice has an offset into the buffers, as a batch that a limit cut has.
    batch = arrow_batch([ORDER] * skipped + rows).slice(skipped)
    for row in rows:
        row.partition = 42
    mask = column_filter(node)(batch, 42)
    expected = [predicate(node)(row) for row in rows]
    found = [True] * len(rows) if mask.rows is None else mask.rows.to_pylist()
    assert all(candidate for candidate, wanted in zip(found, expected, strict=True) if wanted), (found, expected)
    if mask.is_exact:
        assert expected == found


def test_bytes_are_decided_without_decoding() -> None:
    batch = arrow_batch([Row(value=b"an apple"), Row(value=None), Row(value=b"pear")])
    mask = column_filter(parsed('value contains "apple" || size(value) == 4'))(batch, 0)
    assert mask.rows is not None
    assert (True, [True, False, True]) == (mask.is_exact, mask.rows.to_pylist())


def test_a_field_has_few_candidates() -> None:
    batch = arrow_batch([Row(value=b'{"id": 42}'), Row(value=b'{"id": 7}'), Row(value=b'{"x": 42}')])
    mask = column_filter(parsed("value.id == 42"))(batch, 0)
    assert mask.rows is not None
    assert (False, [True, False, False]) == (mask.is_exact, mask.rows.to_pylist())


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
def test_the_ways_to_write_json_are_candidates(text: str, value: bytes) -> None:
    row = Row(value=value)
    mask = column_filter(parsed(text))(arrow_batch([row]), 0)
    assert passes(text, row)
    assert mask.rows is None or mask.rows.to_pylist() == [True]
