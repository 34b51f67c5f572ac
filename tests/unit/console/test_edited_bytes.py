"""Bytes of records in forms: what a form shows, it returns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.errors import InvalidFormError
from ottla.console.services.edited_bytes import (
    bytes_of_form,
    form_of_bytes,
    header_lines,
    header_text,
    headers_of_lines,
    one_line,
    shown_bytes,
)


def through_a_browser(text: str) -> str:
    """What a textarea makes of text: the first line end is dropped, others become CR LF."""
    text = text.removeprefix("\n")
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")


@given(st.one_of(st.none(), st.binary(max_size=40), st.text(max_size=20).map(lambda text: text.encode())))
def test_an_unchanged_form_returns_the_same_bytes(data: bytes | None) -> None:
    form, text = form_of_bytes(data)
    assert data == bytes_of_form(form, through_a_browser(text), "value")


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="=\n\r", exclude_categories=["Cc"]), min_size=1).filter(
    lambda name: bool(name.strip())
)


@given(st.lists(st.tuples(NAMES, st.one_of(st.none(), st.binary(max_size=20))), max_size=5))
def test_unchanged_header_lines_return_the_same_headers(headers: list[tuple[str, bytes | None]]) -> None:
    assert tuple(headers) == headers_of_lines(through_a_browser(header_lines(headers)))


def test_forms() -> None:
    assert ("text", "a\tb\nc") == form_of_bytes(b"a\tb\nc")
    assert ("hex", "61 0d 0a") == form_of_bytes(b"a\r\n")
    assert ("hex", "ff 00") == form_of_bytes(b"\xff\x00")
    assert ("null", "") == form_of_bytes(None)
    assert "a=1\nb\nc=hex:ff\nd=hex:68 65 78 3a" == header_lines(
        [("a", b"1"), ("b", None), ("c", b"\xff"), ("d", b"hex:")]
    )


@pytest.mark.parametrize(("form", "text"), [("hex", "f"), ("hex", "zz"), ("utf-7", "a")])
def test_what_a_form_cannot_return(form: str, text: str) -> None:
    with pytest.raises(InvalidFormError, match="value: "):
        bytes_of_form(form, text, "value")


def test_a_header_line_without_a_name() -> None:
    with pytest.raises(InvalidFormError, match="headers, line 2"):
        headers_of_lines("a=1\n=2")


def test_bytes_to_look_at() -> None:
    assert ("JSON", '{\n  "a": 1\n}', False) == shown_bytes(b'{"a":1}')
    assert ("text", "plain", False) == shown_bytes(b"plain")
    assert ("null", "null", False) == shown_bytes(None)
    form, text, is_cut = shown_bytes(b"\xff\x00A" * 7)
    assert ("hexadecimal", False, True) == (form, is_cut, text.startswith("00000000  ff 00 41"))
    assert ("text", "xx", True) == shown_bytes(b"xxxx", 2)
    assert ("ff", "a", None) == (header_text(b"\xff"), header_text(b"a"), header_text(None))
    assert ("a b", None) == (one_line(b"a\n  b"), one_line(None))
    assert "xxx…" == one_line(b"x" * 100, 3)


def test_json_that_is_nested_deeply_is_shown_as_text() -> None:
    assert ("text", "[" * 60_000, False) == shown_bytes(b"[" * 60_000)
    deep = b"[" * 500 + b"1," * 30_000 + b"1" + b"]" * 500
    assert ("text", deep.decode(), False) == shown_bytes(deep)
