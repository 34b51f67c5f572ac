"""Addresses of names that may have any character, such as slashes."""

from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.routing import Match, Route
from starlette.types import Scope


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
