"""Registering schemas: POST /subjects/{subject}/versions and …/{version}/tags.

A registration finds the schema if the subject already has it, or else checks its compatibility and gives it the next
version and an id. The id is that of the same schema in another subject of the context, or the next one above all that
the context ever gave out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ottla.registry.schemas.parsed_schema import InvalidSchemaError, SchemaEntity, Tags
from ottla.registry.state.answers import RegisteredSchema
from ottla.registry.state.candidates import (
    Candidate,
    ParsedCandidate,
    find_same,
    parse_candidate,
    parse_stored,
    resolve_references,
)
from ottla.registry.state.compatibility_checks import incompatibilities
from ottla.registry.state.decision import Decision
from ottla.registry.state.errors import (
    INCOMPATIBLE_SCHEMA,
    INVALID_RULE_SET,
    STORE_ERROR,
    invalid_schema,
    invalid_subject,
    operation_not_permitted,
    registry_error,
)
from ottla.registry.state.lookups import find_exact, find_stored_version
from ottla.registry.state.merging import merged_with_defaults
from ottla.registry.state.metadata import (
    RuleSet,
    check_rule_set,
    merge_rule_sets,
    with_confluent_version,
    without_empty,
    without_rules,
)
from ottla.registry.state.qualified_subjects import (
    DEFAULT_CONTEXT,
    is_valid_subject,
    parse_subject,
    qualify_beside,
)
from ottla.registry.state.record_formats import TENANT, Config, ContextKey, ContextValue, Record, SchemaKey
from ottla.registry.state.registry_image import RegistryImage, StoredSchema
from ottla.registry.state.requests import SchemaRequest, SchemaTags, TagsRequest
from ottla.registry.state.scopes import (
    actual_subject,
    check_writable,
    config_in_scope,
    is_importing,
    mode_in_scope,
)

_ID_MAX: Final = 2**31 - 1


def find_registered(
    image: RegistryImage, subject: str, request: SchemaRequest, *, normalize: bool = False, format: str = ""
) -> RegisteredSchema | None:
    """The answer if the subject already has the schema, so that there is nothing to write; else None.

    Any instance may give it, not the leader alone. Raises a `RegistryError` if the request is invalid.
    """
    subject = _valid_subject(image, subject, request)
    config = config_in_scope(image, subject)
    if request.schema_tags_to_add or request.schema_tags_to_remove or request.propagate_schema_tags:
        return None
    if any((config.default_metadata, config.override_metadata, config.default_rule_set, config.override_rule_set)):
        return None
    version = request.version or 0
    found = find_exact(
        image,
        subject,
        Candidate.of(request),
        normalize=normalize or config.normalize is True,
        deleted=False,
        latest_only=version == -1,
        likely_new=True,
    )
    if found is None:
        return None
    id = _given_id(request)
    if version in (0, -1):
        return _answer_for_stored(image, found, format) if id in (None, found.id) else None
    if id != found.id:
        return None
    if found.version != version:
        older = image.version(subject, version)
        if older is None or (older.id, older.digest) != (found.id, found.digest):
            return None
        found = older
    return _answer_for_stored(image, found, format)


def register(
    image: RegistryImage,
    subject: str,
    request: SchemaRequest,
    *,
    normalize: bool = False,
    force: bool = False,
    format: str = "",
) -> Decision[RegisteredSchema]:
    """POST /subjects/{subject}/versions. With `force`, the schema need not be compatible."""
    registered = find_registered(image, subject, request, normalize=normalize, format=format)
    if registered is not None:
        return Decision((), registered)
    subject = _valid_subject(image, subject, request)
    candidate = _with_tags(image, subject, Candidate.of(request), request)
    return _register(image, subject, candidate, request, normalize=normalize, force=force, format=format)


def register_with_others(
    image: RegistryImage,
    subject: str,
    request: SchemaRequest,
    *,
    normalize: bool = False,
    given_ids: dict[bytes, int],
) -> Decision[RegisteredSchema]:
    """A registration that is part of a larger decision.

    `given_ids` has the new ids of the decision so far, by digest, all of one context; this one's is added.
    """
    registered = find_registered(image, subject, request, normalize=normalize)
    if registered is not None:
        return Decision((), registered)
    subject = _valid_subject(image, subject, request)
    candidate = _with_tags(image, subject, Candidate.of(request), request)
    return _register(image, subject, candidate, request, normalize=normalize, given_ids=given_ids)


def modify_tags(image: RegistryImage, subject: str, version: str, request: TagsRequest) -> Decision[RegisteredSchema]:
    """POST /subjects/{subject}/versions/{version}/tags: registers the version with other tags, metadata or rules."""
    if request.rule_set is not None and (request.rules_to_merge is not None or request.rules_to_remove is not None):
        message = "ruleSet must be omitted if rulesToMerge or rulesToRemove are given"
        raise registry_error(INVALID_RULE_SET, message)
    check_rule_set(request.rules_to_merge)
    check_rule_set(request.rule_set)
    if not is_valid_subject(subject):
        raise invalid_subject(subject)
    schema = find_stored_version(image, subject, version, deleted=False)
    new_version = request.new_version or 0
    add, remove = _tags(request.tags_to_add), _tags(request.tags_to_remove)
    candidate = replace(
        Candidate.of_stored(schema),
        metadata=with_confluent_version(request.metadata or schema.metadata, new_version),
        rule_set=_modified_rules(image, schema.subject, request),
    )
    if add or remove:
        candidate = replace(candidate, text=_tagged_text(image, schema.subject, candidate, add, remove))
    return _register(image, schema.subject, candidate, SchemaRequest(version=new_version))


def _register(
    image: RegistryImage,
    subject: str,
    candidate: Candidate,
    request: SchemaRequest,
    *,
    normalize: bool = False,
    force: bool = False,
    format: str = "",
    given_ids: dict[bytes, int] | None = None,
) -> Decision[RegisteredSchema]:
    _check_mode(image, subject, request)
    config, mode = config_in_scope(image, subject), mode_in_scope(image, subject)
    importing = is_importing(mode)
    versions = image.versions(subject)
    active = [schema for schema in versions if not schema.deleted]
    next_version = versions[-1].version + 1 if versions else 1
    wanted_version, given_id = request.version or 0, _given_id(request)
    normalize = (normalize or config.normalize is True) and not importing
    if not importing:
        previous = active[-1] if active else None
        candidate = _complete(image, subject, candidate, previous, request)
        if wanted_version == 0 and previous is not None:
            inheriting = merged_with_defaults(config, candidate, previous)
            same_as = parse_candidate(image, subject, inheriting, new=False, normalize=normalize)
            if find_same(image, same_as, [previous]) is not None:
                return Decision((), _answer_for_stored(image, previous, format))
        candidate = merged_with_defaults(config, candidate, previous, next_version, pinned=wanted_version != 0)
    elif candidate.is_empty:
        raise invalid_schema("Empty schema")
    candidate = replace(candidate, rule_set=without_empty(candidate.rule_set))
    parsed = parse_candidate(
        image,
        subject,
        candidate,
        new=given_id is None and _validates_new_schemas(image, config),
        normalize=normalize,
    )
    _check_references(image, subject, parsed.schema)
    id = given_id
    same = [schema for schema in _same_schemas(image, subject, parsed) if given_id in (None, schema.id)]
    if same:
        id = same[-1].id
    if wanted_version == 0:
        existing = [schema for schema in same if schema.subject == subject and not schema.deleted]
        found = max(existing, key=lambda schema: schema.version, default=None)
        if found is None:
            found = find_same(image, parsed, [schema for schema in reversed(active) if id in (None, schema.id)])
        if found is not None:
            return Decision((), _answer_for_stored(image, found, format))
    if not importing and not force:
        conflicts = incompatibilities(image, config, parsed, active)
        if conflicts:
            raise registry_error(
                INCOMPATIBLE_SCHEMA,
                f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details:'
                f" [{', '.join(conflicts)}]",
            )
    if wanted_version > 0 and wanted_version != next_version and not importing:
        raise invalid_schema(
            f"Version {wanted_version} is not one more than the previous version; it must be {next_version}"
        )
    version = wanted_version if wanted_version > 0 else next_version
    if id is None:
        given_ids = {} if given_ids is None else given_ids
        id = given_ids.setdefault(parsed.schema.digest, _next_id(image, subject, given_ids))
    else:
        _check_same_schema(image, subject, id, parsed.schema)
    records = [*_context_records(image, subject), *_replaced_records(image, versions, version, id)]
    records.append(_schema_record(subject, version, id, parsed.schema))
    answer = _answer(image, parsed.schema, subject, version, id, format)
    return Decision(image.keeping_highest_ids(records), answer)


def _valid_subject(image: RegistryImage, subject: str, request: SchemaRequest) -> str:
    check_rule_set(request.rule_set)
    if not is_valid_subject(subject):
        raise invalid_subject(subject)
    subject = actual_subject(image, subject)
    if not image.options.allow_empty_subject and parse_subject(subject).name in ("", "*"):
        raise invalid_subject(subject)
    return subject


def _given_id(request: SchemaRequest) -> int | None:
    return request.id if request.id is not None and request.id >= 0 else None


def _check_mode(image: RegistryImage, subject: str, request: SchemaRequest) -> None:
    check_writable(image, subject)
    mode = mode_in_scope(image, subject)
    context = parse_subject(subject).prefix
    if _given_id(request) is not None:
        if not is_importing(mode):
            raise operation_not_permitted(f"Subject {subject} in context {context} is not in import mode")
    elif mode != "READWRITE":
        raise operation_not_permitted(f"Subject {subject} in context {context} is not in read-write mode")


def _validates_new_schemas(image: RegistryImage, config: Config) -> bool:
    if config.validate_new_schemas is None:
        return image.options.validate_new_schemas
    return config.validate_new_schemas


def _complete(
    image: RegistryImage, subject: str, candidate: Candidate, previous: StoredSchema | None, request: SchemaRequest
) -> Candidate:
    """The candidate with text and tags that it takes over from the version before it."""
    if candidate.is_empty:
        if previous is None:
            raise invalid_schema("Empty schema")
        candidate = replace(candidate, type=previous.type, text=previous.text, references=previous.references)
    if request.propagate_schema_tags and previous is not None:
        tags = parse_stored(image, previous).tags()
        if tags:
            candidate = replace(candidate, text=_tagged_text(image, subject, candidate, tags, {}))
    return candidate


def _check_references(image: RegistryImage, subject: str, candidate: Candidate) -> None:
    for reference in candidate.references:
        associations = image.associations_of_subject(qualify_beside(subject, reference.subject))
        if any(association.value.lifecycle == "STRONG" for association in associations):
            raise operation_not_permitted(
                f"Subject '{reference.subject}' has a strong association and cannot be referenced"
            )


def _same_schemas(image: RegistryImage, subject: str, parsed: ParsedCandidate) -> list[StoredSchema]:
    """The versions of this schema in the context; the one written last stands last."""
    found = image.with_digest(parse_subject(subject).context, parsed.schema.digest)
    return [schema for schema in found if schema.type == parsed.schema.type]


def _next_id(image: RegistryImage, subject: str, given_ids: Mapping[bytes, int]) -> int:
    context = parse_subject(subject).context
    id = max(image.highest_id(context), *given_ids.values(), 0) + 1
    if id > _ID_MAX:
        raise registry_error(STORE_ERROR, f"Context {context} has no ids left: {_ID_MAX} was given out")
    return id


def _check_same_schema(image: RegistryImage, subject: str, id: int, candidate: Candidate) -> None:
    """Raises a `RegistryError` (42205) if the id already stands for another schema."""
    context = parse_subject(subject)
    schema = next(image.with_id(context.context, id), None)
    if schema is not None and Candidate.of_stored(schema) != candidate:
        message = f"Overwrite new schema with id {id} in context {context.prefix} is not permitted."
        raise operation_not_permitted(message)


def _context_records(image: RegistryImage, subject: str) -> list[Record]:
    context = parse_subject(subject).context
    if context == DEFAULT_CONTEXT or context in image.contexts:
        return []
    return [Record(ContextKey(context), ContextValue(TENANT, context))]


def _replaced_records(image: RegistryImage, versions: Sequence[StoredSchema], version: int, id: int) -> list[Record]:
    """Tombstones of soft-deleted versions of the same schema: the new version replaces them unless others need them."""
    return [
        Record(schema.key, None)
        for schema in versions
        if schema.deleted and schema.id == id and schema.version < version and not image.referrers(schema.key)
    ]


def _schema_record(subject: str, version: int, id: int, candidate: Candidate) -> Record:
    schema = StoredSchema(
        subject=subject,
        version=version,
        id=id,
        type=candidate.type,
        text=candidate.text,
        references=candidate.references,
        metadata=candidate.metadata,
        rule_set=candidate.rule_set,
        digest=b"",
        timestamp=0,
    )
    return Record(SchemaKey(subject, version), schema.to_value())


def _with_tags(image: RegistryImage, subject: str, candidate: Candidate, request: SchemaRequest) -> Candidate:
    add, remove = _tags(request.schema_tags_to_add), _tags(request.schema_tags_to_remove)
    if not add and not remove:
        return candidate
    return replace(candidate, text=_tagged_text(image, subject, candidate, add, remove))


def _tags(tags: list[SchemaTags] | None) -> Tags:
    found: dict[SchemaEntity, list[str]] = {}
    for item in tags or ():
        found.setdefault(item.schema_entity, []).extend(item.tags)
    return found


def _tagged_text(image: RegistryImage, subject: str, candidate: Candidate, add: Tags, remove: Tags) -> str:
    _, texts = resolve_references(image, subject, candidate.references, deleted=True)
    try:
        return image.schemas.parse(candidate.type, candidate.text, texts).with_tags(add, remove)
    except InvalidSchemaError as error:
        raise invalid_schema(str(error)) from error


def _modified_rules(image: RegistryImage, subject: str, request: TagsRequest) -> RuleSet | None:
    if request.rules_to_merge is None and request.rules_to_remove is None:
        return request.rule_set
    before = image.version(subject, request.new_version - 1 if request.new_version else -1)
    rules = merge_rule_sets(before.rule_set if before is not None else None, request.rules_to_merge)
    if rules is not None and request.rules_to_remove:
        rules = without_rules(rules, request.rules_to_remove)
    return rules


def _answer_for_stored(image: RegistryImage, schema: StoredSchema, format: str) -> RegisteredSchema:
    return _answer(image, Candidate.of_stored(schema), schema.subject, schema.version, schema.id, format)


def _answer(
    image: RegistryImage, candidate: Candidate, subject: str, version: int, id: int, format: str
) -> RegisteredSchema:
    text = candidate.text
    if format.strip():
        _, texts = resolve_references(image, subject, candidate.references, deleted=True)
        try:
            text = image.schemas.parse(candidate.type, text, texts).formatted(format)
        except InvalidSchemaError as error:
            raise invalid_schema(str(error)) from error
    return RegisteredSchema(
        id=id,
        version=version,
        guid=candidate.guid,
        schema_type=candidate.type,
        references=list(candidate.references) or None,
        metadata=candidate.metadata,
        rule_set=candidate.rule_set,
        schema=text,
    )
