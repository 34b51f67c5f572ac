"""Which logical types are valid for which types. An invalid one is an ordinary property."""

import math
from collections.abc import Callable, Mapping
from typing import Final

from ottla.registry.schemas.avro.avro_types import Array, AvroType, Fixed, Record
from ottla.registry.schemas.avro.json_text import is_int

_JAVA_PROPERTIES: Final = ("avro.java.string", "java-class", "java-key-class", "java-element-class")


def logical_type(node: AvroType) -> str | None:
    """The name of the logical type, if the type has a valid one."""
    name = node.properties.get("logicalType")
    if not isinstance(name, str) or name not in _VALID:
        return None
    if any(isinstance(node.properties.get(each), str) for each in _JAVA_PROPERTIES):
        return None
    return name if _VALID[name](node) else None


def _is_fixed_of(node: AvroType, size: int) -> bool:
    return isinstance(node, Fixed) and node.size == size


def _is_decimal(node: AvroType) -> bool:
    precision, scale = node.properties.get("precision"), node.properties.get("scale", 0)
    if precision is None or not is_int(precision) or not is_int(scale) or not 0 <= scale <= precision or precision == 0:
        return False
    if isinstance(node, Fixed):
        return bool(precision <= math.floor(math.log10(2) * (8 * node.size - 1)))
    return node.kind == "bytes"


def _is_pair_list(node: AvroType) -> bool:
    return (
        isinstance(node, Array)
        and isinstance(node.items, Record)
        and [each.name for each in node.items.fields] == ["key", "value"]
    )


def _is_variant(node: AvroType) -> bool:
    return isinstance(node, Record) and {(each.name, each.type.kind) for each in node.fields} == {
        ("metadata", "bytes"),
        ("value", "bytes"),
    }


def _of(kind: str) -> Callable[[AvroType], bool]:
    return lambda node: node.kind == kind


_VALID: Final[Mapping[str, Callable[[AvroType], bool]]] = {
    "decimal": _is_decimal,
    "big-decimal": _of("bytes"),
    "duration": lambda node: _is_fixed_of(node, 12),
    "uuid": lambda node: node.kind == "string" or _is_fixed_of(node, 16),
    "date": _of("int"),
    "time-millis": _of("int"),
    "time-micros": _of("long"),
    "timestamp-millis": _of("long"),
    "timestamp-micros": _of("long"),
    "timestamp-nanos": _of("long"),
    "local-timestamp-millis": _of("long"),
    "local-timestamp-micros": _of("long"),
    "local-timestamp-nanos": _of("long"),
    # Confluent's own: a map with keys of any type, and values of any type.
    "map": _is_pair_list,
    "variant": _is_variant,
}
