"""Addresses of names that may have any character, such as slashes and dots.

In a route, `{group:name}` is the name that `path_of` wrote. Browsers take `.` and `..`, also written as `%2E`, for
steps in a path and remove them; so a name that is only one or two dots is written with a tilde before it.
"""

import re
from typing import Any, Final
from urllib.parse import quote

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.routing import Match, Route
from starlette.types import Scope

_DOTS: Final = re.compile(r"~*\.{1,2}")
"""Names that are written with one tilde more than they have."""


def path_of(*parts: object) -> str:
    """An address from its parts, each quoted: path_of("topics", "a/b", "records") is /topics/a%2Fb/records."""
    return "/" + "/".join(_written(str(each)) for each in parts)


def _written(name: str) -> str:
    return f"~{name}" if _DOTS.fullmatch(name) else quote(name, safe="")


class _Name(Convertor[str]):
    """A name as `path_of` writes it."""

    regex = ".*"

    def convert(self, value: str) -> str:
        return value[1:] if value.startswith("~") and _DOTS.fullmatch(value) else value

    def to_string(self, value: str) -> str:
        return _written(value)


register_url_convertor("name", _Name())


class SubpageRoute(Route):
    """A route whose fixed end must stand in the address itself: /groups/a/reset is a page about the group a, while
    /groups/a%2Freset is the group a/reset."""

    def matches(self, scope: Scope) -> tuple[Match, dict[str, Any]]:
        """Whether the address is this page."""
        end = self.path.rpartition("}")[2]
        raw = scope.get("raw_path")
        if raw is not None and not raw.endswith(end.encode()):
            return Match.NONE, {}
        match, found = super().matches(scope)
        return match, dict(found)


def own_path(request: Request) -> str:
    """The path of this page as it stands in its address: %2F in a name is not a slash of the path."""
    raw = request.scope.get("raw_path")
    return quote(request.scope["path"]) if raw is None else raw.decode("ascii", "replace")
