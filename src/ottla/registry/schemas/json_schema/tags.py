"""Tags inside a schema: the keyword `confluent:tags` of objects and of their properties, and how a place is named.

A place is named by what is passed on the way to it, as Confluent's registry does it: `object` or `object.NAME` for an
object and its properties, `array` for items, `anyof.0` for the first member of a union, `not`, `conditional.if`,
`object.definitions.NAME`. Members are counted in an order by kind, title, description, and what is inside.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from ottla.registry.schemas.json_schema.json_text import write_json
from ottla.registry.schemas.json_schema.subschemas import (
    ABSENT,
    AnythingSchema,
    ArraySchema,
    BooleanSchema,
    CombinedSchema,
    ConditionalSchema,
    ConstSchema,
    EnumSchema,
    NothingSchema,
    NotSchema,
    NullSchema,
    NumberSchema,
    ObjectSchema,
    ReferenceSchema,
    StringSchema,
    Subschema,
)
from ottla.registry.schemas.parsed_schema import InvalidSchemaError, SchemaEntity, Tags

_TAGS: Final = "confluent:tags"
_DEFINITIONS: Final = ("definitions", "$defs")
_PATH_LENGTH_MAX: Final = 10_000
_KINDS: Final[tuple[type[Subschema], ...]] = (
    *(ArraySchema, BooleanSchema, CombinedSchema, ConditionalSchema, ConstSchema, AnythingSchema, EnumSchema),
    *(NothingSchema, NotSchema, NullSchema, NumberSchema, ObjectSchema, ReferenceSchema, StringSchema),
)
"""In the order in which members of a union are counted; `true` comes last."""

Load = Callable[[Any], Subschema]
"""Loads a value of the schema by itself, without following references."""


def tags_of(root: Subschema, load: Load) -> Tags:
    """All tags by place. Places with extremely long names are left out."""
    found: dict[SchemaEntity, Sequence[str]] = {}

    def note(schema: Subschema, way: _Way, entity_type: Literal["sr_record", "sr_field"]) -> None:
        tags = _tags(schema)
        path = _path(way) if tags else ""
        if path:
            found[SchemaEntity(entity_path=path, entity_type=entity_type)] = tags

    unvisited: list[tuple[Subschema, _Way | None, bool]] = [(root, None, False)]
    while unvisited:
        schema, scope, is_property = unvisited.pop()
        inside: list[tuple[Subschema, _Way | None, bool]] = []
        match schema:
            case CombinedSchema():
                way = _Way(scope, schema.criterion.lower())
                members = sorted(schema.members, key=_rank)
                inside += ((member, _Way(way, str(index)), False) for index, member in enumerate(members))
            case ArraySchema(items=Subschema() as items):
                inside.append((items, _Way(scope, "array"), False))
            case ObjectSchema():
                way = _Way(scope, "object")
                if not is_property:
                    note(schema, way, "sr_record")
                for name, value in schema.properties.items():
                    note(value, _Way(way, name), "sr_field")
                    inside.append((value, _Way(way, name), True))
                inside += _defined(schema, way, load)
            case ConditionalSchema():
                way = _Way(scope, "conditional")
                branches = {"if": schema.condition, "then": schema.then, "else": schema.otherwise}
                inside += ((branch, _Way(way, name), False) for name, branch in branches.items() if branch)
            case NotSchema():
                inside.append((schema.schema, _Way(scope, "not"), False))
        unvisited.extend(reversed(inside))
    return found


class _Way(NamedTuple):
    outer: "_Way | None"
    word: str


def _path(way: _Way) -> str:
    """The name of a place; "" if it is too long."""
    words, length = [], 0
    outer: _Way | None = way
    while outer is not None:
        words.append(outer.word)
        length += len(outer.word) + 1
        outer = outer.outer
    return ".".join(reversed(words)) if length <= _PATH_LENGTH_MAX else ""


def _defined(schema: Subschema, way: _Way, load: Load) -> Iterator[tuple[Subschema, _Way | None, bool]]:
    for keyword in _DEFINITIONS:
        definitions = schema.other.get(keyword)
        if isinstance(definitions, dict):
            for name, value in definitions.items():
                try:
                    yield load(value), _Way(_Way(way, keyword), name), False
                except InvalidSchemaError:
                    continue  # a definition that no reference names need not be valid


def _tags(schema: Subschema) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_texts(schema.other.get(_TAGS))))


def _texts(tags: Any) -> list[str]:
    """What a tag is that is not a string is not defined: its JSON is taken."""
    values = tags if isinstance(tags, list) else []
    return [value if isinstance(value, str) else write_json(value) for value in values]


def _rank(schema: Subschema) -> tuple[Any, ...]:
    kind = len(_KINDS) if isinstance(schema, AnythingSchema) and schema.literal else _KINDS.index(type(schema))
    default = "" if schema.default is ABSENT else write_json(schema.default)
    return kind, schema.title or "", schema.description or "", default, *_rank_inside(schema)


def _rank_inside(schema: Subschema) -> Iterator[Any]:
    match schema:
        case ConstSchema():
            yield write_json(schema.value)
        case EnumSchema():
            yield len(schema.values)
            yield sorted(map(write_json, schema.values))
        case CombinedSchema():
            yield schema.criterion.lower()
            yield len(schema.members)
        case ObjectSchema():
            yield len(schema.properties)
            yield sorted(schema.properties)
            yield len(schema.required)
            yield sorted(schema.required)


def edit_tags(document: Any, add: Tags, remove: Tags, load: Load) -> None:
    """Adds tags to a document and then removes others, in place. Raises `InvalidSchemaError`."""
    for entity in {**add, **remove}:
        place = _find(document, entity, load)
        if not isinstance(place, dict):
            raise InvalidSchemaError(f"the schema has no place {entity.entity_path!r} that can carry tags")
        tags = dict.fromkeys([*_texts(place.get(_TAGS)), *add.get(entity, ())])
        kept = [tag for tag in tags if tag not in remove.get(entity, ())]
        if kept:
            place[_TAGS] = kept
        else:
            place.pop(_TAGS, None)


def _find(place: Any, entity: SchemaEntity, load: Load) -> Any:
    words = entity.entity_path.split(".")
    while words and isinstance(place, dict):
        match words.pop(0):
            case "object":
                if not words:
                    return place if entity.entity_type == "sr_record" else None
                container = words.pop(0) if words[0] in _DEFINITIONS else "properties"
                place = _named(place.get(container), words)
                if not words:
                    return place
            case "array":
                place = place.get("items")
            case "not":
                place = place.get("not")
            case "conditional":
                place = place.get(words.pop(0)) if words else None
            case "anyof" | "allof" | "oneof" as criterion if words:
                place = _member(place, criterion, words.pop(0), load)
            case _:
                return None
    return None


def _named(container: Any, words: list[str]) -> Any:
    """The value by a name that may have dots itself: the shortest one that is there."""
    name = ""
    while words and isinstance(container, dict):
        name = f"{name}.{words.pop(0)}" if name else words.pop(0)
        if name in container:
            return container[name]
    return None


def _member(place: Mapping[str, Any], criterion: str, index: str, load: Load) -> Any:
    """A member; the schema itself if `anyOf` or `allOf` is not written but implied, as by several types."""
    members = place.get(criterion.replace("of", "Of"))
    if not isinstance(members, list):
        return None if criterion == "oneof" else place
    ranked = sorted(members, key=lambda member: _rank(load(member)))
    return ranked[int(index)] if index.isdecimal() and len(index) < 10 and int(index) < len(ranked) else None
