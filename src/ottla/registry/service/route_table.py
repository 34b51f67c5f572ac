"""Finds the route of a path. Pure.

Paths are matched segment by segment before they are decoded: a subject may contain an encoded slash.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from urllib.parse import unquote

from ottla.registry.service.authorization import Operation
from ottla.registry.service.http_messages import http_error


class Kind(StrEnum):
    """How a route is served."""

    LOOK_UP = "look-up"
    """From the image, in the event loop (in a thread if a format or tags are asked for); the answer is kept until the
    image changes."""
    PARSE = "parse"
    """From the image, in a thread, because schemas are parsed or many are walked over."""
    WRITE = "write"
    """A decision of the leader: its records are written before it is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of a path.

    `handle` of a write takes an image and the request, and returns a `Decision`. The others take the `Registry` and the
    request, and return an `Answer`, or what its body is encoded from. All raise `RegistryError`.
    """

    method: str
    path: str
    kind: Kind
    operation: Operation
    handle: Callable[[Any, Any], Any]
    has_body: bool = False
    takes_schema: bool = False
    """Whether the body is a schema, which may refer to others."""
    find_known: Callable[[Any, Any], Any] | None = None
    """For a write that may change nothing: the answer that any instance can give then, else None."""
    find_check: Callable[[Any, Any], Any] | None = None
    """Takes an image and the request: the `SchemaCheck` that is done before `handle`, None if that is cheap."""

    @property
    def is_repeatable(self) -> bool:
        """Whether a write that is sent twice has the same effect and answer: registrations, configs and modes."""
        return self.find_known is not None or self.method == "PUT"


@dataclass(slots=True)
class _Place:
    literals: dict[str, "_Place"] = field(default_factory=dict)
    any: "_Place | None" = None
    routes: dict[str, Route] = field(default_factory=dict)


class RouteTable:
    """All routes. A literal segment takes precedence over a parameter."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Place()
        self.routes = tuple(routes)
        for route in self.routes:
            place = self._root
            for segment in _segments(route.path):
                if segment.startswith("{"):
                    place.any = place.any or _Place()
                    place = place.any
                else:
                    place = place.literals.setdefault(segment, _Place())
            place.routes[route.method] = route

    def find(self, method: str, segments: list[str]) -> tuple[Route, dict[str, str]]:
        """The route and the parameters in the path. Raises `RegistryError`: 404 or 405."""
        place = self._at(segments)
        asked = "GET" if method == "HEAD" else method
        if asked not in place.routes:
            raise http_error(405)
        route = place.routes[asked]
        parameters = {
            name[1:-1]: segment
            for name, segment in zip(_segments(route.path), segments, strict=True)
            if name.startswith("{")
        }
        return route, parameters

    def methods(self, segments: list[str]) -> list[str]:
        """The methods of a path. Raises `RegistryError` (404)."""
        found = self._at(segments).routes
        return sorted({*found, "OPTIONS", *(["HEAD"] if "GET" in found else [])})

    def _at(self, segments: list[str]) -> _Place:
        place = self._root
        for segment in segments:
            following = place.literals.get(segment) or place.any
            if following is None:
                raise http_error(404)
            place = following
        if not place.routes:
            raise http_error(404)
        return place


_SEGMENTS_MAX: Final = 16


def path_segments(raw_path: bytes) -> list[str]:
    """The decoded segments of a path. Raises `RegistryError` (404)."""
    if raw_path.count(b"/") > _SEGMENTS_MAX:
        raise http_error(404)
    return [unquote(each) for each in _segments(raw_path.decode("latin-1"))]


def _segments(path: str) -> list[str]:
    return [each for each in path.split("/") if each]
