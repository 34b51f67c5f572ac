"""Who asks, and how: what a handler may know of the connection that a request came on."""

from typing import NamedTuple


class Context(NamedTuple):
    """One request's surroundings."""

    version: int
    """Of the API, as on the wire; the request itself is of the newest version's class."""
    client_id: str | None
    peer: str
    """The other side's address, for people."""
