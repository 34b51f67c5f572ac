"""Avro schemas from text. A name may be used before its type is defined, and a type may be defined twice alike."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from ottla.registry.schemas.avro.avro_types import (
    NESTING_MAX,
    PRIMITIVES,
    Array,
    AvroType,
    Enumeration,
    Field,
    Fixed,
    Map,
    Name,
    Named,
    Primitive,
    Record,
    Union,
    Unresolved,
    is_lenient_name,
    is_strict_name,
    qualified,
)
from ottla.registry.schemas.avro.defaults import DefaultCheck
from ottla.registry.schemas.avro.json_text import (
    VALUE_NESTING_MAX,
    is_int,
    is_same_json,
    nesting,
    read_double,
    read_json,
    write_json,
)
from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.schemas.time_limit import check_time

_TYPE_ATTRIBUTES: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
_ENUM_ATTRIBUTES: Final = _TYPE_ATTRIBUTES | {"default"}
_FIELD_ATTRIBUTES: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})
_ORDERS: Final = frozenset({"ascending", "descending", "ignore"})
_FIXED_BYTES_MAX: Final = 2**31 - 1 - 8
_SHOWN_MAX: Final = 200

_N = TypeVar("_N", bound=Named)


class Parser:
    """Parses texts one after another. Types of earlier texts can be used by name in later ones."""

    def __init__(self, *, is_new: bool) -> None:
        """With `is_new`, names must follow the specification and defaults must fit their types.

        Schemas that are registered already may be older than these checks.
        """
        self._is_new = is_new
        self._types: dict[str, Named] = {}
        self._unfinished: list[Array | Map | Union | Field] = []
        self._records: list[Record] = []

    def parse(self, text: str) -> AvroType:
        """The schema in a text. Raises `InvalidSchemaError`."""
        self._unfinished, self._records = [], []
        try:
            root = self._resolved(self._parse(read_json(text), None, 1))
            for each in self._unfinished:
                self._finish(each)
        except RecursionError as error:
            raise InvalidSchemaError("the schema is nested too deep") from error
        if self._is_new:
            defaults = DefaultCheck()
            for record in self._records:
                defaults.check(record, record.fields)
        return root

    def _parse(self, json: Any, space: str | None, depth: int) -> AvroType:
        check_time()
        if depth > NESTING_MAX:
            raise InvalidSchemaError(f"more than {NESTING_MAX} types are nested in each other")
        if isinstance(json, str):
            return self._find(json, space)
        if isinstance(json, list):
            return self._union(json, space, depth)
        if not isinstance(json, dict):
            raise InvalidSchemaError(f"{_shown(json)} is not a type: a type is a name, an object or a list")
        kind = json.get("type")
        if not isinstance(kind, str):
            raise InvalidSchemaError(f"{_shown(json)} has no type, which must be a name")
        parse = _PARSERS.get(kind)
        if parse is not None:
            return parse(self, json, space, depth)
        if kind in PRIMITIVES:
            return Primitive(kind=kind, properties=_properties(json, _TYPE_ATTRIBUTES))
        return self._find(kind, space)

    def _find(self, text: str, space: str | None) -> AvroType:
        if text in PRIMITIVES:
            return Primitive(kind=text)
        full_name = f"{space}.{text}" if space is not None and "." not in text else text
        found = self._types.get(full_name) or self._types.get(text)
        return found or Unresolved(kind="record", full_name=full_name)

    def _union(self, json: list[Any], space: str | None, depth: int) -> AvroType:
        union = Union(kind="union", branches=[self._parse(each, space, depth + 1) for each in json])
        _check_union(union)
        self._unfinished.append(union)
        return union

    def _array(self, json: Mapping[str, Any], space: str | None, depth: int) -> AvroType:
        if "items" not in json:
            raise InvalidSchemaError(f"the array {_shown(json)} has no items")
        array = Array(kind="array", items=self._parse(json["items"], space, depth + 1))
        array.properties = _properties(json, _TYPE_ATTRIBUTES)
        self._unfinished.append(array)
        return array

    def _map(self, json: Mapping[str, Any], space: str | None, depth: int) -> AvroType:
        if "values" not in json:
            raise InvalidSchemaError(f"the map {_shown(json)} has no values")
        node = Map(kind="map", values=self._parse(json["values"], space, depth + 1))
        node.properties = _properties(json, _TYPE_ATTRIBUTES)
        self._unfinished.append(node)
        return node

    def _record(self, json: Mapping[str, Any], space: str | None, depth: int) -> AvroType:
        record = Record(
            kind="record", name=self._name(json, space), doc=_text(json, "doc"), is_error=json["type"] == "error"
        )
        fields = json.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchemaError(f"record {record.name.full} has no list of fields")
        for each in fields:
            field = self._field(each, record.name, depth)
            if field.name in record.by_name:
                raise InvalidSchemaError(f"record {record.name.full} has two fields {field.name}")
            record.by_name[field.name] = field
            record.fields.append(field)
        self._records.append(record)
        return self._defined(record, json, _TYPE_ATTRIBUTES)

    def _field(self, json: Any, record: Name, depth: int) -> Field:
        name = _text(json, "name") if isinstance(json, dict) else None
        if name is None:
            raise InvalidSchemaError(f"a field of record {record.full} has no name: {_shown(json)}")
        place = f"field {name} of record {record.full}"
        if "type" not in json:
            raise InvalidSchemaError(f"{place} has no type")
        self._check_name(name, "field name")
        field = Field(name=name, type=self._parse(json["type"], record.space, depth + 1), doc=_text(json, "doc"))
        if "order" in json:
            order = json["order"]
            if not isinstance(order, str) or order.lower() not in _ORDERS:
                raise InvalidSchemaError(
                    f"the order of {place} must be ascending, descending or ignore, not {_shown(order)}"
                )
            field.order = order.lower()
        if "default" in json:
            field.has_default = True
            field.default = _value(json["default"])
            if field.type.kind in ("float", "double") and isinstance(field.default, str):
                try:
                    field.default = read_double(field.default)
                except ValueError as error:
                    raise InvalidSchemaError(f"the default of {place}: {error}") from error
        field.properties = _properties(json, _FIELD_ATTRIBUTES)
        field.aliases = _aliases(json, place)
        self._unfinished.append(field)
        return field

    def _enum(self, json: Mapping[str, Any], space: str | None, depth: int) -> AvroType:
        name = self._name(json, space)
        symbols = json.get("symbols")
        if not isinstance(symbols, list):
            raise InvalidSchemaError(f"enum {name.full} has no list of symbols")
        known: set[str] = set()
        for each in symbols:
            if not isinstance(each, str):
                raise InvalidSchemaError(f"enum {name.full} has a symbol that is not a string: {_shown(each)}")
            self._check_name(each, f"symbol of enum {name.full}")
            if each in known:
                raise InvalidSchemaError(f"enum {name.full} has symbol {each} twice")
            known.add(each)
        default = _text(json, "default")
        if default is not None and default not in known:
            raise InvalidSchemaError(f"the default {_shown(default)} of enum {name.full} is not one of its symbols")
        enumeration = Enumeration(kind="enum", name=name, doc=_text(json, "doc"), symbols=symbols, default=default)
        return self._defined(enumeration, json, _ENUM_ATTRIBUTES)

    def _fixed(self, json: Mapping[str, Any], space: str | None, depth: int) -> AvroType:
        name, size = self._name(json, space), json.get("size")
        if not is_int(size) or size is None or not 0 <= size <= _FIXED_BYTES_MAX:
            raise InvalidSchemaError(
                f"fixed {name.full} has no size, which must be a number from 0 to {_FIXED_BYTES_MAX}"
            )
        fixed = Fixed(kind="fixed", name=name, doc=_text(json, "doc"), size=size)
        return self._defined(fixed, json, _TYPE_ATTRIBUTES)

    def _name(self, json: Mapping[str, Any], space: str | None) -> Name:
        text, own_space = _text(json, "name"), _text(json, "namespace")
        if text is None:
            raise InvalidSchemaError(f"the {json['type']} {_shown(json)} has no name")
        name = qualified(text, space if own_space is None else own_space)
        if name.full in PRIMITIVES:
            raise InvalidSchemaError(f"a type must not have the name of the primitive type {name.full}")
        for each in (*(name.space.split(".") if name.space is not None else ()), name.simple):
            self._check_name(each, f"name {_shown(name.full)}")
        return name

    def _check_name(self, text: str, what: str) -> None:
        if self._is_new and not is_strict_name(text):
            raise InvalidSchemaError(
                f"{_shown(text)} is not a valid {what}: names have letters, digits and _, and do not begin with a digit"
            )

    def _defined(self, node: _N, json: Mapping[str, Any], attributes: frozenset[str]) -> _N:
        """The named type with what all of them have, known from now on by its name."""
        node.properties = _properties(json, attributes)
        aliases = [qualified(each, node.name.space) for each in _aliases(json, f"{node.kind} {node.name.full}")]
        for each in aliases:
            self._check_name(each.simple, f"alias of {node.kind} {node.name.full}")
        node.aliases = list(dict.fromkeys(aliases))
        known = self._types.setdefault(node.name.full, node)
        if known is not node and not _is_same(known, node):
            raise InvalidSchemaError(f"{node.name.full} is defined twice, and differently")
        return node

    def _resolved(self, node: AvroType) -> AvroType:
        if not isinstance(node, Unresolved):
            return node
        found = self._types.get(node.full_name)
        if found is None:
            raise InvalidSchemaError(
                f"type {node.full_name} is not defined; define it in the schema, or register it and add a reference"
            )
        return found

    def _finish(self, part: Array | Map | Union | Field) -> None:
        match part:
            case Array():
                part.items = self._resolved(part.items)
            case Map():
                part.values = self._resolved(part.values)
            case Field():
                part.type = self._resolved(part.type)
            case Union():
                if any(isinstance(each, Unresolved) for each in part.branches):
                    part.branches = [self._resolved(each) for each in part.branches]
                    _check_union(part)


def check_lenient_names(root: AvroType) -> None:
    """Raises `InvalidSchemaError` about a name that not even Avro's Java library allows by default."""
    seen: set[int] = set()
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        names: list[str] = []
        match node:
            case Record():
                names = [node.name.simple, *node.by_name]
                nodes.extend(each.type for each in node.fields)
            case Enumeration():
                names = [node.name.simple, *node.symbols]
            case Named():
                names = [node.name.simple]
            case Array():
                nodes.append(node.items)
            case Map():
                nodes.append(node.values)
            case Union():
                nodes.extend(node.branches)
        for each in names:
            if not is_lenient_name(each):
                raise InvalidSchemaError(
                    f"{_shown(each)} is not a valid name: names have letters, digits and _, and do not begin with a"
                    " digit"
                )


def _check_union(union: Union) -> None:
    known: set[str] = set()
    for each in union.branches:
        if isinstance(each, Union):
            raise InvalidSchemaError("a union must not contain a union directly")
        if each.union_name in known:
            raise InvalidSchemaError(f"a union contains {each.union_name} twice")
        known.add(each.union_name)


def _is_same(one: AvroType, other: AvroType) -> bool:
    """Whether two definitions mean the same; doc and aliases do not count."""
    if one is other:
        return True
    if type(one) is not type(other) or one.kind != other.kind or not is_same_json(one.properties, other.properties):
        return False
    match one, other:
        case Named(), Named() if one.name != other.name:
            return False
        case Record(), Record():
            return len(one.fields) == len(other.fields) and all(map(_is_same_field, one.fields, other.fields))
        case Enumeration(), Enumeration():
            return one.symbols == other.symbols
        case Fixed(), Fixed():
            return one.size == other.size
        case Array(), Array():
            return _is_same(one.items, other.items)
        case Map(), Map():
            return _is_same(one.values, other.values)
        case Union(), Union():
            return len(one.branches) == len(other.branches) and all(map(_is_same, one.branches, other.branches))
        case Unresolved(), _:
            return False
    return True


def _is_same_field(one: Field, other: Field) -> bool:
    return (
        (one.name, one.has_default, one.order) == (other.name, other.has_default, other.order)
        and is_same_json(one.default, other.default)
        and is_same_json(one.properties, other.properties)
        and _is_same(one.type, other.type)
    )


def _properties(json: Mapping[str, Any], attributes: frozenset[str]) -> dict[str, Any]:
    return {name: _value(value) for name, value in json.items() if name not in attributes}


def _value(value: Any) -> Any:
    if isinstance(value, dict | list) and nesting(value) > VALUE_NESTING_MAX:
        raise InvalidSchemaError(f"a default or a property is nested more than {VALUE_NESTING_MAX} levels deep")
    return value


def _aliases(json: Mapping[str, Any], place: str) -> list[str]:
    aliases = json.get("aliases", ())
    if "aliases" in json and not isinstance(aliases, list):
        raise InvalidSchemaError(f"the aliases of {place} are not a list")
    for each in aliases:
        if not isinstance(each, str):
            raise InvalidSchemaError(f"{place} has an alias that is not a string: {_shown(each)}")
    return list(dict.fromkeys(aliases))


def _text(json: Mapping[str, Any], name: str) -> str | None:
    """An attribute that must be a string. One of another type counts as missing, as in Java."""
    value = json.get(name)
    return value if isinstance(value, str) else None


def _shown(json: Any) -> str:
    if nesting(json) > VALUE_NESTING_MAX:
        return "(deeply nested)"
    text = write_json(json)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


_PARSERS: Final[Mapping[str, Callable[[Parser, Mapping[str, Any], str | None, int], AvroType]]] = {
    "record": Parser._record,
    "error": Parser._record,
    "enum": Parser._enum,
    "array": Parser._array,
    "map": Parser._map,
    "fixed": Parser._fixed,
}
