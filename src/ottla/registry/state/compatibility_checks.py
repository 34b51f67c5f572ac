"""Whether a schema is compatible with versions of a subject: for POST /compatibility/… and before a registration."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla.registry.schemas.parsed_schema import Incompatibility, ParsedSchema
from ottla.registry.state.answers import CompatibilityAnswer
from ottla.registry.state.candidates import (
    Candidate,
    ParsedCandidate,
    parse_candidate,
    parse_stored,
    resolve_references,
)
from ottla.registry.state.comparisons import SchemaText
from ottla.registry.state.errors import (
    INVALID_SCHEMA,
    SCHEMA_TOO_LARGE,
    RegistryError,
    invalid_schema,
    registry_error,
    version_not_found,
)
from ottla.registry.state.lookups import parse_version
from ottla.registry.state.metadata import Metadata
from ottla.registry.state.parsed_schemas import ParsedSchemas
from ottla.registry.state.record_formats import CompatibilityLevel, Config
from ottla.registry.state.registry_image import RegistryImage, StoredSchema
from ottla.registry.state.requests import SchemaRequest
from ottla.registry.state.scopes import actual_subject, config_in_scope, is_importing, mode_in_scope

_OLD_SCHEMA_LENGTH_MAX: Final = 10 * 1024
_COMPARED_CHARACTERS_MAX: Final = 8 * 1024 * 1024
"""The most text of versions that is compared in one request, besides what was compared before (`schema_checks.py`)."""

_READS_OLD: Final = ("BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
_READ_BY_OLD: Final = ("FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")


def check_against_subject(
    image: RegistryImage, subject: str, request: SchemaRequest, *, normalize: bool = False, verbose: bool = False
) -> CompatibilityAnswer:
    """Checks a schema against the versions that a registration would be checked against."""
    subject = actual_subject(image, subject)
    versions = [schema for schema in image.versions(subject) if not schema.deleted]
    return _answer(image, subject, request, versions, normalize=normalize, verbose=verbose)


def check_against_version(
    image: RegistryImage,
    subject: str,
    version: str,
    request: SchemaRequest,
    *,
    normalize: bool = False,
    verbose: bool = False,
) -> CompatibilityAnswer:
    """Checks a schema against one version, with the level of the subject. Without versions, `latest` is compatible."""
    subject = actual_subject(image, subject)
    number = parse_version(version)
    schema = image.version(subject, number)
    if schema is None and number != -1:
        raise version_not_found(number)
    return _answer(image, subject, request, [schema] if schema else [], normalize=normalize, verbose=verbose)


def incompatibilities(
    image: RegistryImage, config: Config, candidate: ParsedCandidate, versions: Sequence[StoredSchema]
) -> list[str]:
    """Why a schema must not follow these versions (ascending) under this config; empty if it may."""
    messages: list[str] = []
    validate_fields = config.validate_fields
    if validate_fields is None:
        validate_fields = image.options.validate_fields
    if validate_fields:
        messages += _reserved_field_conflicts(candidate, versions[-1] if versions else None)
    level = config.compatibility_level or image.options.compatibility_level
    chosen = compared_versions(config, level, candidate.schema, versions)
    messages += _level_conflicts(image, level, config.compatibility_policy == "LENIENT", candidate, chosen)
    if messages:
        messages.append(f"{{validateFields: '{str(validate_fields).lower()}', compatibility: '{level}'}}")
    return messages


def _answer(
    image: RegistryImage,
    subject: str,
    request: SchemaRequest,
    versions: Sequence[StoredSchema],
    *,
    normalize: bool,
    verbose: bool,
) -> CompatibilityAnswer:
    config = config_in_scope(image, subject)
    try:
        candidate = Candidate.of(request)
        if candidate.is_empty:
            raise invalid_schema("Empty schema")
        importing = is_importing(mode_in_scope(image, subject))
        new = image.options.validate_new_schemas if config.validate_new_schemas is None else config.validate_new_schemas
        normalize = (normalize or config.normalize is True) and not importing
        parsed = parse_candidate(image, subject, candidate, new=new, normalize=normalize)
        messages = incompatibilities(image, config, parsed, versions)
    except RegistryError as error:
        if not verbose or error.error_code != INVALID_SCHEMA:
            raise
        messages = [error.message]
    return CompatibilityAnswer(not messages, messages if verbose else None)


def _reserved_field_conflicts(candidate: ParsedCandidate, previous: StoredSchema | None) -> list[str]:
    reserved = (candidate.schema.metadata or Metadata()).reserved_fields
    before = (previous.metadata or Metadata()).reserved_fields if previous is not None else frozenset()
    removed = [
        f"The new schema has reserved field {name} removed from its metadata which is present in the old schema's"
        " metadata."
        for name in sorted(before - reserved)
    ]
    used = [
        f"The new schema has field that conflicts with the reserved field {name}."
        for name in sorted(reserved)
        if candidate.parsed.has_top_level_field(name)
    ]
    return removed + used


def _group(metadata: Metadata | None, name: str) -> str | None:
    return metadata.texts.get(name) if metadata is not None else None


def compared_versions(
    config: Config, level: CompatibilityLevel, candidate: Candidate, versions: Sequence[StoredSchema]
) -> Sequence[StoredSchema]:
    """Those of the versions (ascending) that a schema is compared with, the newest first."""
    if level == "NONE":
        return []
    if config.compatibility_group is not None:
        group = _group(candidate.metadata, config.compatibility_group)
        versions = [item for item in versions if _group(item.metadata, config.compatibility_group) == group]
    return versions[::-1] if level.endswith("_TRANSITIVE") else versions[-1:]


@dataclass(frozen=True, slots=True)
class Compared:
    """One side of a comparison; it is parsed only if the result is not known."""

    text: SchemaText
    fingerprint: bytes
    parse: Callable[[], ParsedSchema]

    @classmethod
    def of(cls, text: SchemaText, schemas: ParsedSchemas) -> "Compared":
        """A schema that is parsed as a registered one."""
        return cls(text, text.fingerprint, partial(schemas.parse, text.type, text.text, text.references))


def conflicts(
    schemas: ParsedSchemas, level: CompatibilityLevel, new: Compared, old: Compared, *, lenient: bool
) -> list[str]:
    """Why a schema must not follow another one. Raises a `RegistryError` (42201) if one of them is not valid."""

    def read(reader: Compared, writer: Compared) -> Sequence[Incompatibility]:
        return schemas.comparisons.find(
            reader.fingerprint,
            writer.fingerprint,
            lenient=lenient,
            compare=lambda: _reader(reader.parse(), lenient)(writer.parse()),
        )

    messages: list[str] = []
    if level in _READ_BY_OLD:
        messages += [_message(item, "old", "new") for item in read(old, new)]
    if level in _READS_OLD:
        messages += [_message(item, "new", "old") for item in read(new, old)]
    return messages


def _level_conflicts(
    image: RegistryImage,
    level: CompatibilityLevel,
    lenient: bool,
    candidate: ParsedCandidate,
    versions: Sequence[StoredSchema],
) -> list[str]:
    """The conflicts with the newest version that has any. The versions are descending."""
    text = SchemaText(candidate.schema.type, candidate.schema.text, candidate.references)
    new = Compared(text, text.fingerprint, lambda: candidate.parsed)
    characters = 0
    for version in versions:
        if version.type != candidate.schema.type:
            return ["Incompatible because of different schema type"]
        old = _stored(image, version)
        if not _is_compared(image.schemas, level, new, old, lenient=lenient):
            characters += len(version.text)
            if characters > _COMPARED_CHARACTERS_MAX:
                raise registry_error(
                    SCHEMA_TOO_LARGE,
                    f"The schema cannot be compared with all versions of subject '{version.subject}' at once: they"
                    f" have more than {_COMPARED_CHARACTERS_MAX} characters. Register it with POST"
                    " /subjects/…/versions, or use a compatibility level that is not transitive",
                )
        messages = conflicts(image.schemas, level, new, old, lenient=lenient)
        if messages:
            return [
                *messages,
                f"{{oldSchemaVersion: {version.version}}}",
                f"{{oldSchema: '{_shortened(version.text)}'}}",
            ]
    return []


def _stored(image: RegistryImage, version: StoredSchema) -> Compared:
    references: Mapping[str, str] = {}
    if version.references:
        # What cannot be resolved is reported when the version is parsed.
        with suppress(RegistryError):
            _, references = resolve_references(image, version.subject, version.references, deleted=True)
    text = SchemaText(version.type, version.text, references)
    return Compared(text, text.fingerprint, partial(parse_stored, image, version))


def _is_compared(
    schemas: ParsedSchemas, level: CompatibilityLevel, new: Compared, old: Compared, *, lenient: bool
) -> bool:
    known = schemas.comparisons.has
    if level in _READ_BY_OLD and not known(old.fingerprint, new.fingerprint, lenient=lenient):
        return False
    return level not in _READS_OLD or known(new.fingerprint, old.fingerprint, lenient=lenient)


def _reader(schema: ParsedSchema, lenient: bool) -> Callable[[ParsedSchema], Sequence[Incompatibility]]:
    return schema.lenient_incompatibilities if lenient else schema.incompatibilities


def _message(item: Incompatibility, reader: str, writer: str) -> str:
    return (
        f"{{errorType:'{item.kind}', description:'{item.message}', path:'{item.path}',"
        f" reader:'{reader} schema', writer:'{writer} schema'}}"
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _OLD_SCHEMA_LENGTH_MAX else text[:_OLD_SCHEMA_LENGTH_MAX] + "..."
