"""Routes below /subjects and /compatibility."""

import msgspec

from ottla.registry.service.authorization import Operation
from ottla.registry.service.http_messages import Answer, Request
from ottla.registry.service.registry import Registry
from ottla.registry.service.route_table import Kind, Route
from ottla.registry.state import compatibility_checks, deletions, lookups, registrations, schema_checks
from ottla.registry.state.decision import Decision
from ottla.registry.state.qualified_subjects import ALL_CONTEXTS
from ottla.registry.state.registry_image import RegistryImage
from ottla.registry.state.requests import SchemaRequest, TagsRequest
from ottla.registry.state.schema_checks import SchemaCheck

SCHEMA_REQUESTS = msgspec.json.Decoder(SchemaRequest, strict=False)
_TAGS = msgspec.json.Decoder(TagsRequest, strict=False)


def _list_subjects(registry: Registry, request: Request) -> object:
    query = request.query
    return lookups.list_subjects(
        registry.image,
        prefix=query.text("subjectPrefix", ALL_CONTEXTS),
        deleted=query.flag("deleted"),
        deleted_only=query.flag("deletedOnly"),
        offset=query.number("offset", 0),
        limit=query.number("limit", -1),
    )


def _look_up(registry: Registry, request: Request) -> object:
    query = request.query
    return lookups.look_up(
        registry.image,
        request.path["subject"],
        request.decoded(SCHEMA_REQUESTS),
        normalize=query.flag("normalize"),
        format=query.text("format"),
        deleted=query.flag("deleted"),
    )


def _delete_subject(image: RegistryImage, request: Request) -> Decision[object]:
    return deletions.delete_subject(image, request.path["subject"], permanent=request.query.flag("permanent"))


def _latest_with_metadata(registry: Registry, request: Request) -> object:
    query = request.query
    return lookups.latest_with_metadata(
        registry.image,
        request.path["subject"],
        dict(zip(query.all("key"), query.all("value"), strict=False)),
        format=query.text("format"),
        deleted=query.flag("deleted"),
    )


def _list_versions(registry: Registry, request: Request) -> object:
    query = request.query
    return lookups.list_versions(
        registry.image,
        request.path["subject"],
        deleted=query.flag("deleted"),
        deleted_only=query.flag("deletedOnly"),
        deleted_as_negative=query.flag("deletedAsNegative"),
        offset=query.number("offset", 0),
        limit=query.number("limit", -1),
    )


def _register(image: RegistryImage, request: Request) -> Decision[object]:
    query = request.query
    return registrations.register(
        image,
        request.path["subject"],
        request.decoded(SCHEMA_REQUESTS),
        normalize=query.flag("normalize"),
        format=query.text("format"),
        force=query.flag("force"),
    )


def _registration_check(image: RegistryImage, request: Request) -> SchemaCheck | None:
    query = request.query
    return schema_checks.registration_check(
        image,
        request.path["subject"],
        request.decoded(SCHEMA_REQUESTS),
        normalize=query.flag("normalize"),
        force=query.flag("force"),
    )


def _look_up_check(image: RegistryImage, request: Request) -> SchemaCheck | None:
    return schema_checks.look_up_check(
        image,
        request.path["subject"],
        request.decoded(SCHEMA_REQUESTS),
        normalize=request.query.flag("normalize"),
    )


def _compatibility_check(image: RegistryImage, request: Request) -> SchemaCheck | None:
    return schema_checks.compatibility_check(
        image,
        request.path["subject"],
        request.path.get("version"),
        request.decoded(SCHEMA_REQUESTS),
        normalize=request.query.flag("normalize"),
    )


def _get_version(registry: Registry, request: Request) -> object:
    query = request.query
    return lookups.get_version(
        registry.image,
        request.path["subject"],
        request.path["version"],
        format=query.text("format"),
        reference_format=query.text("referenceFormat"),
        deleted=query.flag("deleted"),
        find_tags=query.all("findTags"),
    )


def _get_version_text(registry: Registry, request: Request) -> Answer:
    query = request.query
    text = lookups.get_version_text(
        registry.image,
        request.path["subject"],
        request.path["version"],
        format=query.text("format"),
        deleted=query.flag("deleted"),
    )
    return Answer(body=text.encode())


def _referenced_by(registry: Registry, request: Request) -> object:
    query = request.query
    return lookups.referenced_by(
        registry.image,
        request.path["subject"],
        request.path["version"],
        deleted=query.flag("deleted"),
        offset=query.number("offset", 0),
        limit=query.number("limit", -1),
    )


def _delete_version(image: RegistryImage, request: Request) -> Decision[object]:
    return deletions.delete_version(
        image, request.path["subject"], request.path["version"], permanent=request.query.flag("permanent")
    )


def _modify_tags(image: RegistryImage, request: Request) -> Decision[object]:
    return registrations.modify_tags(image, request.path["subject"], request.path["version"], request.decoded(_TAGS))


def _find_registered(registry: Registry, request: Request) -> object | None:
    query = request.query
    return registrations.find_registered(
        registry.image,
        request.path["subject"],
        request.decoded(SCHEMA_REQUESTS),
        normalize=query.flag("normalize"),
        format=query.text("format"),
    )


def _check_against_subject(registry: Registry, request: Request) -> object:
    query = request.query
    return compatibility_checks.check_against_subject(
        registry.image,
        request.path["subject"],
        request.decoded(SCHEMA_REQUESTS),
        normalize=query.flag("normalize"),
        verbose=query.flag("verbose"),
    )


def _check_against_version(registry: Registry, request: Request) -> object:
    query = request.query
    return compatibility_checks.check_against_version(
        registry.image,
        request.path["subject"],
        request.path["version"],
        request.decoded(SCHEMA_REQUESTS),
        normalize=query.flag("normalize"),
        verbose=query.flag("verbose"),
    )


_READ, _WRITE = Operation.SUBJECT_READ, Operation.SUBJECT_WRITE
_CHECK = Operation.SUBJECT_COMPATIBILITY_READ
_DELETE = Operation.SUBJECT_DELETE

ROUTES = (
    Route(method="GET", path="/subjects", kind=Kind.LOOK_UP, operation=_READ, handle=_list_subjects),
    Route(
        method="POST",
        path="/subjects/{subject}",
        kind=Kind.PARSE,
        operation=_READ,
        handle=_look_up,
        has_body=True,
        takes_schema=True,
        find_check=_look_up_check,
    ),
    Route(method="DELETE", path="/subjects/{subject}", kind=Kind.WRITE, operation=_DELETE, handle=_delete_subject),
    Route(
        method="GET",
        path="/subjects/{subject}/metadata",
        kind=Kind.LOOK_UP,
        operation=_READ,
        handle=_latest_with_metadata,
    ),
    Route(method="GET", path="/subjects/{subject}/versions", kind=Kind.LOOK_UP, operation=_READ, handle=_list_versions),
    Route(
        method="POST",
        path="/subjects/{subject}/versions",
        kind=Kind.WRITE,
        operation=_WRITE,
        handle=_register,
        has_body=True,
        takes_schema=True,
        find_known=_find_registered,
        find_check=_registration_check,
    ),
    Route(
        method="GET",
        path="/subjects/{subject}/versions/{version}",
        kind=Kind.LOOK_UP,
        operation=_READ,
        handle=_get_version,
    ),
    Route(
        method="GET",
        path="/subjects/{subject}/versions/{version}/schema",
        kind=Kind.LOOK_UP,
        operation=_READ,
        handle=_get_version_text,
    ),
    Route(
        method="GET",
        path="/subjects/{subject}/versions/{version}/referencedby",
        kind=Kind.LOOK_UP,
        operation=_READ,
        handle=_referenced_by,
    ),
    Route(
        method="DELETE",
        path="/subjects/{subject}/versions/{version}",
        kind=Kind.WRITE,
        operation=_DELETE,
        handle=_delete_version,
    ),
    Route(
        method="POST",
        path="/subjects/{subject}/versions/{version}/tags",
        kind=Kind.WRITE,
        operation=_WRITE,
        handle=_modify_tags,
        has_body=True,
    ),
    Route(
        method="POST",
        path="/compatibility/subjects/{subject}/versions",
        kind=Kind.PARSE,
        operation=_CHECK,
        handle=_check_against_subject,
        has_body=True,
        takes_schema=True,
        find_check=_compatibility_check,
    ),
    Route(
        method="POST",
        path="/compatibility/subjects/{subject}/versions/{version}",
        kind=Kind.PARSE,
        operation=_CHECK,
        handle=_check_against_version,
        has_body=True,
        takes_schema=True,
        find_check=_compatibility_check,
    ),
)
