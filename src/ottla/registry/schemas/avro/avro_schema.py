"""An Avro schema behind the interface of all schema languages."""

from collections.abc import Mapping, Sequence
from functools import cached_property

from ottla.registry.schemas.avro.avro_types import AvroType, Named, Record
from ottla.registry.schemas.avro.canonical_text import canonical_text
from ottla.registry.schemas.avro.compatibility import incompatibilities
from ottla.registry.schemas.avro.json_text import write_json
from ottla.registry.schemas.avro.normal_form import normal_json
from ottla.registry.schemas.avro.parsing import Parser, check_lenient_names
from ottla.registry.schemas.avro.tagging import edit_tags, tags_of
from ottla.registry.schemas.parsed_schema import Incompatibility, InvalidSchemaError, ParsedSchema, Tags


class AvroSchema(ParsedSchema):
    """A parsed Avro schema."""

    def __init__(self, root: AvroType, references: Mapping[str, str], *, known: Sequence[str], is_new: bool) -> None:
        """For `parse` and `parse_new`. `known` are the full names of the references' types."""
        self.root = root
        self._references = references
        self._known = known
        self._is_new = is_new
        self._text = canonical_text(root, known)

    @property
    def name(self) -> str | None:
        """The full name of a record, None for other types."""
        return self.root.name.full if isinstance(self.root, Record) else None

    @property
    def canonical_text(self) -> str:
        """The text with types of references by name only."""
        return self._text

    @cached_property
    def resolved_text(self) -> str:
        """The text with types of references written out."""
        return canonical_text(self.root, nesting_max=None)

    def normalized_text(self) -> str:
        """The text of the normal form. Raises `InvalidSchemaError` if names are ambiguous once they are written out."""
        text = write_json(normal_json(self.root, self._known))
        return _parsed(text, self._references, is_new=self._is_new).canonical_text

    def formatted(self, format: str) -> str:
        """ "resolved" has the types of references written out; every other format is the canonical text."""
        return self.resolved_text if format.strip().lower() == "resolved" else self.canonical_text

    def is_equivalent(self, other: ParsedSchema) -> bool:
        """Whether both have the same types, those of references included. The order of properties and aliases does not
        count.
        """
        return isinstance(other, AvroSchema) and self._sorted_text == other._sorted_text

    @cached_property
    def _sorted_text(self) -> str:
        return canonical_text(self.root, nesting_max=None, is_sorted=True)

    def has_top_level_field(self, name: str) -> bool:
        """Whether the schema is a record with a field of this name."""
        return isinstance(self.root, Record) and name in self.root.by_name

    def tags(self) -> Tags:
        """The tags of records and fields, those of references included."""
        return tags_of(self.root)

    def with_tags(self, add: Tags, remove: Tags) -> str:
        """The canonical text after tags were added and then others removed. Raises `InvalidSchemaError`."""
        # A copy of the types, which may be changed.
        fresh = _parsed(self._text, self._references, is_new=self._is_new)
        edit_tags(fresh.root, self._known, add, remove)
        return canonical_text(fresh.root, self._known)

    def incompatibilities(self, writer: ParsedSchema) -> Sequence[Incompatibility]:
        """Why this schema, as the reader's, cannot read what was written with `writer`."""
        if not isinstance(writer, AvroSchema):
            raise TypeError("the writer's schema is not an Avro schema")
        return incompatibilities(self.root, writer.root)


def parse(text: str, references: Mapping[str, str]) -> AvroSchema:
    """Parses a schema that is registered already. Raises `InvalidSchemaError`.

    Accepts names and defaults that older registries accepted, and that `parse_new` refuses.
    """
    schema = _parsed(text, references, is_new=False)
    check_lenient_names(schema.root)
    return schema


def parse_new(text: str, references: Mapping[str, str]) -> AvroSchema:
    """Parses a schema to be registered. Raises `InvalidSchemaError`.

    Names must follow the specification, and defaults must fit the types of their fields.
    """
    return _parsed(text, references, is_new=True)


def _parsed(text: str, references: Mapping[str, str], *, is_new: bool) -> AvroSchema:
    parser = Parser(is_new=is_new)
    known: list[str] = []
    for name, reference in references.items():
        try:
            node = parser.parse(reference)
        except InvalidSchemaError as error:
            raise InvalidSchemaError(f"reference {name}: {error}") from error
        if isinstance(node, Named):
            known.append(node.name.full)
    return AvroSchema(parser.parse(text), references, known=known, is_new=is_new)
