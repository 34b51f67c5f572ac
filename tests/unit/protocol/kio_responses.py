"""Produce and Fetch responses as kio writes them, and the Hypothesis strategies for what goes into both."""

import sys
from struct import pack
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from ottla.protocol.scan import Endpoint
from tests.unit.protocol.kio_requests import PRIMITIVES, framed, texts, written

ids, offsets = PRIMITIVES["int32"], PRIMITIVES["int64"]
codes = st.sampled_from([int(code) for code in ErrorCode])
leaders = st.none() | st.tuples(ids, ids) | st.just((-1, -1))
endpoint_lists = st.lists(st.tuples(ids, texts, ids, st.none() | texts), max_size=3)
spans = st.integers(0, 2**31 - 1)


def topics_for(by_id: bool) -> st.SearchStrategy[list[str | bytes]]:
    """Few different ones, so that neighbours are often of one topic."""
    names: list[str | bytes] = [b"a" * 16, b"b" * 16, bytes(16)] if by_id else ["a", "b", "ä" * 200, ""]
    return st.lists(st.sampled_from(names), max_size=6)


def flexible(response: type[Any]) -> bytes:
    """What a flexible response header ends with."""
    return b"\0" if response.__flexible__ else b""


def part_of(whole: Any, entity: str, /, **values: Any) -> Any:
    """A nested entity of the same version, without the fields that this version does not have."""
    kind = getattr(sys.modules[whole.__module__], entity)
    return whole_of(kind, **values)


def whole_of(kind: Any, /, **values: Any) -> Any:
    return kind(**{key: value for key, value in values.items() if key in kind.__dataclass_fields__})


def topic_field(topic: str | bytes) -> dict[str, Any]:
    if isinstance(topic, str):
        return {"name": topic, "topic": topic}
    return {"topic_id": UUID(bytes=topic) if any(topic) else None}


def leader_field(kind: Any, leader: tuple[int, int] | None) -> dict[str, Any]:
    """Absent where its version has no such field: kio would not know the class."""
    if leader is None or kind.__version__ < (10 if kind.__api_key__ == 0 else 12):
        return {}
    return {"current_leader": part_of(kind, "LeaderIdAndEpoch", leader_id=leader[0], leader_epoch=leader[1])}


def endpoints_field(kind: Any, endpoints: list[Endpoint]) -> dict[str, Any]:
    if kind.__version__ < (10 if kind.__api_key__ == 0 else 16):
        return {}
    entities = (
        part_of(kind, "NodeEndpoint", node_id=broker_id, host=host, port=port, rack=rack)
        for broker_id, host, port, rack in endpoints
    )
    return {"node_endpoints": tuple(entities)}


def expected_frame(kind: Any, correlation_id: int, **values: Any) -> bytes:
    return framed(pack(">i", correlation_id) + flexible(kind) + written(whole_of(kind, **values)))
