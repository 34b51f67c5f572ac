"""A schema language for tests: a JSON object with the fields of a record, their types, and what it uses.

    {"fields": {"id": "int", "note?": "string"}, "use": ["address"], "tags": {"id": ["PII"]}}

A name with a question mark has a default. A reader cannot read a writer that lacks a field without a default, or that
has it with another type.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.registry.schemas.parsed_schema import (
    Incompatibility,
    InvalidSchemaError,
    Language,
    ParsedSchema,
    SchemaEntity,
    Tags,
)
from ottla.registry.state.answers import RegisteredSchema
from ottla.registry.state.decision import Decision
from ottla.registry.state.record_formats import Record, decode_record
from ottla.registry.state.registrations import register
from ottla.registry.state.registry_image import RegistryImage
from ottla.registry.state.requests import SchemaRequest


class TinySchema(ParsedSchema):
    """A parsed schema."""

    def __init__(self, content: dict[str, Any], references: Mapping[str, str]) -> None:
        self._content = content
        self.references = references

    @property
    def canonical_text(self) -> str:
        return json.dumps(self._content, separators=(",", ":"))

    def normalized_text(self) -> str:
        return json.dumps(self._content, separators=(",", ":"), sort_keys=True)

    def formatted(self, format: str) -> str:
        if format != "pretty":
            raise InvalidSchemaError(f"there is no format {format!r}")
        return json.dumps(self._content, indent=1)

    def incompatibilities(self, writer: ParsedSchema) -> Sequence[Incompatibility]:
        assert isinstance(writer, TinySchema)
        written = {name.rstrip("?"): type for name, type in writer._fields.items()}
        found = []
        for name, type in self._fields.items():
            if name.rstrip("?") not in written and not name.endswith("?"):
                found.append(Incompatibility(kind="MISSING", path=f"/{name}", message=f"field {name} has no default"))
            elif written.get(name.rstrip("?"), type) != type:
                found.append(Incompatibility(kind="TYPE", path=f"/{name}", message=f"field {name} has another type"))
        return found

    def lenient_incompatibilities(self, writer: ParsedSchema) -> Sequence[Incompatibility]:
        return [item for item in self.incompatibilities(writer) if item.kind != "TYPE"]

    def has_top_level_field(self, name: str) -> bool:
        return name in self._fields

    def tags(self) -> Tags:
        return {SchemaEntity(path, "sr_field"): names for path, names in self._content.get("tags", {}).items()}

    def with_tags(self, add: Tags, remove: Tags) -> str:
        tags = {entity.entity_path: list(names) for entity, names in self.tags().items()}
        for entity, names in add.items():
            if entity.entity_path not in self._fields:
                raise InvalidSchemaError(f"there is no field {entity.entity_path}")
            tags[entity.entity_path] = [*tags.get(entity.entity_path, []), *names]
        for entity, names in remove.items():
            tags[entity.entity_path] = [name for name in tags.get(entity.entity_path, []) if name not in names]
        return TinySchema({**self._content, "tags": tags}, self.references).canonical_text

    @property
    def _fields(self) -> dict[str, str]:
        fields: dict[str, str] = self._content["fields"]
        return fields


def parse(text: str, references: Mapping[str, str]) -> ParsedSchema:
    """Parses a text; all that it uses must be among the references."""
    try:
        content = json.loads(text)
        unknown = set(content.get("use", ())) - set(references)
        if unknown or not isinstance(content["fields"], dict):
            raise InvalidSchemaError(f"uses {unknown}")
    except (ValueError, KeyError, AttributeError) as error:
        raise InvalidSchemaError(f"not a schema: {error}") from error
    return TinySchema(content, references)


LANGUAGES: Mapping[str, Language] = {"AVRO": Language(parse, parse), "JSON": Language(parse, parse)}


def schema(*fields: str, type: str = "int", **more: Any) -> str:
    """The text of a schema with these fields."""
    return json.dumps({"fields": dict.fromkeys(fields, type), **more}, separators=(",", ":"))


class Registry:
    """An image, and the log that it was made from: decisions are written in bytes and read back."""

    def __init__(self) -> None:
        self.image = RegistryImage(LANGUAGES)
        self.log: list[tuple[bytes, bytes | None, int]] = []

    def commit(self, decision: Decision[Any]) -> Any:
        """Writes the records of a decision, applies them as they are read, and returns the answer."""
        for record in decision.records:
            self.write(record)
        return decision.answer

    def write(self, record: Record) -> None:
        key, value = record.encode()
        self.log.append((key, value, 1000 + len(self.log)))
        assert self.image.apply(decode_record(key, value), self.log[-1][2]) is None

    def register(self, subject: str, *fields: str, **request: Any) -> RegisteredSchema:
        """Registers a schema with these fields."""
        options = {name: request.pop(name) for name in ("normalize", "force", "format") if name in request}
        if fields:
            request["schema"] = schema(*fields)
        answer = self.commit(register(self.image, subject, SchemaRequest(**request), **options))
        assert isinstance(answer, RegisteredSchema)
        return answer

    def compacted(self) -> list[tuple[bytes, bytes | None, int]]:
        """The log after compaction: the last record of each key, without tombstones."""
        last = {key: position for position, (key, _, _) in enumerate(self.log)}
        return [item for position, item in enumerate(self.log) if last[item[0]] == position and item[1] is not None]

    def replayed(self, *, compact: bool = False) -> RegistryImage:
        """A new image, made from the log."""
        image = RegistryImage(LANGUAGES)
        for key, value, timestamp in self.compacted() if compact else self.log:
            assert image.apply(decode_record(key, value), timestamp) is None
        image.check()
        return image
