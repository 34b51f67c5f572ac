"""Types of the compiled `scan.pyx`; its docstrings are there.

`scan_requests` makes one pass over the bytes that arrived and answers every complete request in them, in order.
"""

from typing import Final, final

from typing_extensions import Buffer

from ottla.protocol.results import FetchResult, ProduceResult

class Request:
    """One request of any API; its body is `[body_start, end)` of the buffer it was scanned from.

    It holds positions and strings, never the buffer. Made by `scan_requests` only.
    """

    api_key: Final[int]
    version: Final[int]
    correlation_id: Final[int]
    client_id: Final[str | None]
    start: Final[int]
    """Where the frame begins in the buffer: its length field."""
    body_start: Final[int]
    end: Final[int]

@final
class ProduceRequest(Request):
    """Produce v3 to v13."""

    transactional_id: Final[str | None]
    acks: Final[int]
    timeout_ms: Final[int]
    parts: Final[list[tuple[str | bytes, int, int, int]]]
    """(topic, partition, position of the records in the buffer, their size or -1 for null), in the request's order; the
    topic is its name, or from v13 its id as 16 bytes."""

    def answer(self, results: list[ProduceResult], endpoints: list[Endpoint], throttle_time_ms: int) -> bytes:
        """The response frame, length first; `results` has one for each part, in the order of the parts.

        What a version has no field for is left out. `MisuseError` when a string is too long for the protocol.
        """

@final
class FetchRequest(Request):
    """Fetch v4 to v18."""

    replica_id: Final[int]
    """-1 for a consumer; from v15 taken from the tagged replica state."""
    replica_epoch: Final[int]
    max_wait_ms: Final[int]
    min_bytes: Final[int]
    max_bytes: Final[int]
    isolation_level: Final[int]
    session_id: Final[int]
    """0 below v7."""
    session_epoch: Final[int]
    """-1 below v7."""
    rack_id: Final[str]
    cluster_id: Final[str | None]
    wanted: Final[list[Wanted]]
    forgotten: Final[list[tuple[str | bytes, int]]]

    def answer(
        self,
        error_code: int,
        session_id: int,
        parts: list[FetchResult],
        endpoints: list[Endpoint],
        throttle_time_ms: int,
    ) -> list[bytes | object]:
        """The response frame as pieces in order: bytes, and between them the `records` objects of the parts.

        Results of one topic must be neighbours. The first piece is bytes; no two pieces of header bytes are neighbours.
        Records of size 0 have no piece.
        """

@final
class BrokenRequest(Request):
    """Bytes that are not a request: nothing after it can be read. `reason` is for people.

    API key, version and correlation id are -1 when not even the length could be believed.
    """

    reason: Final[str]

Wanted = tuple[str | bytes, int, int, int, int, int, int]
"""(topic, partition, current leader epoch or -1, fetch offset, last fetched epoch or -1, log start or -1, max bytes)"""

Endpoint = tuple[int, str, int, str | None]
"""(broker id, host, port, rack)"""

def scan_requests(buffer: Buffer, start: int, end: int, frame_bytes_max: int) -> tuple[list[Request], int, int]:
    """(requests, where the first incomplete frame begins, that frame's whole size or 0 if not yet known).

    Looks at `[start, end)` of the buffer, which it lets go of before it returns. A request that cannot be read comes
    out as a `BrokenRequest`, last; the position is then where it begins. A frame whose length field is below a header's
    size or above `frame_bytes_max` is broken as soon as that field is there. Bytes behind a body that could be read are
    ignored, as Kafka ignores them. A request for an API that does not exist, or for ApiVersions in an unknown version,
    comes out as a `Request` even if the rest of its header cannot be read.
    """

def is_flexible(api_key: int, version: int) -> bool | None:
    """Whether requests of this API and version are flexible (header version 2); None for an API that does not exist."""
