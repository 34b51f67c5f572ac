"""JSON Schema as a language of the registry."""

from collections.abc import Mapping
from typing import Any

from ottla.registry.schemas.json_schema.compatibility import incompatibilities
from ottla.registry.schemas.json_schema.documents import Document
from ottla.registry.schemas.json_schema.drafts import Draft, draft_of
from ottla.registry.schemas.json_schema.json_text import read_json, write_json
from ottla.registry.schemas.json_schema.loading import load, load_alone
from ottla.registry.schemas.json_schema.subschemas import Subschema
from ottla.registry.schemas.json_schema.tags import edit_tags, tags_of
from ottla.registry.schemas.parsed_schema import Incompatibility, InvalidSchemaError, ParsedSchema, Tags


class JsonSchema(ParsedSchema):
    """A valid JSON Schema with its references resolved."""

    def __init__(self, value: Any, text: str, references: Mapping[str, str], root: Subschema) -> None:
        self._value = value
        self._text = text
        self._references = dict(references)
        self._root = root

    @property
    def canonical_text(self) -> str:
        """The schema without white space, keys in their order."""
        return self._text

    def normalized_text(self) -> str:
        """The schema without white space, keys sorted."""
        return write_json(self._value, sort_keys=True)

    def formatted(self, format: str) -> str:
        """The canonical text: the language has no other format, and Confluent's registry ignores unknown ones."""
        return self._text

    def incompatibilities(self, writer: ParsedSchema) -> list[Incompatibility]:
        """Why this schema, as the reader's, cannot read what was written with `writer`."""
        return self._compared(writer, lenient=False)

    def lenient_incompatibilities(self, writer: ParsedSchema) -> list[Incompatibility]:
        """The same, where properties may be added to and removed from open and closed objects."""
        return self._compared(writer, lenient=True)

    def _compared(self, writer: ParsedSchema, *, lenient: bool) -> list[Incompatibility]:
        assert isinstance(writer, JsonSchema)
        if self._text == writer._text and self._references == writer._references:
            return []
        return incompatibilities(self._root, writer._root, lenient=lenient)

    def has_top_level_field(self, name: str) -> bool:
        """Whether `properties` of the root has the name."""
        properties = self._value.get("properties") if isinstance(self._value, dict) else None
        return isinstance(properties, dict) and name in properties

    def tags(self) -> Tags:
        """The tags inside the schema (`confluent:tags`), by place."""
        return tags_of(self._root, self._load)

    def with_tags(self, add: Tags, remove: Tags) -> str:
        """The canonical text after tags were added and then others removed. Raises `InvalidSchemaError`."""
        value = read_json(self._text)
        edit_tags(value, add, remove, self._load)
        return write_json(value)

    def _load(self, value: Any) -> Subschema:
        return load_alone(value, draft_of(self._value, otherwise=Draft.DRAFT_7))


def parse(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Parses a schema with the texts of its references by name. Raises `InvalidSchemaError`.

    Accepts a `$ref` to a schema that is not at hand: other registries fetch it from the network.
    """
    return _parsed(text, references, all_at_hand=False)


def parse_new(text: str, references: Mapping[str, str]) -> JsonSchema:
    """The same for a schema to be registered: what a `$ref` names must be in the schema or in its references."""
    return _parsed(text, references, all_at_hand=True)


def _parsed(text: str, references: Mapping[str, str], *, all_at_hand: bool) -> JsonSchema:
    value = read_json(text)
    if not isinstance(value, dict | bool):
        raise InvalidSchemaError("a schema must be an object or a boolean")
    canonical_text = write_json(value)
    try:
        canonical_text.encode()
    except UnicodeEncodeError:
        raise InvalidSchemaError("a string contains half of a surrogate pair, which is not valid Unicode") from None
    document = Document(value, uri="", draft=draft_of(value, otherwise=Draft.DRAFT_7))
    root = load(document, references, all_at_hand=all_at_hand)
    return JsonSchema(value, canonical_text, references, root)
