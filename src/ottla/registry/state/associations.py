"""Associations of resources, such as topics, with subjects: GET, POST, PUT and DELETE /associations/….

A weak association says which subject a topic uses. A strong one owns its subject, which is then called
`:.{namespace}:{name}-{key or value}`: nothing else is associated with it or refers to it, and it may go with the topic.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla.registry.state.answers import (
    Association,
    AssociationAnswer,
    AssociationsAnswer,
    RegisteredSchema,
    SubjectSchema,
)
from ottla.registry.state.candidates import Candidate
from ottla.registry.state.compatibility_checks import check_against_subject
from ottla.registry.state.decision import Decision
from ottla.registry.state.deletions import records_of_final_deletion
from ottla.registry.state.errors import (
    ASSOCIATION_FOR_RESOURCE_EXISTS,
    ASSOCIATION_FOR_SUBJECT_EXISTS,
    ASSOCIATION_FROZEN,
    ASSOCIATION_NOT_FOUND,
    INCOMPATIBLE_SCHEMA,
    INVALID_ASSOCIATION,
    NO_ACTIVE_SUBJECT_VERSION,
    REFERENCE_EXISTS,
    STRONG_ASSOCIATION_FOR_SUBJECT_EXISTS,
    RegistryError,
    registry_error,
)
from ottla.registry.state.lookups import find_schema
from ottla.registry.state.qualified_subjects import is_valid_subject, normalize_context, qualify_beside
from ottla.registry.state.record_formats import TENANT, AssociationKey, AssociationValue, Lifecycle, Record
from ottla.registry.state.registrations import register_with_others
from ottla.registry.state.registry_image import RegistryImage, StoredAssociation
from ottla.registry.state.requests import AssociationInfo, AssociationRequest, SchemaRequest
from ottla.registry.state.scopes import actual_subject, check_writable, mode_in_scope

TOPIC: Final = "topic"
_TYPES: Final = ("key", "value")
_ANY: Final = "-"
_NAME_LENGTH_MAX: Final = 256


# Reads


def associations_of_subject(
    image: RegistryImage,
    subject: str,
    *,
    resource_type: str = "",
    association_types: Sequence[str] = (),
    lifecycle: str | None = None,
    offset: int = 0,
    limit: int = -1,
) -> list[Association]:
    """GET /associations/subjects/{subject}."""
    found = image.associations_of_subject(actual_subject(image, subject))
    return _page(image, _matching(found, resource_type or TOPIC, association_types, lifecycle), offset, limit)


def associations_of_resource(
    image: RegistryImage,
    resource_id: str,
    *,
    resource_type: str = "",
    association_types: Sequence[str] = (),
    lifecycle: str | None = None,
    offset: int = 0,
    limit: int = -1,
) -> list[Association]:
    """GET /associations/resources/{resourceId}."""
    found = image.associations_of_resource(resource_id)
    return _page(image, _matching(found, resource_type or TOPIC, association_types, lifecycle), offset, limit)


def associations_of_name(
    image: RegistryImage,
    namespace: str,
    name: str,
    *,
    resource_type: str = "",
    association_types: Sequence[str] = (),
    lifecycle: str | None = None,
    offset: int = 0,
    limit: int = -1,
) -> list[Association]:
    """GET /associations/resources/{resourceNamespace}/{resourceName}; `-` stands for any of either."""
    found = _named(image, namespace, name)
    return _page(image, _matching(found, resource_type or TOPIC, association_types, lifecycle), offset, limit)


# Decisions


def create_associations(
    image: RegistryImage,
    request: AssociationRequest,
    *,
    context: str = "",
    dry_run: bool = False,
    new_guid: Callable[[], str],
) -> Decision[AssociationsAnswer]:
    """POST /associations: for a topic that is about to be created. Existing equal associations are left alone."""
    return _put(image, request, context, create=True, dry_run=dry_run, new_guid=new_guid)


def update_associations(
    image: RegistryImage,
    resource_id: str,
    request: AssociationRequest,
    *,
    context: str = "",
    dry_run: bool = False,
    new_guid: Callable[[], str],
) -> Decision[AssociationsAnswer]:
    """PUT /associations/resources/{resourceId}: for a topic that exists."""
    if request.resource_id not in (None, resource_id):
        raise _invalid("resourceId", "Resource ID in the path does not match the one in the request body")
    request = AssociationRequest(
        request.resource_name, request.resource_namespace, resource_id, request.resource_type, request.associations
    )
    return _put(image, request, context, create=False, dry_run=dry_run, new_guid=new_guid)


def delete_associations(
    image: RegistryImage,
    resource_id: str,
    *,
    resource_type: str = "",
    association_types: Sequence[str] = (),
    cascade: bool = False,
    dry_run: bool = False,
) -> Decision[None]:
    """DELETE /associations/resources/{resourceId}. With `cascade`, subjects with a strong association go too."""
    found = _matching(image.associations_of_resource(resource_id), resource_type or TOPIC, association_types, None)
    if not found:
        raise registry_error(ASSOCIATION_NOT_FOUND, f"Association for '{resource_id}' not found.")
    for item in found:
        check_writable(image, item.value.subject)
        if item.value.frozen and not cascade:
            raise _frozen(item)
    records: list[Record] = []
    for item in found:
        records.append(Record(_key(item.value), None))
        subject = item.value.subject or ""
        if cascade and item.value.lifecycle == "STRONG" and mode_in_scope(image, subject) != "IMPORT":
            records += records_of_final_deletion(image, subject)
    return Decision(() if dry_run else image.keeping_highest_ids(records), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """One association of a request, with what it implies."""

    type: str
    subject: str
    lifecycle: Lifecycle
    frozen: bool
    schema: SchemaRequest | None
    normalize: bool
    existing: StoredAssociation | None
    unchanged: bool = False


def _put(
    image: RegistryImage,
    request: AssociationRequest,
    context: str,
    *,
    create: bool,
    dry_run: bool,
    new_guid: Callable[[], str],
) -> Decision[AssociationsAnswer]:
    infos = _checked_infos(request, create=create, dry_run=dry_run)
    existing = {item.value.association_type: item for item in image.associations_of_resource(request.resource_id or "")}
    wishes = [
        _wish(image, request, info, context, existing.get(info.association_type), create=create) for info in infos
    ]
    _check_one_lifecycle(existing, wishes)
    for wish in wishes:
        _check_subject(image, wishes, wish)
    for wish in wishes:
        _check_schema(image, wish)
    answer = AssociationsAnswer(request.resource_name, request.resource_namespace, request.resource_id, TOPIC)
    if dry_run:
        return Decision((), answer)
    records: list[Record] = []
    schemas: dict[str, SubjectSchema] = {}
    given_ids: dict[bytes, int] = {}
    for wish in wishes:
        if wish.schema is not None:
            decision = register_with_others(
                image, wish.subject, wish.schema, normalize=wish.normalize, given_ids=given_ids
            )
            records += decision.records
            schemas[wish.type] = _registered(wish.subject, decision.answer)
    changed = [_value(request, wish, new_guid) for wish in wishes if not wish.unchanged]
    records += [Record(_key(value), value) for value in changed]
    answers = [_answer(value, schemas.get(value.association_type or "")) for value in changed]
    answer = AssociationsAnswer(
        request.resource_name, request.resource_namespace, request.resource_id, TOPIC, answers or None
    )
    return Decision(tuple(records), answer)


def _checked_infos(request: AssociationRequest, *, create: bool, dry_run: bool) -> list[AssociationInfo]:
    _check_name(request.resource_name, "resourceName")
    _check_name(request.resource_namespace, "resourceNamespace")
    if not dry_run and not request.resource_id:
        raise _invalid("resourceId", "cannot be null or empty")
    if (request.resource_type or TOPIC) != TOPIC:
        raise _invalid("resourceType", f"must be '{TOPIC}'")
    if not request.associations:
        raise _invalid("associations", "cannot be null or empty")
    infos = [_with_defaults(request, info, create=create) for info in request.associations]
    types = [info.association_type for info in infos]
    for name in types:
        if types.count(name) > 1:
            raise _invalid("associationType", f"may only appear once per request, but '{name}' appears more than once")
    return infos


def _with_defaults(request: AssociationRequest, info: AssociationInfo, *, create: bool) -> AssociationInfo:
    if info.subject is not None and (not info.subject or not is_valid_subject(info.subject)):
        raise _invalid("subject", "must not be empty")
    association_type = info.association_type or "value"
    if association_type not in _TYPES:
        raise _invalid("associationType", "must be either 'key' or 'value'")
    subject, lifecycle, frozen = info.subject, info.lifecycle, info.frozen
    if lifecycle == "WEAK" and info.schema is not None:
        raise _invalid("lifecycle", "cannot be WEAK when schema is provided")
    if lifecycle == "WEAK" and frozen:
        raise _invalid("frozen", "association with lifecycle of WEAK cannot be frozen")
    if create:
        lifecycle, frozen = _implied(info)
        if lifecycle == "WEAK" and subject is None:
            raise _invalid("subject", "must be provided for WEAK associations")
        default = _default_subject(request, association_type)
        subject = default if subject is None else subject
        _check_default(subject, default, lifecycle, frozen=frozen)
    return AssociationInfo(subject, association_type, lifecycle, frozen, info.schema, info.normalize)


def _default_subject(request: AssociationRequest, association_type: str) -> str:
    return f":.{request.resource_namespace}:{request.resource_name}-{association_type}"


def _check_default(subject: str, default: str, lifecycle: Lifecycle, *, frozen: bool) -> None:
    """Frozen associations have the default subject, weak ones another."""
    if frozen and subject != default:
        raise _invalid("subject", f"frozen associations must use subject '{default}'")
    if lifecycle == "WEAK" and subject == default:
        raise _invalid("subject", f"WEAK associations cannot use subject '{default}'")


def _implied(info: AssociationInfo) -> tuple[Lifecycle, bool]:
    """Lifecycle and `frozen` of a new association: a schema makes it strong, and strong ones are frozen."""
    if info.schema is not None and info.frozen is False:
        raise _invalid("frozen", "cannot be false when a schema is provided")
    lifecycle: Lifecycle = "STRONG" if info.schema is not None else info.lifecycle or "WEAK"
    frozen = lifecycle == "STRONG"
    if info.frozen not in (None, frozen):
        raise _not_frozen_so(lifecycle, not frozen)
    return lifecycle, frozen


def _wish(
    image: RegistryImage,
    request: AssociationRequest,
    info: AssociationInfo,
    context: str,
    existing: StoredAssociation | None,
    *,
    create: bool,
) -> _Wish:
    default = _default_subject(request, info.association_type or "value")
    old = existing.value if existing is not None else None
    lifecycle, frozen = info.lifecycle, info.frozen
    if old is None and not create:
        if info.schema is not None:
            raise _invalid("schema", "cannot be provided when adding an association to an existing topic")
        lifecycle, frozen = _implied(info)
    lifecycle = lifecycle or (old.lifecycle if old is not None else None)
    if lifecycle is None:
        raise _invalid("lifecycle", "must be set")
    subject = _subject(image, info, context, old, default, lifecycle)
    if lifecycle == "WEAK" and info.schema is not None:
        raise _invalid("lifecycle", "cannot be WEAK when schema is provided")
    if lifecycle == "WEAK":
        _check_default(subject, default, lifecycle, frozen=False)
    was_frozen = bool(old.frozen) if old is not None else bool(frozen)
    wish = _Wish(
        type=info.association_type or "value",
        subject=subject,
        lifecycle=lifecycle,
        frozen=was_frozen if frozen is None else frozen,
        schema=info.schema,
        normalize=bool(info.normalize),
        existing=existing,
    )
    if wish.frozen != (lifecycle == "STRONG"):
        raise _not_frozen_so(lifecycle, wish.frozen)
    _check_default(subject, default, lifecycle, frozen=was_frozen)
    if existing is None:
        _check_new(image, wish, create=create)
        return wish
    return _changed(image, info, wish, existing, default, create=create)


def _subject(
    image: RegistryImage,
    info: AssociationInfo,
    context: str,
    old: AssociationValue | None,
    default: str,
    lifecycle: Lifecycle,
) -> str:
    if info.subject is not None:
        prefix = normalize_context(context) if context else ""
        subject = actual_subject(image, qualify_beside(prefix, info.subject))
        check_writable(image, subject)
        return subject
    if old is not None:
        return old.subject or ""
    if lifecycle == "STRONG":
        return default
    raise _invalid("subject", "must be provided for WEAK associations")


def _check_new(image: RegistryImage, wish: _Wish, *, create: bool) -> None:
    importing = mode_in_scope(image, wish.subject) == "IMPORT"
    if not create and wish.lifecycle == "STRONG" and not importing:
        raise _invalid("lifecycle", "cannot be STRONG here: strong associations must be created with the topic")
    if not wish.frozen or importing:
        return
    if create and wish.schema is None:
        raise _invalid("schema", "must be provided when creating a frozen association")
    latest = image.latest(wish.subject)
    if latest is not None and (latest.version != 1 or not _is_registered(image, wish)):
        raise _invalid("frozen", "cannot create a frozen association when schemas already exist in the subject")


def _changed(
    image: RegistryImage,
    info: AssociationInfo,
    wish: _Wish,
    existing: StoredAssociation,
    default: str,
    *,
    create: bool,
) -> _Wish:
    old = existing.value
    same = (wish.subject, wish.lifecycle, wish.frozen) == (old.subject, old.lifecycle, bool(old.frozen))
    if same and (not create or wish.schema is None or _is_registered(image, wish)):
        return replace(wish, unchanged=True)
    if create:
        raise registry_error(
            ASSOCIATION_FOR_RESOURCE_EXISTS,
            f"An association of type '{old.association_type}' already exists for resource '{old.resource_name}'",
        )
    if info.lifecycle is None and info.schema is None:
        raise _invalid("lifecycle", "at least lifecycle or schema must be provided for update")
    if wish.subject != old.subject:
        raise _invalid("subject", f"cannot be changed from '{old.subject}' to '{wish.subject}'")
    if (old.lifecycle, wish.lifecycle) == ("STRONG", "WEAK") and old.subject == default:
        raise _invalid("lifecycle", f"cannot change to WEAK when subject matches default format '{default}'")
    if wish.frozen != bool(old.frozen):
        raise _invalid("frozen", "cannot be changed")
    if old.frozen:
        raise _frozen(existing)
    return wish


def _is_registered(image: RegistryImage, wish: _Wish) -> bool:
    if wish.schema is None:
        return False
    candidate = Candidate.of(wish.schema)
    return find_schema(image, wish.subject, candidate, normalize=wish.normalize, deleted=False) is not None


def _check_one_lifecycle(existing: Mapping[str | None, StoredAssociation], wishes: Sequence[_Wish]) -> None:
    lifecycles: dict[str | None, str | None] = {name: item.value.lifecycle for name, item in existing.items()}
    lifecycles |= {wish.type: wish.lifecycle for wish in wishes}
    if len(set(lifecycles.values())) > 1:
        detail = ", ".join(f"{name}={lifecycle}" for name, lifecycle in lifecycles.items())
        message = f"all associations for a resource must have the same lifecycle, but got {detail}"
        raise _invalid("lifecycle", message)


def _check_subject(image: RegistryImage, wishes: Sequence[_Wish], wish: _Wish) -> None:
    subject = wish.subject
    if wish.schema is not None and mode_in_scope(image, subject) == "IMPORT":
        raise _invalid("schema", f"cannot be provided while subject '{subject}' is in IMPORT mode")
    if wish.schema is None and image.latest(subject) is None:
        message = f"No active (non-deleted) version exists for subject '{subject}'"
        raise registry_error(NO_ACTIVE_SUBJECT_VERSION, message)
    own = _key(wish.existing.value) if wish.existing is not None else None
    others = [item for item in image.associations_of_subject(subject) if _key(item.value) != own]
    if wish.lifecycle == "WEAK":
        if any(item.value.lifecycle == "STRONG" for item in others):
            raise registry_error(
                STRONG_ASSOCIATION_FOR_SUBJECT_EXISTS, f"A strong association already exists for subject '{subject}'"
            )
        return
    if others:
        raise registry_error(ASSOCIATION_FOR_SUBJECT_EXISTS, f"An association already exists for subject '{subject}'")
    referred = any(image.referrers(schema.key) for schema in image.versions(subject))
    if referred or subject in _referred_in(wishes):
        raise registry_error(REFERENCE_EXISTS, f"One or more references exist to the schema {subject}.")


def _referred_in(wishes: Sequence[_Wish]) -> set[str]:
    return {
        qualify_beside(wish.subject, reference.subject)
        for wish in wishes
        if wish.schema is not None
        for reference in wish.schema.references or ()
    }


def _check_schema(image: RegistryImage, wish: _Wish) -> None:
    if wish.schema is None:
        return
    if check_against_subject(image, wish.subject, wish.schema, normalize=wish.normalize).is_compatible:
        return
    answer = check_against_subject(image, wish.subject, wish.schema, normalize=wish.normalize, verbose=True)
    raise registry_error(INCOMPATIBLE_SCHEMA, f"[{', '.join(answer.messages or ())}]")


def _value(request: AssociationRequest, wish: _Wish, new_guid: Callable[[], str]) -> AssociationValue:
    old = wish.existing
    return AssociationValue(
        guid=old.value.guid if old is not None else new_guid(),
        tenant=TENANT,
        resource_name=request.resource_name if old is None else old.value.resource_name,
        resource_namespace=request.resource_namespace if old is None else old.value.resource_namespace,
        resource_id=request.resource_id,
        resource_type=TOPIC,
        association_type=wish.type,
        subject=wish.subject,
        lifecycle=wish.lifecycle,
        frozen=wish.frozen,
        create_ts=old.created if old is not None else None,
    )


def _registered(subject: str, answer: RegisteredSchema) -> SubjectSchema:
    return SubjectSchema(
        subject=subject,
        version=answer.version or 0,
        id=answer.id,
        guid=answer.guid,
        schema_type=answer.schema_type,
        references=answer.references,
        metadata=answer.metadata,
        schema=answer.schema,
        rule_set=answer.rule_set,
    )


def _key(value: AssociationValue) -> AssociationKey:
    return AssociationKey(
        value.resource_name or "",
        value.resource_namespace or "",
        value.resource_type or "",
        value.association_type or "",
        value.subject or "",
    )


def _named(image: RegistryImage, namespace: str, name: str) -> Iterable[StoredAssociation]:
    found = image.associations if name == _ANY else image.associations_of_name(name)
    return (item for item in found if namespace in (_ANY, item.value.resource_namespace))


def _matching(
    found: Iterable[StoredAssociation], resource_type: str, association_types: Sequence[str], lifecycle: str | None
) -> list[StoredAssociation]:
    return [
        item
        for item in found
        if item.value.resource_type == resource_type
        and (not association_types or item.value.association_type in association_types)
        and lifecycle in (None, item.value.lifecycle)
    ]


def _page(image: RegistryImage, found: list[StoredAssociation], offset: int, limit: int) -> list[Association]:
    found.sort(key=lambda item: _order(item.value))
    most = image.options.schemas_limit
    start = max(offset, 0)
    return [_association(item) for item in found[start : start + (limit if 0 < limit <= most else most)]]


def _order(value: AssociationValue) -> tuple[str, ...]:
    fields = (value.resource_name, value.resource_namespace, value.resource_type, value.association_type, value.subject)
    return tuple(field or "" for field in fields)


def _association(item: StoredAssociation) -> Association:
    value = item.value
    return Association(
        subject=value.subject or "",
        guid=value.guid or "",
        resource_name=value.resource_name or "",
        resource_namespace=value.resource_namespace or "",
        resource_id=value.resource_id or "",
        resource_type=value.resource_type or "",
        association_type=value.association_type or "",
        lifecycle=value.lifecycle or "WEAK",
        frozen=_unusual(value),
        create_ts=item.created,
        update_ts=item.updated,
    )


def _unusual(value: AssociationValue) -> bool | None:
    """Whether it is frozen, where that differs from what the lifecycle implies."""
    frozen = bool(value.frozen)
    return None if frozen == (value.lifecycle == "STRONG") else frozen


def _answer(value: AssociationValue, schema: SubjectSchema | None) -> AssociationAnswer:
    return AssociationAnswer(
        value.subject or "", value.association_type or "", value.lifecycle or "WEAK", _unusual(value), schema
    )


def _check_name(name: str | None, field: str) -> None:
    if not name:
        raise _invalid(field, "cannot be null or empty")
    if len(name) > _NAME_LENGTH_MAX:
        raise _invalid(field, f"exceeds max length of {_NAME_LENGTH_MAX}")
    for character in name:
        if not (character.isalnum() or character in "_-."):
            raise _invalid(field, f"illegal character '{character}'")


def _invalid(field: str, detail: str) -> RegistryError:
    return registry_error(
        INVALID_ASSOCIATION, f"The association specified an invalid value for property: '{field}', detail: {detail}"
    )


def _not_frozen_so(lifecycle: str, frozen: bool) -> RegistryError:
    return _invalid("frozen", f"association with lifecycle of {lifecycle} cannot be frozen={str(frozen).lower()}")


def _frozen(item: StoredAssociation) -> RegistryError:
    return registry_error(
        ASSOCIATION_FROZEN,
        f"The association of type '{item.value.association_type}' is frozen for subject '{item.value.subject}'",
    )
