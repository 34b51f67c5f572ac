"""Reads: subjects, versions, schemas by id and GUID, contexts."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.schemas.schema import Reference
from ottla.registry.state.answers import ContextId, SchemaOfId, Settings, SubjectSchema, SubjectVersion
from ottla.registry.state.candidates import (
    Candidate,
    ParsedCandidate,
    find_same,
    parse_candidate,
    parse_stored,
)
from ottla.registry.state.errors import (
    INVALID_SCHEMA,
    INVALID_VERSION,
    RegistryError,
    invalid_schema,
    registry_error,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from ottla.registry.state.guid import digest_of
from ottla.registry.state.merging import merged_with_defaults
from ottla.registry.state.metadata import without_empty
from ottla.registry.state.qualified_subjects import (
    ALL_CONTEXTS,
    DEFAULT_CONTEXT,
    QualifiedSubject,
    context_of,
    parse_subject,
    qualify_beside,
)
from ottla.registry.state.record_formats import Config, ModeValue
from ottla.registry.state.registry_image import RegistryImage, StoredSchema
from ottla.registry.state.requests import SchemaRequest, SchemaTags
from ottla.registry.state.scopes import actual_subject, config_in_scope, is_importing, mode_in_scope

_VERSION_MAX: Final = 2**31 - 1

Item = TypeVar("Item")


def parse_version(version: str) -> int:
    """The number of a version in a path; -1 for `latest`. Raises a `RegistryError` (42202)."""
    text = version.strip()
    if text.lower() == "latest":
        return -1
    try:
        number = int(text) if text.isascii() and "_" not in text else 0
    except ValueError:
        number = 0
    if number == -1 or 1 <= number <= _VERSION_MAX:
        return number
    raise registry_error(
        INVALID_VERSION,
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the"
        ' string "latest"',
    )


# Subjects and versions


def list_subjects(
    image: RegistryImage,
    *,
    prefix: str = ALL_CONTEXTS,
    deleted: bool = False,
    deleted_only: bool = False,
    offset: int = 0,
    limit: int = -1,
) -> list[str]:
    """GET /subjects."""
    subjects: Iterable[str] = image.subjects_with_prefix(prefix)
    if deleted_only:
        subjects = (subject for subject in subjects if image.is_deleted(subject))
    elif not deleted:
        subjects = (subject for subject in subjects if not image.is_deleted(subject))
    return _page(list(subjects), offset, limit)


def list_versions(
    image: RegistryImage,
    subject: str,
    *,
    deleted: bool = False,
    deleted_only: bool = False,
    deleted_as_negative: bool = False,
    offset: int = 0,
    limit: int = -1,
) -> list[int]:
    """GET /subjects/{subject}/versions."""
    subject = actual_subject(image, subject)
    if not image.has_subjects(subject, deleted=deleted or deleted_only):
        raise subject_not_found(subject)
    versions = image.versions(subject)
    if deleted_as_negative:
        numbers = [-schema.version if schema.deleted else schema.version for schema in versions]
    elif deleted_only:
        numbers = [schema.version for schema in versions if schema.deleted]
    else:
        numbers = [schema.version for schema in versions if deleted or not schema.deleted]
    return _page(numbers, offset, limit)


def get_version(
    image: RegistryImage,
    subject: str,
    version: str,
    *,
    format: str = "",
    reference_format: str = "",
    deleted: bool = False,
    find_tags: Sequence[str] = (),
) -> SubjectSchema:
    """GET /subjects/{subject}/versions/{version}. A subject without a context is searched in all contexts."""
    schema = find_stored_version(image, subject, version, deleted=deleted)
    return subject_schema(
        schema,
        text=formatted(image, schema, format),
        references=_qualified(schema) if reference_format == "qualified" else schema.references,
        tags=_found_tags(image, schema, find_tags),
    )


def get_version_text(
    image: RegistryImage, subject: str, version: str, *, format: str = "", deleted: bool = False
) -> str:
    """GET /subjects/{subject}/versions/{version}/schema."""
    return formatted(image, find_stored_version(image, subject, version, deleted=deleted), format)


def referenced_by(
    image: RegistryImage, subject: str, version: str, *, deleted: bool = False, offset: int = 0, limit: int = -1
) -> list[int]:
    """GET /subjects/{subject}/versions/{version}/referencedby: the ids of schemas that refer to this version."""
    schema = find_stored_version(image, subject, version, deleted=True)
    referrers = image.referrers(schema.key)
    found = {(context_of(item.subject), item.id) for item in referrers if deleted or not item.deleted}
    return _page([id for _, id in sorted(found)], offset, _schemas_limit(image, limit))


def look_up(
    image: RegistryImage,
    subject: str,
    request: SchemaRequest,
    *,
    normalize: bool = False,
    format: str = "",
    deleted: bool = False,
) -> SubjectSchema:
    """POST /subjects/{subject}: which version of the subject is this schema?"""
    subject = actual_subject(image, subject)
    candidate = Candidate.of(request)
    found = find_schema(image, subject, candidate, normalize=normalize, deleted=deleted)
    if found is None and parse_subject(subject).context == DEFAULT_CONTEXT:
        found = _find_in_other_contexts(image, subject, candidate, normalize=normalize, deleted=deleted)
    if found is None:
        raise schema_not_found() if image.has_subjects(subject, deleted=deleted) else subject_not_found(subject)
    # Confluent's registry says here neither when a version was written nor whether it was deleted.
    return replace(subject_schema(found, text=formatted(image, found, format)), ts=None, deleted=None)


def latest_with_metadata(
    image: RegistryImage, subject: str, properties: Mapping[str, str], *, format: str = "", deleted: bool = False
) -> SubjectSchema:
    """GET /subjects/{subject}/metadata: the highest version that has all these properties."""
    subject = actual_subject(image, subject)
    for schema in reversed(image.versions(subject)):
        texts = schema.metadata.texts if schema.metadata is not None else None
        if (deleted or not schema.deleted) and texts is not None and properties.items() <= texts.items():
            return subject_schema(schema, text=formatted(image, schema, format))
    raise schema_not_found() if image.has_subjects(subject, deleted=deleted) else subject_not_found(subject)


def list_schemas(
    image: RegistryImage,
    *,
    prefix: str = "",
    aliases: bool = False,
    deleted: bool = False,
    latest_only: bool = False,
    rule_type: str = "",
    offset: int = 0,
    limit: int = -1,
) -> list[SubjectSchema]:
    """GET /schemas. With `aliases`, the subjects that aliases with this prefix stand for are listed too."""
    names = _aliases(image, prefix) if aliases else {}
    subjects = dict.fromkeys(image.subjects_with_prefix(prefix)) | dict.fromkeys(names)
    found: list[StoredSchema] = []
    for subject in sorted(subjects):
        versions = [schema for schema in image.versions(subject) if deleted or not schema.deleted]
        found += versions[-1:] if latest_only else versions
    if rule_type:
        found = [schema for schema in found if schema.rule_set is not None and schema.rule_set.has_type(rule_type)]
    page = _page(found, offset, _schemas_limit(image, limit))
    return [subject_schema(schema, aliases=names.get(schema.subject)) for schema in page]


# Ids and GUIDs


def get_schema(
    image: RegistryImage,
    id: int,
    *,
    subject: str = "",
    format: str = "",
    reference_format: str = "",
    find_tags: Sequence[str] = (),
    fetch_max_id: bool = False,
) -> SchemaOfId:
    """GET /schemas/ids/{id}. `subject` says in which context, or in which subject, the id is meant."""
    schema = _find_id(image, id, subject)
    if schema is None:
        raise schema_not_found(id)
    return _schema_of_id(
        schema,
        text=formatted(image, schema, format),
        references=_qualified(schema) if reference_format == "qualified" else schema.references,
        tags=_found_tags(image, schema, find_tags),
        max_id=max(1, image.highest_id(context_of(schema.subject))) if fetch_max_id else None,
    )


def get_schema_text(image: RegistryImage, id: int, *, subject: str = "", format: str = "") -> str:
    """GET /schemas/ids/{id}/schema."""
    schema = _find_id(image, id, subject)
    if schema is None:
        raise schema_not_found(id)
    return formatted(image, schema, format)


def subjects_of_id(
    image: RegistryImage, id: int, *, subject: str = "", deleted: bool = False, offset: int = 0, limit: int = -1
) -> list[str]:
    """GET /schemas/ids/{id}/subjects."""
    versions = versions_of_id(image, id, subject=subject, deleted=deleted)
    return _page(list(dict.fromkeys(version.subject for version in versions)), offset, limit)


def versions_of_id(
    image: RegistryImage, id: int, *, subject: str = "", deleted: bool = False, offset: int = 0, limit: int = -1
) -> list[SubjectVersion]:
    """GET /schemas/ids/{id}/versions."""
    schema = _find_id(image, id, subject)
    if schema is None:
        raise schema_not_found()
    versions = image.with_id(context_of(schema.subject), id)
    found = sorted((item.subject, item.version) for item in versions if deleted or not item.deleted)
    return _page([SubjectVersion(name, version) for name, version in found], offset, limit)


def get_schema_by_guid(image: RegistryImage, guid: str, *, format: str = "") -> SchemaOfId:
    """GET /schemas/guids/{guid}."""
    for schema in _with_guid(image, guid):
        answer = _schema_of_id(schema, text=formatted(image, schema, format), references=schema.references)
        return replace(answer, subject=None, version=None)
    raise schema_not_found(guid)


def ids_of_guid(image: RegistryImage, guid: str) -> list[ContextId]:
    """GET /schemas/guids/{guid}/ids."""
    return [ContextId(context_of(schema.subject), schema.id) for schema in _with_guid(image, guid)]


def all_settings(image: RegistryImage) -> Settings:
    """GET /ottla/settings: what an export needs and Confluent's routes do not list."""
    return Settings(
        configs=[replace(config, subject=subject) for subject, config in image.configs.items()],
        modes=[ModeValue(subject, mode) for subject, mode in image.modes.items()],
        highest_ids=[ContextId(context, id) for context, id in sorted(image.highest_ids.items())],
    )


def list_contexts(image: RegistryImage, *, prefix: str = "", offset: int = 0, limit: int = -1) -> list[str]:
    """GET /contexts."""
    contexts = [DEFAULT_CONTEXT, *image.contexts]
    return _page([context for context in contexts if context.startswith(prefix)], offset, limit)


# For decisions


def find_schema(
    image: RegistryImage, subject: str, candidate: Candidate, *, normalize: bool, deleted: bool
) -> StoredSchema | None:
    """The version of a subject that is this schema, with its own metadata and rules or with those it would inherit."""
    config = config_in_scope(image, subject)
    normalize = normalize or config.normalize is True
    found = find_exact(image, subject, candidate, normalize=normalize, deleted=deleted)
    latest = image.latest(subject)
    if found is not None or latest is None:
        return found
    merged = merged_with_defaults(config, candidate, latest)
    if merged == candidate:
        return None
    return find_exact(image, subject, merged, normalize=normalize, deleted=deleted)


def find_exact(
    image: RegistryImage,
    subject: str,
    candidate: Candidate,
    *,
    normalize: bool,
    deleted: bool,
    latest_only: bool = False,
    likely_new: bool = False,
) -> StoredSchema | None:
    """The version of a subject that is exactly this schema, with exactly these metadata and rules.

    A schema that is `likely_new` is parsed as a new one first, so that a registration need not parse it again.
    """
    if candidate.is_empty:
        return None
    candidate = dataclasses.replace(candidate, rule_set=without_empty(candidate.rule_set))
    normalize = normalize and not is_importing(mode_in_scope(image, subject))
    parsed = _parse_as_new(image, subject, candidate, normalize=normalize) if likely_new else None
    if parsed is None:
        parsed = parse_candidate(image, subject, candidate, new=False, normalize=normalize)
    if latest_only:
        latest = image.latest(subject)
        return find_same(image, parsed, [latest] if latest is not None else [])
    versions = [schema for schema in reversed(image.versions(subject)) if deleted or not schema.deleted]
    return _find_by_digest(image, subject, parsed, deleted=deleted) or find_same(image, parsed, versions)


def subject_schema(
    schema: StoredSchema,
    *,
    text: str | None = None,
    references: Sequence[Reference] | None = None,
    tags: list[SchemaTags] | None = None,
    aliases: list[str] | None = None,
) -> SubjectSchema:
    """The answer for a version."""
    return SubjectSchema(
        subject=schema.subject,
        version=schema.version,
        id=schema.id,
        guid=schema.guid,
        schema_type=schema.type,
        references=list(schema.references if references is None else references) or None,
        metadata=schema.metadata,
        schema=schema.text if text is None else text,
        schema_tags=tags,
        ts=schema.timestamp,
        deleted=schema.deleted,
        aliases=aliases,
        rule_set=schema.rule_set,
    )


def formatted(image: RegistryImage, schema: StoredSchema, format: str) -> str:
    """The text of a version in one of its language's formats; the canonical text for an unknown one."""
    if not format.strip():
        return schema.text
    try:
        return parse_stored(image, schema).formatted(format)
    except InvalidSchemaError as error:
        raise invalid_schema(str(error)) from error


def find_stored_version(image: RegistryImage, subject: str, version: str, *, deleted: bool) -> StoredSchema:
    """The version that a path means. Raises a `RegistryError` (40401, 40402 or 42202)."""
    number = parse_version(version)
    subject = actual_subject(image, subject)
    schema = image.version(subject, number, deleted=deleted)
    parts = parse_subject(subject)
    if schema is None and parts.context == DEFAULT_CONTEXT:
        found = (image.version(name, number, deleted=deleted) for name in _in_other_contexts(image, parts.name))
        schema = next((item for item in found if item is not None), None)
    if schema is None:
        raise version_not_found(number) if image.has_subjects(subject, deleted=deleted) else subject_not_found(subject)
    return schema


def _in_other_contexts(image: RegistryImage, name: str) -> Iterable[str]:
    return (str(QualifiedSubject(context, name)) for context in image.contexts)


def _find_in_other_contexts(
    image: RegistryImage, subject: str, candidate: Candidate, *, normalize: bool, deleted: bool
) -> StoredSchema | None:
    for name in _in_other_contexts(image, subject):
        try:
            found = find_schema(image, name, candidate, normalize=normalize, deleted=deleted)
        except RegistryError as error:
            if error.error_code != INVALID_SCHEMA:
                raise
            continue  # its references do not exist in this context
        if found is not None:
            return found
    return None


def _find_by_digest(
    image: RegistryImage, subject: str, parsed: ParsedCandidate, *, deleted: bool
) -> StoredSchema | None:
    """The highest version of the subject with this digest, one that is not deleted if possible."""
    same = image.with_digest(context_of(subject), parsed.schema.digest)
    versions = [
        schema
        for schema in same
        if schema.subject == subject and schema.type == parsed.schema.type and (deleted or not schema.deleted)
    ]
    return max(versions, key=lambda schema: (not schema.deleted, schema.version), default=None)


def _parse_as_new(
    image: RegistryImage, subject: str, candidate: Candidate, *, normalize: bool
) -> ParsedCandidate | None:
    try:
        return parse_candidate(image, subject, candidate, new=True, normalize=normalize)
    except RegistryError:
        return None


def _find_id(image: RegistryImage, id: int, subject: str) -> StoredSchema | None:
    """A version with this id: of the subject if it has one, else of its name in any context, else of its context."""
    subject = actual_subject(image, subject)
    parts = parse_subject(subject)
    if not parts.name:
        return _preferred(image.with_id(parts.context, id))
    found = _preferred(_of_subject(image, id, subject))
    if found is not None or parts.context != DEFAULT_CONTEXT:
        return found
    for name in _in_other_contexts(image, parts.name):
        found = _preferred(_of_subject(image, id, name))
        if found is not None:
            return found
    return _preferred(image.with_id(parts.context, id))


def _of_subject(image: RegistryImage, id: int, subject: str) -> Iterable[StoredSchema]:
    """The versions of a subject that have this id."""
    return (schema for schema in image.versions(subject) if schema.id == id)


def _preferred(versions: Iterable[StoredSchema]) -> StoredSchema | None:
    """The first version that is not deleted, else the first one."""
    first = None
    for schema in versions:
        if not schema.deleted:
            return schema
        first = first or schema
    return first


def _schema_of_id(
    schema: StoredSchema,
    *,
    text: str,
    references: Sequence[Reference],
    tags: list[SchemaTags] | None = None,
    max_id: int | None = None,
) -> SchemaOfId:
    return SchemaOfId(
        subject=schema.subject,
        version=schema.version,
        guid=schema.guid,
        schema_type=schema.type,
        schema=text,
        references=list(references) or None,
        metadata=schema.metadata,
        rule_set=schema.rule_set,
        schema_tags=tags,
        max_id=max_id,
        ts=schema.timestamp,
        deleted=schema.deleted,
    )


def _with_guid(image: RegistryImage, guid: str) -> Iterable[StoredSchema]:
    """One version with this GUID from each context that has it."""
    digest = digest_of(guid)
    if digest is None:
        return
    for context in (DEFAULT_CONTEXT, *image.contexts):
        yield from image.with_digest(context, digest)[-1:]


def _qualified(schema: StoredSchema) -> tuple[Reference, ...]:
    """The references with the context of the schema written out."""
    return tuple(
        Reference(item.name, qualify_beside(schema.subject, item.subject), item.version) for item in schema.references
    )


def _found_tags(image: RegistryImage, schema: StoredSchema, wanted: Sequence[str]) -> list[SchemaTags] | None:
    if not wanted:
        return None
    tags = parse_stored(image, schema).tags()
    return [
        SchemaTags(entity, list(names)) for entity, names in tags.items() if "*" in wanted or set(wanted) & set(names)
    ] or None


def _aliases(image: RegistryImage, prefix: str) -> dict[str, list[str]]:
    """The aliases that start with the prefix, by the subject that they stand for."""
    names: dict[str, list[str]] = {}
    for subject, config in sorted(_aliased(image.configs)):
        if _has_prefix(subject, prefix):
            names.setdefault(qualify_beside(subject, config), []).append(subject)
    return names


def _aliased(configs: Mapping[str | None, Config]) -> Iterable[tuple[str, str]]:
    return ((subject, config.alias) for subject, config in configs.items() if subject and config.alias)


def _has_prefix(subject: str, prefix: str) -> bool:
    if prefix.startswith(ALL_CONTEXTS):
        return parse_subject(subject).name.startswith(prefix[len(ALL_CONTEXTS) :])
    return subject.startswith(prefix) and (prefix.startswith(":.") or not subject.startswith(":."))


def _schemas_limit(image: RegistryImage, limit: int) -> int:
    most = image.options.schemas_limit
    return limit if 0 < limit <= most else most


def _page(items: Sequence[Item], offset: int, limit: int) -> list[Item]:
    start = max(offset, 0)
    return list(items[start : start + limit] if limit > 0 else items[start:])
