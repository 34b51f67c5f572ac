"""Routes below /associations."""

from typing import Any
from uuid import uuid4

import msgspec

from ottla.registry.service.authorization import Operation
from ottla.registry.service.http_messages import Answer, Request
from ottla.registry.service.registry import Registry
from ottla.registry.service.route_table import Kind, Route
from ottla.registry.state import associations
from ottla.registry.state.decision import Decision
from ottla.registry.state.registry_image import RegistryImage
from ottla.registry.state.requests import AssociationRequest

_REQUESTS = msgspec.json.Decoder(AssociationRequest, strict=False)


def _of_subject(registry: Registry, request: Request) -> object:
    return associations.associations_of_subject(registry.image, request.path["subject"], **_filters(request))


def _of_resource(registry: Registry, request: Request) -> object:
    return associations.associations_of_resource(registry.image, request.path["resource"], **_filters(request))


def _of_name(registry: Registry, request: Request) -> object:
    path = request.path
    return associations.associations_of_name(registry.image, path["resource"], path["name"], **_filters(request))


def _filters(request: Request) -> dict[str, Any]:
    query = request.query
    return {
        "resource_type": query.text("resourceType"),
        "association_types": query.all("associationType"),
        "lifecycle": query.optional("lifecycle"),
        "offset": query.number("offset", 0),
        "limit": query.number("limit", -1),
    }


def _create(image: RegistryImage, request: Request) -> Decision[object]:
    return associations.create_associations(
        image,
        request.decoded(_REQUESTS),
        context=request.query.text("context"),
        dry_run=request.query.flag("dryRun"),
        new_guid=_new_guid,
    )


def _update(image: RegistryImage, request: Request) -> Decision[object]:
    return associations.update_associations(
        image,
        request.path["resource"],
        request.decoded(_REQUESTS),
        context=request.query.text("context"),
        dry_run=request.query.flag("dryRun"),
        new_guid=_new_guid,
    )


def _delete(image: RegistryImage, request: Request) -> Decision[object]:
    query = request.query
    decision = associations.delete_associations(
        image,
        request.path["resource"],
        resource_type=query.text("resourceType"),
        association_types=query.all("associationType"),
        cascade=query.flag("cascadeLifecycle"),
        dry_run=query.flag("dryRun"),
    )
    return Decision(decision.records, Answer(status=204))


def _new_guid() -> str:
    return str(uuid4())


_READ, _WRITE, _DELETE = Operation.SUBJECT_READ, Operation.SUBJECT_WRITE, Operation.SUBJECT_DELETE
_RESOURCE = "/associations/resources/{resource}"

ROUTES = (
    Route(
        method="GET", path="/associations/subjects/{subject}", kind=Kind.LOOK_UP, operation=_READ, handle=_of_subject
    ),
    Route(method="GET", path=_RESOURCE, kind=Kind.LOOK_UP, operation=_READ, handle=_of_resource),
    Route(method="GET", path=_RESOURCE + "/{name}", kind=Kind.LOOK_UP, operation=_READ, handle=_of_name),
    Route(method="POST", path="/associations", kind=Kind.WRITE, operation=_WRITE, handle=_create, has_body=True),
    Route(method="PUT", path=_RESOURCE, kind=Kind.WRITE, operation=_WRITE, handle=_update, has_body=True),
    Route(method="DELETE", path=_RESOURCE, kind=Kind.WRITE, operation=_DELETE, handle=_delete),
)
