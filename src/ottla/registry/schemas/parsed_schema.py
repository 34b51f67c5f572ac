"""What every schema language offers: a parsed schema, its texts, and whether it can read what another one wrote."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct


class InvalidSchemaError(ValueError):
    """The text is not a valid schema of its language. The message says what is wrong and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incompatibility:
    """One reason why a reader's schema cannot read what was written with a writer's schema."""

    kind: str
    """The name of the rule, as the official checker names it, such as READER_FIELD_MISSING_DEFAULT_VALUE."""
    path: str
    """The place in the schema, as the official checker writes it, such as /fields/2."""
    message: str
    """What breaks, in a sentence."""


class SchemaEntity(Struct, frozen=True, rename="camel"):
    """A place in a schema that can carry tags: a record or one of its fields."""

    entity_path: str
    entity_type: Literal["sr_record", "sr_field"]


Tags = Mapping[SchemaEntity, Sequence[str]]
"""Tags by place."""


class ParsedSchema(ABC):
    """A valid schema with its references resolved. Immutable."""

    @property
    @abstractmethod
    def canonical_text(self) -> str:
        """The text that the registry stores and returns: as registered, in the language's canonical layout."""

    @abstractmethod
    def normalized_text(self) -> str:
        """The text for `normalize=true`: equal for schemas that differ only in layout, order or spelling of names."""

    @abstractmethod
    def formatted(self, format: str) -> str:
        """The text in one of the language's formats (the query parameter `format`).

        A format that the language does not have is the canonical text: clients may know newer ones.
        """

    @abstractmethod
    def incompatibilities(self, writer: "ParsedSchema") -> Sequence[Incompatibility]:
        """Why this schema, as the reader's, cannot read what was written with `writer`. Empty if it can.

        `writer` is of the same language. Takes bounded time for any pair of schemas.
        """

    def lenient_incompatibilities(self, writer: "ParsedSchema") -> Sequence[Incompatibility]:
        """As `incompatibilities`, for the compatibility policy LENIENT, which some languages tell apart."""
        return self.incompatibilities(writer)

    def is_equivalent(self, other: "ParsedSchema") -> bool:
        """Whether both are the same schema. `other` is of the same language; references may be resolved differently."""
        return self.canonical_text == other.canonical_text

    def has_top_level_field(self, name: str) -> bool:
        """Whether the outermost record has a field of this name."""
        return False

    def tags(self) -> Tags:
        """The tags inside the schema (`confluent:tags`), by place."""
        return {}

    def with_tags(self, add: Tags, remove: Tags) -> str:
        """The canonical text after tags were added and then others removed.

        Raises `InvalidSchemaError` for a place that the schema does not have, or if the language cannot edit tags.
        """
        raise InvalidSchemaError("tags inside schemas of this type cannot be edited")


Parse = Callable[[str, Mapping[str, str]], ParsedSchema]
"""Parses a text with the texts of its references, by reference name: each comes after those that it uses itself.

Raises `InvalidSchemaError`; takes bounded time and memory for any text.
"""


@dataclass(frozen=True, slots=True)
class Language:
    """How the texts of a language are parsed."""

    parse: Parse
    """For schemas that are registered already: accepts all that a registry ever accepted."""
    parse_new: Parse
    """For schemas to be registered; may be stricter."""
