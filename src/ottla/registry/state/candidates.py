"""A schema that is about to be registered, looked up or checked: resolved, parsed, in canonical form."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla.registry.schemas.parsed_schema import InvalidSchemaError, ParsedSchema
from ottla.registry.schemas.schema import Reference
from ottla.registry.state.errors import RegistryError, invalid_schema
from ottla.registry.state.guid import guid_of, schema_digest
from ottla.registry.state.metadata import Metadata, RuleSet, without_confluent_version, without_empty
from ottla.registry.state.qualified_subjects import qualify_beside
from ottla.registry.state.registry_image import RegistryImage, StoredSchema
from ottla.registry.state.requests import SchemaRequest

REFERENCES_MAX: Final = 1000
"""The most references of a schema, those of its references included."""

_REFERENCED_CHARACTERS_MAX: Final = 16 * 1024 * 1024
"""The most text that a schema may refer to."""

_COMPARED_CHARACTERS_MAX: Final = 256 * 1024
"""The most text of earlier versions that is parsed to find out whether one of them is the same schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A schema as a request has it."""

    type: str
    text: str
    references: tuple[Reference, ...]
    metadata: Metadata | None
    rule_set: RuleSet | None

    @classmethod
    def of(cls, request: SchemaRequest) -> "Candidate":
        """The schema of a request."""
        return cls(
            type=request.type,
            text=request.schema or "",
            references=tuple(request.references or ()),
            metadata=request.metadata,
            rule_set=request.rule_set,
        )

    @classmethod
    def of_stored(cls, schema: StoredSchema) -> "Candidate":
        """The schema of a version that exists."""
        return cls(
            type=schema.type,
            text=schema.text,
            references=schema.references,
            metadata=schema.metadata,
            rule_set=schema.rule_set,
        )

    @property
    def is_empty(self) -> bool:
        """Whether the text is missing."""
        return not self.text.strip()

    @property
    def digest(self) -> bytes:
        """The 16 bytes of its GUID."""
        return schema_digest(self.text, self.references, self.metadata, self.rule_set)

    @property
    def guid(self) -> str:
        """Its GUID."""
        return guid_of(self.digest)


@dataclass(frozen=True, slots=True)
class ParsedCandidate:
    """A candidate in canonical form, with what its language says."""

    schema: Candidate
    parsed: ParsedSchema
    references: Mapping[str, str]
    """The texts of all references by name."""


def parse_candidate(
    image: RegistryImage, subject: str, candidate: Candidate, *, new: bool, normalize: bool
) -> ParsedCandidate:
    """Resolves, parses and canonicalizes.

    A `new` schema must not refer to soft-deleted versions. Raises a `RegistryError` (42201).
    """
    references, texts = resolve_references(image, subject, candidate.references, deleted=not new)
    parsed = image.schemas.parse(candidate.type, candidate.text, texts, new=new)
    text = parsed.canonical_text
    if normalize:
        text = _normalized_text(candidate, parsed)
        parsed = parsed if text == parsed.canonical_text else image.schemas.parse(candidate.type, text, texts, new=new)
        references = tuple(sorted(set(references), key=lambda reference: (reference.subject, reference.version)))
    return ParsedCandidate(replace(candidate, text=text, references=references), parsed, texts)


def _normalized_text(candidate: Candidate, parsed: ParsedSchema) -> str:
    try:
        return parsed.normalized_text()
    except InvalidSchemaError as error:
        raise invalid_schema(f"Invalid schema of type {candidate.type}, details: {error}") from error


def parse_stored(image: RegistryImage, schema: StoredSchema) -> ParsedSchema:
    """The parsed schema of a version that exists. Raises a `RegistryError` (42201) that names the version."""
    try:
        _, texts = resolve_references(image, schema.subject, schema.references, deleted=True)
        return image.schemas.parse(schema.type, schema.text, texts)
    except RegistryError as error:
        raise invalid_schema(
            f"Version {schema.version} of subject '{schema.subject}' cannot be parsed: {error.message}"
        ) from error


def resolve_references(
    image: RegistryImage, subject: str, references: Sequence[Reference], *, deleted: bool
) -> tuple[tuple[Reference, ...], Mapping[str, str]]:
    """The references with version -1 replaced by the latest one, and the texts by reference name.

    Each text comes after those that it uses itself. Raises a `RegistryError` (42201) if a version does not exist or if
    there are too many.
    """
    texts: dict[str, str] = {}
    visited: set[str] = set()
    characters = 0
    direct = tuple(
        Reference(item.name, item.subject, _referenced(image, subject, item, deleted=deleted).version)
        for item in references
    )
    # A stack instead of recursion: a chain may be as long as the limit. A stored schema on the stack is complete when
    # it comes up again: its own references have been resolved.
    pending: list[tuple[str, Reference] | tuple[str, StoredSchema]] = [(subject, item) for item in reversed(direct)]
    while pending:
        parent, item = pending.pop()
        if isinstance(item, StoredSchema):
            texts[parent] = item.text
            continue
        schema = _referenced(image, parent, item, deleted=deleted)
        if item.name in visited:
            continue
        visited.add(item.name)
        characters += len(schema.text)
        if len(visited) > REFERENCES_MAX or characters > _REFERENCED_CHARACTERS_MAX:
            raise invalid_schema(
                f"Too many references: at most {REFERENCES_MAX} schemas with {_REFERENCED_CHARACTERS_MAX} characters"
                " together may be referenced, directly and indirectly"
            )
        pending.append((item.name, schema))
        pending.extend((schema.subject, nested) for nested in reversed(schema.references))
    return direct, texts


def _referenced(image: RegistryImage, parent: str, reference: Reference, *, deleted: bool) -> StoredSchema:
    target = qualify_beside(parent, reference.subject)
    schema = image.version(target, reference.version, deleted=deleted)
    if schema is None:
        raise invalid_schema(
            f'Invalid schema, details: No schema reference found for subject "{target}" and version {reference.version}'
        )
    return schema


def find_same(
    image: RegistryImage, candidate: ParsedCandidate, versions: Iterable[StoredSchema]
) -> StoredSchema | None:
    """The first of the versions that already is this schema.

    Equal texts first; then texts that differ in ways which the language ignores, or that are equal once references are
    written out, as far as a limited amount of text can be parsed for it. Versions that cannot be parsed are not equal.
    """
    schema = candidate.schema
    alike = [version for version in versions if _is_alike(schema, version)]
    for version in alike:
        if (version.text, version.references) == (schema.text, schema.references):
            return version
    characters = 0
    for version in alike:
        characters += len(version.text)
        if characters > _COMPARED_CHARACTERS_MAX:
            break
        try:
            if candidate.parsed.is_equivalent(parse_stored(image, version)):
                return version
        except RegistryError:
            continue
    return None


def _is_alike(schema: Candidate, version: StoredSchema) -> bool:
    """Whether all but the text is equal. Without references, a schema may have those of the version written out."""
    if schema.references != version.references and (schema.references or not version.references):
        return False
    return (
        schema.type == version.type
        and schema.rule_set == without_empty(version.rule_set)
        and _same_metadata(schema, version)
    )


def _same_metadata(schema: Candidate, version: StoredSchema) -> bool:
    """Equal metadata; `confluent:version` may be missing on one side if it says nothing new."""
    ours, theirs = schema.metadata, version.metadata
    our_version = ours.confluent_version if ours is not None else None
    their_version = theirs.confluent_version if theirs is not None else None
    if our_version is None and their_version is not None and theirs is not None:
        return (ours or Metadata()) == without_confluent_version(theirs)
    if our_version is not None and their_version is None and ours is not None:
        return our_version == version.version and without_confluent_version(ours) == (theirs or Metadata())
    return ours == theirs
