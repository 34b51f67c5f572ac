"""Tags inside a schema: `tags` of the options `confluent.message_meta` and `confluent.field_meta`.

A place is named without the package: `Order`, `Order.Line`, `Order.Line.sku`. A oneof between message and field may be
named too.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ottla.registry.schemas.parsed_schema import InvalidSchemaError, SchemaEntity, Tags
from ottla.registry.schemas.protobuf.syntax_tree import (
    STRING,
    Enum,
    Field,
    File,
    Import,
    ListLiteral,
    Message,
    MessageLiteral,
    Option,
    OptionName,
    Scalar,
    Value,
)

_META_PATH: Final = "confluent/meta.proto"
_MESSAGE_META: Final = "confluent.message_meta"
_FIELD_META: Final = "confluent.field_meta"
_TAGS: Final = "tags"


def tags_of(file: File) -> Tags:
    """All tags of a file, by place."""
    found: dict[SchemaEntity, Sequence[str]] = {}

    def visit(message: Message, path: str) -> None:
        own = _tags(message.options, _MESSAGE_META)
        if own:
            found[SchemaEntity(path, "sr_record")] = own
        for field in message.fields:
            tags = _tags(field.options, _FIELD_META)
            if tags:
                found[SchemaEntity(f"{path}.{field.name}", "sr_field")] = tags
        for nested in message.types:
            if isinstance(nested, Message):
                visit(nested, f"{path}.{nested.name}")

    for type_ in file.types:
        if isinstance(type_, Message):
            visit(type_, type_.name)
    return found


def file_with_tags(file: File, add: Tags, remove: Tags) -> File:
    """The file after tags were added and then others removed. Raises `InvalidSchemaError` for an unknown place."""
    edit = _Edit(_normalized(add), _normalized(remove))
    types = tuple(edit.type(type_, "") for type_ in file.types)
    edit.check()
    imports = file.imports
    if add and all(import_.path != _META_PATH for import_ in imports):
        imports = (*imports, Import(_META_PATH))
    return replace(file, types=types, imports=imports)


def _normalized(tags: Tags) -> dict[tuple[str, str], Sequence[str]]:
    return {(entity.entity_path.lstrip("."), entity.entity_type): names for entity, names in tags.items()}


class _Edit:
    def __init__(
        self, add: Mapping[tuple[str, str], Sequence[str]], remove: Mapping[tuple[str, str], Sequence[str]]
    ) -> None:
        self._add = add
        self._remove = remove
        self._left = set(add) | set(remove)

    def check(self) -> None:
        """Every place was found."""
        for path, kind in sorted(self._left):
            raise InvalidSchemaError(f"the schema has no {'message' if kind == 'sr_record' else 'field'} {path}")

    def type(self, type_: Message | Enum, scope: str) -> Message | Enum:
        """A type with the tags of what is inside it."""
        if isinstance(type_, Enum):
            return type_
        path = f"{scope}.{type_.name}" if scope else type_.name
        return replace(
            type_,
            options=self._options(type_.options, _MESSAGE_META, (path, "sr_record")),
            fields=tuple(self._field(field, type_, path) for field in type_.fields),
            types=tuple(self.type(nested, path) for nested in type_.types),
        )

    def _field(self, field: Field, message: Message, path: str) -> Field:
        options = self._options(field.options, _FIELD_META, (f"{path}.{field.name}", "sr_field"))
        if field.oneof is not None:
            oneof = message.oneofs[field.oneof].name
            options = self._options(options, _FIELD_META, (f"{path}.{oneof}.{field.name}", "sr_field"))
        return field if options is field.options else replace(field, options=options)

    def _options(self, options: tuple[Option, ...], name: str, place: tuple[str, str]) -> tuple[Option, ...]:
        """The options with one literal for Confluent's, where the first of them was, or at the end."""
        if place not in self._left:
            return options
        self._left.discard(place)
        removed = self._remove.get(place, ())
        tags = dict.fromkeys((*_tags(options, name), *self._add.get(place, ())))
        kept = [tag for tag in tags if tag not in removed]
        entries = [entry for option in options if _is_meta(option, name) for entry in _entries(option)]
        entries = [entry for entry in entries if entry[0] != _TAGS]
        if kept:
            entries.append((_TAGS, ListLiteral(tuple(Scalar(STRING, tag) for tag in kept))))
        result: list[Option] = []
        is_written = not entries
        for option in options:
            if not _is_meta(option, name):
                result.append(option)
            elif not is_written:
                result.append(_meta(name, entries))
                is_written = True
        if not is_written:
            result.append(_meta(name, entries))
        return tuple(result)


def _meta(name: str, entries: Sequence[tuple[str, Value]]) -> Option:
    return Option((OptionName(name, is_extension=True),), MessageLiteral(tuple(entries)))


def _is_meta(option: Option, name: str) -> bool:
    return option.path[0].is_extension and option.path[0].name.lstrip(".") == name


def _entries(option: Option) -> Sequence[tuple[str, Value]]:
    """The fields that an option sets, whether as `(meta) = { tags: ... }` or as `(meta).tags = ...`."""
    value = option.value
    for part in reversed(option.path[1:]):
        value = MessageLiteral(((f"[{part.name}]" if part.is_extension else part.name, value),))
    return value.entries if isinstance(value, MessageLiteral) else ()


def _tags(options: Sequence[Option], name: str) -> list[str]:
    tags: list[str] = []
    for option in options:
        if not _is_meta(option, name):
            continue
        for key, value in _entries(option):
            if key == _TAGS:
                values = value.values if isinstance(value, ListLiteral) else (value,)
                tags += [item.text for item in values if isinstance(item, Scalar)]
    return list(dict.fromkeys(tags))
