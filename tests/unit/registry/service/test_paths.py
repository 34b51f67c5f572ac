"""Routes, contexts in paths, and content types."""

import pytest

from ottla.registry.service.content_types import V1, answer_type, check_request_type
from ottla.registry.service.context_paths import without_context
from ottla.registry.service.http_messages import Query
from ottla.registry.service.route_table import RouteTable, path_segments
from ottla.registry.service.routes import ROUTES
from ottla.registry.state.errors import RegistryError

TABLE = RouteTable(ROUTES)


def find(method: str, path: bytes) -> tuple[str, dict[str, str]]:
    route, parameters = TABLE.find(method, path_segments(path))
    assert route.method == ("GET" if method == "HEAD" else method)
    return route.path, parameters


@pytest.mark.parametrize(
    ("method", "path", "route", "parameters"),
    [
        ("GET", b"/", "/", {}),
        ("GET", b"/subjects", "/subjects", {}),
        ("HEAD", b"/subjects/", "/subjects", {}),
        ("GET", b"/subjects/a%2Fb%20c/versions", "/subjects/{subject}/versions", {"subject": "a/b c"}),
        ("GET", b"/subjects/versions/versions", "/subjects/{subject}/versions", {"subject": "versions"}),
        (
            "DELETE",
            b"/subjects/s/versions/1",
            "/subjects/{subject}/versions/{version}",
            {"subject": "s", "version": "1"},
        ),
        ("GET", b"/schemas/ids/7", "/schemas/ids/{id}", {"id": "7"}),
        ("GET", b"/schemas/types", "/schemas/types", {}),
        ("PUT", b"/config/%3A.c%3A", "/config/{subject}", {"subject": ":.c:"}),
    ],
)
def test_paths_have_their_routes(method: str, path: bytes, route: str, parameters: dict[str, str]) -> None:
    assert (route, parameters) == find(method, path)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", b"/none", 404),
        ("GET", b"/subjects/s/none", 404),
        ("GET", b"/schemas/ids", 404),
        ("GET", b"/x" * 50, 404),
        ("PUT", b"/subjects", 405),
        ("POST", b"/schemas/ids/1", 405),
    ],
)
def test_other_paths_have_none(method: str, path: bytes, status: int) -> None:
    with pytest.raises(RegistryError) as refused:
        find(method, path)
    assert (status, status) == (refused.value.status, refused.value.error_code)


def test_every_route_is_found_by_its_own_path() -> None:
    for route in ROUTES:
        found, _ = TABLE.find(route.method, [each for each in route.path.split("/") if each])
        assert route is found


@pytest.mark.parametrize(
    ("path", "query", "moved", "queried"),
    [
        ("subjects/s/versions", b"", "subjects/s/versions", {}),
        ("contexts", b"", "contexts", {}),
        ("contexts/.a", b"", "contexts/:.a:", {}),
        ("contexts/.a/subjects/s/versions", b"", "subjects/:.a:s/versions", {}),
        ("contexts/:.a:/subjects/s", b"", "subjects/:.a:s", {}),
        ("contexts/.a/subjects/:.b:s", b"", "subjects/:.b:s", {}),
        ("contexts/./subjects/s", b"", "subjects/s", {}),
        ("contexts/.a/compatibility/subjects/s/versions", b"", "compatibility/subjects/:.a:s/versions", {}),
        ("contexts/.a/subjects/subjects/versions", b"", "subjects/:.a:subjects/versions", {}),
        ("contexts/.a/config", b"", "config/:.a:", {}),
        ("contexts/.a/mode/s", b"", "mode/:.a:s", {}),
        ("contexts/.a/subjects", b"", "subjects", {"subjectPrefix": [":.a:"]}),
        ("contexts/.a/subjects", b"subjectPrefix=x", "subjects", {"subjectPrefix": [":.a:x"]}),
        ("contexts/.a/schemas/ids/1", b"", "schemas/ids/1", {"subject": [":.a:"]}),
        ("contexts/.a/schemas/ids/1/schema", b"subject=s", "schemas/ids/1/schema", {"subject": [":.a:s"]}),
    ],
)
def test_a_context_in_the_path(path: str, query: bytes, moved: str, queried: dict[str, list[str]]) -> None:
    segments, asked = without_context("GET", path.split("/"), Query.parse(query))
    assert moved.split("/") == segments
    assert queried == {name: asked.all(name) for name in ("subject", "subjectPrefix") if asked.all(name)}


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", V1),
        ("*/*", V1),
        ("application/json", "application/json"),
        ("APPLICATION/JSON; charset=utf-8", "application/json"),
        (f"application/json;q=0.1, {V1};q=0.9", V1),
        (f"{V1};q=0.1, application/json", "application/json"),
        ("text/html, application/xhtml+xml, */*;q=0.8", V1),
    ],
)
def test_what_a_client_accepts_is_answered(accept: str, expected: str) -> None:
    assert expected == answer_type(accept)


@pytest.mark.parametrize("accept", ["text/html", "application/xml;q=1", "nonsense", "application/json;q=x"])
def test_what_cannot_be_answered(accept: str) -> None:
    with pytest.raises(RegistryError) as refused:
        answer_type(accept)
    assert 406 == refused.value.status


def test_types_of_bodies() -> None:
    for kind in ("", V1, "application/json; charset=utf-8", "application/octet-stream", "Application/JSON"):
        check_request_type(kind)
    for kind in ("text/plain", "application/xml", "nonsense"):
        with pytest.raises(RegistryError) as refused:
            check_request_type(kind)
        assert 415 == refused.value.status
