"""The text of a schema in the layout of Avro's Java library, which is what Confluent's registry stores."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.registry.schemas.avro.avro_types import (
    NESTING_MAX,
    Array,
    AvroType,
    Enumeration,
    Field,
    Fixed,
    Map,
    Name,
    Named,
    Record,
    Union,
)
from ottla.registry.schemas.avro.json_text import with_sorted_names, write_json, write_string
from ottla.registry.schemas.avro.logical_types import logical_type
from ottla.registry.schemas.parsed_schema import InvalidSchemaError

_Piece = str | tuple[AvroType, str | None, int]
"""A text, or a type to write inside a namespace at a depth."""


def canonical_text(
    root: AvroType, known: Iterable[str] = (), *, nesting_max: int | None = NESTING_MAX, is_sorted: bool = False
) -> str:
    """The schema's text. Each named type is written out where it comes first, unless its full name is `known`.

    With `is_sorted`, what has no order in Avro is sorted: properties, names in defaults, and aliases. Raises
    `InvalidSchemaError` if more than `nesting_max` types are nested in each other.
    """
    written = set(known)
    layout = _SORTED if is_sorted else _AS_GIVEN
    texts: list[str] = []
    # A stack instead of recursion: a thousand references may be nested in each other.
    stack: list[_Piece] = [(root, None, 1)]
    while stack:
        piece = stack.pop()
        if isinstance(piece, str):
            texts.append(piece)
            continue
        node, space, depth = piece
        if nesting_max is not None and depth > nesting_max:
            raise InvalidSchemaError(f"more than {nesting_max} types are nested in each other")
        stack.extend(reversed(list(_pieces(node, space, depth, written, layout))))
    return "".join(texts)


def _pieces(node: AvroType, space: str | None, depth: int, written: set[str], layout: "_Layout") -> Iterator[_Piece]:
    if isinstance(node, Named):
        if node.name.full in written:
            yield write_string(node.name.written_in(space))
            return
        written.add(node.name.full)
    match node:
        case Union():
            yield "["
            for position, branch in enumerate(node.branches):
                if position:
                    yield ","
                yield (branch, space, depth + 1)
            yield "]"
            return
        case Array():
            yield '{"type":"array","items":'
            yield (node.items, space, depth + 1)
        case Map():
            yield '{"type":"map","values":'
            yield (node.values, space, depth + 1)
        case Record():
            kind = "error" if node.is_error and not layout.is_sorted else "record"
            yield f'{{"type":"{kind}",{_head(node, space)},"fields":['
            for position, each in enumerate(node.fields):
                yield f'{"," if position else ""}{{"name":{write_string(each.name)},"type":'
                yield (each.type, node.name.space, depth + 1)
                yield f"{_field_tail(each, layout)}}}"
            yield "]"
        case Enumeration():
            symbols = ",".join(map(write_string, node.symbols))
            default = "" if node.default is None else f',"default":{write_string(node.default)}'
            yield f'{{"type":"enum",{_head(node, space)},"symbols":[{symbols}]{default}'
        case Fixed():
            yield f'{{"type":"fixed",{_head(node, space)},"size":{node.size}'
        case _:
            if not node.properties:
                yield f'"{node.kind}"'
                return
            yield f'{{"type":"{node.kind}"'
    yield _properties(_ordered(node), layout)
    if isinstance(node, Named) and node.aliases:
        yield f',"aliases":{_strings(layout.aliases([each.written_in(node.name.space) for each in node.aliases]))}'
    yield "}"


def _head(node: Named, space: str | None) -> str:
    """Name, namespace if it is not that of the enclosing type, and doc."""
    return f'"name":{write_string(node.name.simple)}{_namespace(node.name, space)}{_doc(node.doc)}'


def _namespace(name: Name, space: str | None) -> str:
    return "" if name.space == space else f',"namespace":{write_string(name.space or "")}'


def _doc(doc: str | None) -> str:
    return "" if doc is None else f',"doc":{write_string(doc)}'


def _field_tail(field: Field, layout: "_Layout") -> str:
    default = f',"default":{write_json(layout.value(field.default))}' if field.has_default else ""
    order = "" if field.order == "ascending" else f',"order":"{field.order}"'
    aliases = f',"aliases":{_strings(layout.aliases(field.aliases))}' if field.aliases else ""
    return f"{_doc(field.doc)}{default}{order}{aliases}{_properties(field.properties, layout)}"


def _ordered(node: AvroType) -> Mapping[str, Any]:
    """The properties in the order in which Java writes them.

    Java copies records, arrays and maps once their names are resolved, and sets a valid logical type first.
    """
    if isinstance(node, Record | Array | Map) and "logicalType" in node.properties and logical_type(node) is not None:
        return {"logicalType": node.properties["logicalType"], **node.properties}
    return node.properties


def _properties(properties: Mapping[str, Any], layout: "_Layout") -> str:
    if not properties:
        return ""
    ordered: Mapping[str, Any] = layout.value(properties)
    return "".join(f",{write_string(name)}:{write_json(value)}" for name, value in ordered.items())


@dataclass(frozen=True, slots=True)
class _Layout:
    """In which order things are written that have no order in Avro."""

    is_sorted: bool

    def value(self, value: Any) -> Any:
        return with_sorted_names(value) if self.is_sorted else value

    def aliases(self, aliases: list[str]) -> list[str]:
        return sorted(aliases) if self.is_sorted else aliases


_AS_GIVEN: Final = _Layout(False)
_SORTED: Final = _Layout(True)


def _strings(texts: Iterable[str]) -> str:
    return f"[{','.join(map(write_string, texts))}]"
