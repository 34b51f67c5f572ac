"""Query strings, numbers and bodies, as Confluent's registry reads them."""

import pytest
from msgspec import Struct
from msgspec.json import Decoder

from ottla.registry.service.http_messages import Query, Request, error_answer, http_error, whole_number
from ottla.registry.state.errors import RegistryError


class Body(Struct):
    name: str | None = None
    count: int | None = None
    is_set: bool | None = None
    texts: dict[str, str] | None = None


BODIES = Decoder(Body, strict=False)


def test_a_query_is_taken_apart() -> None:
    query = Query.parse(b"deleted=TRUE&subjectPrefix=%3A.a%3A&key=a&key=b&offset=-3&empty=&plus=a+b")
    assert (True, ":.a:", ["a", "b"], -3) == (
        query.flag("deleted"),
        query.text("subjectPrefix"),
        query.all("key"),
        query.number("offset", 0),
    )
    assert ("", None, "a b") == (query.text("empty", "x"), query.optional("missing"), query.text("plus"))
    assert (7, False, []) == (query.number("limit", 7), query.flag("other"), query.all("none"))


@pytest.mark.parametrize("text", [b"deleted=yes", b"deleted=1", b"deleted", b"deleted="])
def test_only_true_is_true(text: bytes) -> None:
    assert not Query.parse(text).flag("deleted")


def test_a_query_with_too_many_parameters_is_refused() -> None:
    with pytest.raises(RegistryError) as refused:
        Query.parse(b"&".join([b"a=b"] * 2_000))
    assert 400 == refused.value.status


@pytest.mark.parametrize("text", ["", "x", "1.5", "1_0", "٣", "2147483648", "-2147483649", "99999999999", " 1", "0x1"])
def test_what_is_not_a_number_is_not_found(text: str) -> None:
    with pytest.raises(RegistryError) as refused:
        whole_number(text)
    assert (404, 404) == (refused.value.status, refused.value.error_code)


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("+7", 7), ("-1", -1), ("2147483647", 2**31 - 1)])
def test_numbers(text: str, number: int) -> None:
    assert number == whole_number(text)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"  ", 422),
        (b"null", 422),
        (b"{", 400),
        (b"[]", 400),
        (b"\xff", 400),
        (b'{"name": {}}', 400),
        (b'{"name": [1]}', 400),
        (b'{"count": "x"}', 400),
        (b'{"is_set": 0.5}', 400),
        (b'{"is_set": "yes"}', 400),
        (b'{"name": 1, "count": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    ],
)
def test_bodies_that_are_refused(body: bytes, status: int) -> None:
    with pytest.raises(RegistryError) as refused:
        Request(method="POST", body=body).decoded(BODIES)
    assert (status, status) == (refused.value.status, refused.value.error_code)


def test_a_number_may_be_written_as_text() -> None:
    assert Body(count=5) == Request(method="POST", body=b'{"count": "5", "more": []}').decoded(BODIES)


def test_numbers_and_booleans_are_taken_as_text_where_text_is_expected() -> None:
    body = b'{"name": 1.50, "count": 5, "is_set": true, "texts": {"a": 1, "b": false, "c": "x", "d": 1e3}}'
    expected = Body(name="1.50", count=5, is_set=True, texts={"a": "1", "b": "false", "c": "x", "d": "1e3"})
    assert expected == Request(method="POST", body=body).decoded(BODIES)


def test_an_error_has_its_body() -> None:
    answer = error_answer(http_error(405))
    assert (405, b'{"error_code":405,"message":"HTTP 405 Method Not Allowed"}') == (answer.status, answer.body)
