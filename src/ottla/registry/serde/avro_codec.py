"""Compiled codecs of Avro schemas. Logical types are converted by fastavro's functions."""

from typing import Any

from fastavro.read import LOGICAL_READERS
from fastavro.write import LOGICAL_WRITERS

from ottla.registry.schemas.avro.avro_types import Array, AvroType, Enumeration, Fixed, Map, Record, Union
from ottla.registry.schemas.avro.logical_types import logical_type
from ottla.registry.serde.avro_values import ValueCodec


def codec_of(root: AvroType) -> ValueCodec | None:
    """The codec of a schema; None if fastavro would convert values by a logical type that is not valid."""
    made: dict[int, ValueCodec] = {}
    stack = [root]
    while stack:
        part = stack.pop()
        if id(part) in made:
            continue
        logical = f"{part.kind}-{part.properties.get('logicalType')}"
        if (logical in LOGICAL_READERS or logical in LOGICAL_WRITERS) and logical_type(part) is None:
            return None
        made[id(part)] = ValueCodec(part.kind)
        stack.extend(_inner(part))
    stack = [root]
    filled: set[int] = set()
    while stack:
        part = stack.pop()
        if id(part) not in filled:
            filled.add(id(part))
            inner = _inner(part)
            made[id(part)].fill(parts=[made[id(each)] for each in inner], **_attributes(part), **_conversions(part))
            stack.extend(inner)
    return made[id(root)]


def _attributes(part: AvroType) -> dict[str, Any]:
    match part:
        case Record():
            return {"names": [each.name for each in part.fields]}
        case Enumeration():
            return {"names": part.symbols}
        case Fixed():
            return {"size": part.size}
        case Union() if len(part.branches) == 2:
            kinds = [each.kind for each in part.branches]
            return {"null_branch": kinds.index("null")} if "null" in kinds else {}
    return {}


def _conversions(part: AvroType) -> dict[str, Any]:
    logical = f"{part.kind}-{part.properties.get('logicalType')}"
    schema = {**part.properties, "type": part.kind, "size": part.size if isinstance(part, Fixed) else None}
    return {"prepare": LOGICAL_WRITERS.get(logical), "restore": LOGICAL_READERS.get(logical), "schema": schema}


def _inner(part: AvroType) -> list[AvroType]:
    match part:
        case Record():
            return [each.type for each in part.fields]
        case Union():
            return part.branches
        case Array():
            return [part.items]
        case Map():
            return [part.values]
    return []
