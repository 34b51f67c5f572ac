"""Windows over many rows: the address says what is shown."""

from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request

from ottla.console.web.windows import Window, window

ROWS = [(f"name-{number:05d}", None if number % 7 == 0 else number) for number in range(10_000)]


def shown(query: str, size: int = 200) -> Window[tuple[str, int | None]]:
    scope = {"type": "http", "method": "GET", "path": "/things", "query_string": query.encode(), "headers": []}
    sorts = {"name": lambda row: row[0], "size": lambda row: row[1]}
    return window(Request(scope), ROWS, text=lambda row: row[0], sorts=sorts, default="name", size=size)


def test_the_first_window_and_the_ones_after_it() -> None:
    first = shown("")
    assert (200, 10_000, "name-00000") == (len(first.rows), first.total, first.rows[0][0])
    assert "10,000 rows" == first.words
    found, at = list(first.rows), first
    while at.next_address is not None:
        at = shown(urlsplit(at.next_address).query)
        found += at.rows
    assert ROWS == found


def test_filter_and_sort() -> None:
    found = shown("q=NAME-0012&sort=-size&x=1&x=2")
    assert "10 of 10,000 match" == found.words
    assert [129, 128, 127, 125, 124, 123, 122, 121, 120, None] == [row[1] for row in found.rows]
    query = parse_qs(urlsplit(found.sorted_by("name")).query)
    assert {"q": ["NAME-0012"], "sort": ["name"], "x": ["1", "2"]} == query
    assert "sort=size" in found.sorted_by("size"), "the same column the other way round"
    assert (("x", "1"), ("x", "2"), ("sort", "-size")) == found.kept


def test_a_name_in_the_address_stays_as_it_is() -> None:
    scope = {"type": "http", "path": "/groups/a/reset 5%25", "raw_path": b"/groups/a%2Freset%205%2525", "headers": []}
    found = window(Request({**scope, "query_string": b""}), ROWS, text=str, sorts={"name": str}, default="name")
    assert "/groups/a%2Freset%205%2525" == found.path
    assert found.sorted_by("name").startswith("/groups/a%2Freset%205%2525?")


def test_what_makes_no_sense_is_ignored() -> None:
    assert ROWS[:200] == shown("sort=nothing&start=-5").rows == shown("start=9x").rows
    assert [] == shown("start=99999").rows
