"""Produce and Fetch requests as kio writes them: the judge of the fast path, and its Hypothesis strategies.

Entities of any version are made from kio's own field descriptions, so that a field of a version cannot be forgotten
here. The `*_fields` functions say what a scan of an entity's frame must find.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import timedelta
from functools import cache
from io import BytesIO
from struct import pack
from types import NoneType
from typing import Any, get_args
from uuid import UUID

from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.schema.index import PayloadEntityType, api_key_map, schema_name_map
from kio.serial import entity_writer
from kio.static.constants import EntityType

from ottla.protocol.apis import NEWER_THAN_KIO
from ottla.protocol.newer_messages import newer_class
from ottla.protocol.scan import FetchRequest, ProduceRequest

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.just("t" * 300)
uuids = st.binary(min_size=16, max_size=16).filter(any).map(lambda raw: UUID(bytes=raw))

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "bytes": st.binary(max_size=20),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "string": texts,
    "records": st.binary(max_size=20) | st.integers(100, 20_000).map(bytes),
    "uuid": uuids,
    "timedelta_i32": st.integers(0, 2**31 - 1).map(lambda span: timedelta(milliseconds=span)),
    "timedelta_i64": st.integers(-1, 2**40).map(lambda span: timedelta(milliseconds=span)),
}


@cache
def entity_class(api_key: int, version: int, kind: PayloadEntityType) -> Any:
    """The class of a whole request or response."""
    newer = {(int(key), version): key for key, version in NEWER_THAN_KIO.items()}.get((api_key, version))
    if newer is not None:
        return newer_class(newer, version, kind)
    module = load_payload_module(api_key, version, kind)
    return next(found for found in vars(module).values() if getattr(found, "__type__", None) is kind)


def known_requests() -> Iterator[Any]:
    """The class of every request in every version that kio knows."""
    for api_key, name in sorted(api_key_map.items()):
        for version, kinds in schema_name_map[name].items():
            if EntityType.request in kinds:
                yield entity_class(api_key, version, EntityType.request)


@cache
def entities(entity: Any) -> st.SearchStrategy[Any]:
    """Any instance of one of kio's classes, parts included."""
    return st.builds(entity, **{field.name: _values(field.type, field.metadata) for field in fields(entity)})


def _is_entity(kind: Any) -> bool:
    return is_dataclass(kind)


def _values(kind: Any, metadata: Any) -> st.SearchStrategy[Any]:
    optional = NoneType in get_args(kind)
    if optional:
        kind = next(choice for choice in get_args(kind) if choice is not NoneType)
    if _is_entity(kind):
        values = entities(kind)
    elif getattr(kind, "__origin__", None) is tuple:
        item = get_args(kind)[0]
        one = entities(item) if _is_entity(item) else PRIMITIVES[metadata["kafka_type"]]
        values = st.lists(one, max_size=4).map(tuple)
    else:
        values = PRIMITIVES[metadata["kafka_type"]]
    # A nullable tagged field has no null on the wire: it is absent, which is its default.
    return st.none() | values if optional else values


def written(entity: Any) -> bytes:
    """The entity as kio writes it."""
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def request_header(request: Any, correlation_id: int = 7, client_id: str | None = "judge") -> bytes:
    """What stands before such a request in its frame, length not included."""
    return written(
        request.__header_schema__(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=correlation_id,
            client_id=client_id,
        )
    )


def framed(content: bytes) -> bytes:
    return pack(">i", len(content)) + content


def request_frame(request: Any, correlation_id: int = 7, client_id: str | None = "judge") -> bytes:
    """A whole frame: length, header, request."""
    return framed(request_header(request, correlation_id, client_id) + written(request))


def milliseconds(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


def topic_of(entity: Any) -> str | bytes:
    """Its name, or its id as 16 bytes; kio calls the zero id None."""
    if hasattr(entity, "topic_id"):
        return bytes(16) if entity.topic_id is None else bytes(entity.topic_id.bytes)
    name: str = entity.name if hasattr(entity, "name") else entity.topic
    return name


def produce_fields(request: Any) -> dict[str, Any]:
    """What a scan must find in a Produce entity, with the records themselves for their position."""
    return {
        "transactional_id": request.transactional_id,
        "acks": request.acks,
        "timeout_ms": milliseconds(request.timeout),
        "parts": [
            (topic_of(topic), part.index, part.records) for topic in request.topic_data for part in topic.partition_data
        ],
    }


def scanned_produce_fields(request: ProduceRequest, buffer: bytes) -> dict[str, Any]:
    return {
        "transactional_id": request.transactional_id,
        "acks": request.acks,
        "timeout_ms": request.timeout_ms,
        "parts": [
            (topic, partition, None if size == -1 else buffer[position : position + size])
            for topic, partition, position, size in request.parts
        ],
    }


def fetch_fields(request: Any) -> dict[str, Any]:
    """What a scan must find in a Fetch entity: defaults where its version has no such field."""
    state = getattr(request, "replica_state", None)
    return {
        "replica_id": request.replica_id if state is None else state.replica_id,
        "replica_epoch": -1 if state is None else state.replica_epoch,
        "max_wait_ms": milliseconds(request.max_wait),
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
        "session_id": getattr(request, "session_id", 0),
        "session_epoch": getattr(request, "session_epoch", -1),
        "rack_id": getattr(request, "rack_id", ""),
        "cluster_id": getattr(request, "cluster_id", None),
        "wanted": [
            (
                topic_of(topic),
                part.partition,
                getattr(part, "current_leader_epoch", -1),
                part.fetch_offset,
                getattr(part, "last_fetched_epoch", -1),
                getattr(part, "log_start_offset", -1),
                part.partition_max_bytes,
            )
            for topic in request.topics
            for part in topic.partitions
        ],
        "forgotten": [
            (topic_of(topic), partition)
            for topic in getattr(request, "forgotten_topics_data", ())
            for partition in topic.partitions
        ],
    }


def scanned_fetch_fields(request: FetchRequest) -> dict[str, Any]:
    names = (
        "replica_id replica_epoch max_wait_ms min_bytes max_bytes isolation_level session_id session_epoch rack_id"
        " cluster_id wanted forgotten"
    )
    return {name: getattr(request, name) for name in names.split()}
