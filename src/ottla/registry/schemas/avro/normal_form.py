"""The normal form: one text for schemas that differ only in layout, order of properties or ways to write names.

Follows Confluent's registry step by step, because schemas are found by the texts it has stored. This includes what a
reader may not expect: errors become records, empty docs disappear, a default of a union that does not fit the union's
first branch disappears, and a type in the null namespace inside of a namespace moves into that namespace.
"""

from collections.abc import Iterable
from typing import Any

from ottla.registry.schemas.avro.avro_types import Array, AvroType, Enumeration, Field, Fixed, Map, Named, Record, Union
from ottla.registry.schemas.avro.json_text import as_single, is_long, utf16_order, with_sorted_names
from ottla.registry.schemas.avro.logical_types import logical_type


def normal_json(node: AvroType, known: Iterable[str]) -> Any:
    """The schema as JSON to be parsed again. Types whose full names are `known` are used by name only."""
    return _normal(node, set(known))


def _normal(node: AvroType, written: set[str]) -> Any:
    json: dict[str, Any]
    match node:
        case Union():
            return [_normal(each, written) for each in node.branches]
        case Array():
            json = {"type": "array", "items": _normal(node.items, written)}
        case Map():
            json = {"type": "map", "values": _normal(node.values, written)}
        case Named():
            if node.name.full in written:
                return node.name.full
            written.add(node.name.full)
            json = {"name": node.name.full, "type": node.kind}
            match node:
                case Record():
                    json["fields"] = [_normal_field(each, written) for each in node.fields]
                case Enumeration():
                    json["symbols"] = node.symbols
                case Fixed():
                    json["size"] = node.size
        case _:
            if not node.properties:
                return node.kind
            json = {"type": node.kind}
    logical = logical_type(node)
    if logical is not None:
        json["logicalType"] = logical
        if logical == "decimal":
            json["precision"] = node.properties["precision"]
            if node.properties.get("scale"):
                json["scale"] = node.properties["scale"]
    if isinstance(node, Named):
        if node.doc:
            json["doc"] = node.doc
        if node.aliases:
            json["aliases"] = sorted(node.alias_texts, key=utf16_order)
    if isinstance(node, Enumeration) and node.default is not None:
        json["default"] = node.default
    return {**json, **with_sorted_names(node.properties)}


def _normal_field(field: Field, written: set[str]) -> dict[str, Any]:
    json = {"name": field.name, "type": _normal(field.type, written), "order": field.order}
    if field.doc is not None:
        json["doc"] = field.doc
    if field.aliases:
        json["aliases"] = sorted(field.aliases, key=utf16_order)
    if field.has_default:
        try:
            json["default"] = with_sorted_names(_default(field.default, field.type))
        except _DroppedError:
            pass
        except _UnclearError:
            json["default"] = with_sorted_names(field.default)
    return {**json, **with_sorted_names(field.properties)}


class _DroppedError(Exception):
    """The value does not fit its type, and disappears."""


class _UnclearError(Exception):
    """A part of the value does not fit its type. Confluent's registry fails here; the value stays as it is."""


def _default(value: Any, node: AvroType | None) -> Any:
    """A default value after a trip through the Java type that holds values of the field's type."""
    while isinstance(node, Union):
        if not node.branches:
            raise _UnclearError
        node = node.branches[0]
    if value is None or type(value) is bool:
        return value
    kind = None if node is None else node.kind
    if is_long(value) and kind in (None, "int", "long"):
        return value
    if is_long(value) and kind in ("float", "double"):
        return as_single(float(value)) if kind == "float" else float(value)
    if type(value) is float and kind in (None, "double"):
        return value
    if type(value) is float and kind == "float":
        return as_single(value)
    if type(value) is str and kind in (None, "string", "enum"):
        return value
    if type(value) is str and kind in ("bytes", "fixed"):
        return value.encode("latin-1", "replace").decode("latin-1")
    if type(value) is list:
        if value and node is not None and not isinstance(node, Array):
            raise _UnclearError
        return [_part(each, node.items if isinstance(node, Array) else None) for each in value]
    if type(value) is dict:
        return {name: _part(each, _part_type(node, name)) for name, each in value.items()}
    raise _DroppedError


def _part(value: Any, node: AvroType | None) -> Any:
    try:
        return _default(value, node)
    except _DroppedError:
        raise _UnclearError from None


def _part_type(node: AvroType | None, name: str) -> AvroType | None:
    if isinstance(node, Map):
        return node.values
    if isinstance(node, Record):
        if name not in node.by_name:
            raise _UnclearError
        return node.by_name[name].type
    return None
