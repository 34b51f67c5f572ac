"""Tags inside Avro schemas: the property `confluent:tags` of records and their fields."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ottla.registry.schemas.avro.avro_types import Array, AvroType, Field, Map, Named, Record, Union
from ottla.registry.schemas.avro.json_text import write_json
from ottla.registry.schemas.parsed_schema import InvalidSchemaError, SchemaEntity, Tags

_TAGS: Final = "confluent:tags"


def tags_of(root: AvroType) -> Tags:
    """The tags of all records and fields, in the order of the text."""
    found: dict[SchemaEntity, list[str]] = {}
    seen: set[str] = set()
    stack: list[AvroType | tuple[Record, Field]] = [root]
    while stack:
        part = stack.pop()
        if isinstance(part, tuple):
            record, field = part
            _add(found, SchemaEntity(f"{record.name.full}.{field.name}", "sr_field"), field.properties)
            stack.append(field.type)
        elif isinstance(part, Record):
            if part.name.full not in seen:
                seen.add(part.name.full)
                _add(found, SchemaEntity(part.name.full, "sr_record"), part.properties)
                stack.extend((part, each) for each in reversed(part.fields))
        else:
            stack.extend(reversed(list(_inner(part))))
    return found


def edit_tags(root: AvroType, known: Iterable[str], add: Tags, remove: Tags) -> None:
    """Changes the properties of a schema that nothing else uses. Types whose full names are `known` are not its own.

    Raises `InvalidSchemaError` for a place that the schema does not have.
    """
    for entity in dict.fromkeys([*add, *remove]):
        properties = _find(root, set(known), entity).properties
        tags = dict.fromkeys([*_read(properties), *add.get(entity, ())])
        kept = [each for each in tags if each not in remove.get(entity, ())]
        if kept:
            properties[_TAGS] = kept
        else:
            properties.pop(_TAGS, None)


def _find(root: AvroType, known: set[str], entity: SchemaEntity) -> Record | Field:
    """A record by its name, with or without its namespace, or a field of it; the outermost of several."""
    record_name, _, field_name = entity.entity_path.rpartition(".")
    if entity.entity_type == "sr_record":
        record_name, field_name = entity.entity_path, ""
    seen: set[int] = set()
    queue = deque([root])
    while queue:
        part = queue.popleft()
        if id(part) in seen or (isinstance(part, Named) and part.name.full in known):
            continue
        seen.add(id(part))
        if isinstance(part, Record) and record_name in (part.name.full, part.name.simple):
            if not field_name:
                return part
            if field_name in part.by_name:
                return part.by_name[field_name]
            continue
        queue.extend(_inner(part))
    raise InvalidSchemaError(f"the schema has no {'record' if not field_name else 'field'} {entity.entity_path}")


def _inner(part: AvroType) -> Iterator[AvroType]:
    match part:
        case Record():
            yield from (each.type for each in part.fields)
        case Union():
            yield from part.branches
        case Array():
            yield part.items
        case Map():
            yield part.values


def _add(found: dict[SchemaEntity, list[str]], entity: SchemaEntity, properties: dict[str, Any]) -> None:
    tags = _read(properties)
    if tags:
        found[entity] = tags


def _read(properties: dict[str, Any]) -> list[str]:
    tags = properties.get(_TAGS)
    if not isinstance(tags, list):
        return []
    return list(dict.fromkeys(each if isinstance(each, str) else write_json(each) for each in tags))
