"""A record as a Python object, for tools, tests and small reads.

Nothing on a hot path makes these: the broker works on batches (`batch`), the clients on columns (`columns`, `arrow`).
"""

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record of a batch; a null key or value is None."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
