"""What differs between two schemas: fields, symbols and properties where the language is known, lines always. Pure.

Avro records and JSON Schemas are compared as JSON, with the elements of named lists (fields, symbols, branches of a
union) matched by name instead of by place. Protobuf files are compared by message, field and enum value.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final, Literal

from ottla.operations.schemas.readable_schemas import readable
from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.schemas.protobuf.parsing import parse_file
from ottla.registry.schemas.protobuf.syntax_tree import Enum, Field, File, Message
from ottla.registry.schemas.schema import AVRO, JSON, PROTOBUF

ChangeKind = Literal["added", "removed", "changed"]
_SHOWN_LENGTH_MAX: Final = 200
_CHANGES_MAX: Final = 500
_DEPTH_MAX: Final = 100
_CONTEXT_LINES: Final = 3
_LINES_MAX: Final = 4000
"""Longer texts are compared by line only up to here: the comparison takes quadratic time."""
_NAMELESS: Final = ("array", "map")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference. `before` is None for what was added, `after` for what was removed."""

    kind: ChangeKind
    path: str
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """A line of a comparison. `sign` is "+", "-", " ", or "…" for lines that are left out."""

    sign: Literal["+", "-", " ", "…"]
    old: int | None
    new: int | None
    """Line numbers, counted from 1."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDiff:
    """How one schema becomes another."""

    changes: tuple[Change, ...] | None
    """None if the schemas could not be compared by their structure: only lines are known then."""
    lines: tuple[DiffLine, ...]
    """Empty if the texts are equal."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs that a reader could see."""
        return not self.lines and not self.changes


def compare(old_type: str, old_text: str, new_type: str, new_text: str) -> SchemaDiff:
    """The differences between two schemas; only lines if they are of different languages."""
    lines = tuple(_lines(readable(old_type, old_text), readable(new_type, new_text)))
    if old_type != new_type:
        return SchemaDiff(changes=None, lines=lines)
    try:
        changes = tuple(_changes(old_type, old_text, new_text))[:_CHANGES_MAX]
    except (ValueError, RecursionError):
        return SchemaDiff(changes=None, lines=lines)
    return SchemaDiff(changes=changes, lines=lines)


def record_names(schema_type: str, text: str) -> list[str]:
    """The full names of the records that a schema describes, as subjects are named after them; none if it has none."""
    try:
        if schema_type == PROTOBUF:
            file = parse_file(text)
            return list(_message_names(file.types, f"{file.package}." if file.package else ""))
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(found, dict):
        return []
    name = found.get("title" if schema_type == JSON else "name")
    if not isinstance(name, str) or not name:
        return []
    space = found.get("namespace")
    is_qualified = schema_type == JSON or "." in name or not isinstance(space, str) or not space
    return [name if is_qualified else f"{space}.{name}"]


def _message_names(types: tuple[Message | Enum, ...], prefix: str) -> Iterator[str]:
    for each in types:
        if isinstance(each, Message):
            yield prefix + each.name
            yield from _message_names(each.types, f"{prefix}{each.name}.")


def _changes(schema_type: str, old: str, new: str) -> Iterator[Change]:
    if schema_type == PROTOBUF:
        try:
            yield from _mapping_changes(_protobuf_facts(parse_file(old)), _protobuf_facts(parse_file(new)))
        except InvalidSchemaError as error:
            raise ValueError(str(error)) from error
    elif schema_type in (AVRO, JSON):
        names = _avro_name if schema_type == AVRO else _no_name
        yield from _value_changes(json.loads(old), json.loads(new), "", names, 0)
    else:
        raise ValueError(f"schemas of type {schema_type} are not understood")


def _value_changes(old: Any, new: Any, path: str, name_of: Any, depth: int) -> Iterator[Change]:
    if depth > _DEPTH_MAX:
        raise ValueError("the schemas are nested too deeply")
    if isinstance(old, dict) and isinstance(new, dict):
        old_name, new_name = name_of(old, ""), name_of(new, "")
        if not path and old_name and old_name == new_name:
            path = old_name
        for key in [*old, *(each for each in new if each not in old)]:
            inner = key if not path else f"{path}.{key}" if key not in _SILENT else path
            if key not in new:
                yield Change(kind="removed", path=inner, before=_shown(old[key]))
            elif key not in old:
                yield Change(kind="added", path=inner, after=_shown(new[key]))
            else:
                yield from _value_changes(old[key], new[key], inner, name_of, depth + 1)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _list_changes(old, new, path, name_of, depth)
    elif old != new or type(old) is not type(new):
        yield Change(kind="changed", path=path or "schema", before=_shown(old), after=_shown(new))


_SILENT: Final = frozenset({"fields", "properties"})
"""Keys that say nothing in a path: `Order.amount` instead of `Order.fields.amount`."""


def _list_changes(old: list[Any], new: list[Any], path: str, name_of: Any, depth: int) -> Iterator[Change]:
    names = [[name_of(each, path) for each in values] for values in (old, new)]
    has_names = all(all(each is not None for each in some) and len(set(some)) == len(some) for some in names)
    if not has_names:
        if all(isinstance(each, str) for each in (*old, *new)):
            has_names, names = True, [list(map(str, old)), list(map(str, new))]
        elif old != new:
            yield Change(kind="changed", path=path, before=_shown(old), after=_shown(new))
            return
        else:
            return
    befores, afters = (dict(zip(some, values, strict=True)) for some, values in zip(names, (old, new), strict=True))
    if len(befores) != len(old) or len(afters) != len(new):
        if old != new:
            yield Change(kind="changed", path=path, before=_shown(old), after=_shown(new))
        return
    for name in [*befores, *(each for each in afters if each not in befores)]:
        at = f"{path}.{name}" if path else name
        if name not in afters:
            yield Change(kind="removed", path=at, before=_shown(befores[name]))
        elif name not in befores:
            yield Change(kind="added", path=at, after=_shown(afters[name]))
        elif isinstance(befores[name], dict | list):
            yield from _value_changes(befores[name], afters[name], at, name_of, depth + 1)
    kept = [[each for each in some if each in befores and each in afters] for some in names]
    if kept[0] != kept[1]:
        yield Change(kind="changed", path=f"{path} (order)", before=", ".join(kept[0]), after=", ".join(kept[1]))


def _avro_name(value: Any, path: str) -> str | None:
    """How an element of a list is known: a field or a named type by its name, a branch of a union by its type."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return None
    name = value.get("name")
    if isinstance(name, str):
        return name
    kind = value.get("type")
    return kind if isinstance(kind, str) and kind in _NAMELESS else None


def _no_name(value: Any, path: str) -> str | None:
    return None


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_LENGTH_MAX else f"{text[:_SHOWN_LENGTH_MAX]}…"


def _protobuf_facts(file: File) -> dict[str, str]:
    """Each message, field, oneof and enum value of a file, by its path."""
    facts = {"syntax": file.syntax, "package": file.package}
    facts |= {f"import {each.path}": each.kind or "import" for each in file.imports}
    for name, text in _type_facts(file.types, ""):
        facts[name] = text
    for service in file.services:
        for method in service.methods:
            facts[f"{service.name}.{method.name}"] = f"rpc ({method.request}) returns ({method.response})"
    return {name: text for name, text in facts.items() if text}


def _type_facts(types: tuple[Message | Enum, ...], prefix: str) -> Iterator[tuple[str, str]]:
    for each in types:
        at = f"{prefix}{each.name}"
        if isinstance(each, Enum):
            yield at, "enum"
            yield from ((f"{at}.{value.name}", f"= {value.number}") for value in each.values)
            continue
        yield at, "message"
        for field in each.fields:
            yield f"{at}.{field.name}", _field_text(field, each)
        yield from _type_facts(each.types, f"{at}.")


def _field_text(field: Field, message: Message) -> str:
    label = f"{field.label} " if field.label else ""
    oneof = "" if field.oneof is None else f" in oneof {message.oneofs[field.oneof].name}"
    return f"{label}{field.type_text} = {field.number}{oneof}"


def _mapping_changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    for path in [*old, *(each for each in new if each not in old)]:
        if path not in new:
            yield Change(kind="removed", path=path, before=old[path])
        elif path not in old:
            yield Change(kind="added", path=path, after=new[path])
        elif old[path] != new[path]:
            yield Change(kind="changed", path=path, before=old[path], after=new[path])


def _lines(old: str, new: str) -> Iterator[DiffLine]:
    befores, afters = old.splitlines()[:_LINES_MAX], new.splitlines()[:_LINES_MAX]
    if befores == afters:
        return
    is_first = True
    for group in SequenceMatcher(None, befores, afters, autojunk=False).get_grouped_opcodes(_CONTEXT_LINES):
        if not is_first or group[0][1] or group[0][3]:
            yield DiffLine(sign="…", old=None, new=None, text="")
        is_first = False
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                for number, text in enumerate(befores[old_start:old_end]):
                    yield DiffLine(sign=" ", old=old_start + number + 1, new=new_start + number + 1, text=text)
                continue
            for number, text in enumerate(befores[old_start:old_end], old_start + 1):
                yield DiffLine(sign="-", old=number, new=None, text=text)
            for number, text in enumerate(afters[new_start:new_end], new_start + 1):
                yield DiffLine(sign="+", old=None, new=number, text=text)
