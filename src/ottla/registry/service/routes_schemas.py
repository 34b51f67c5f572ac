"""Routes below /schemas and /contexts."""

from collections.abc import Callable

from ottla.registry.service.authorization import Operation
from ottla.registry.service.http_messages import Answer, Request, whole_number
from ottla.registry.service.registry import Registry
from ottla.registry.service.route_table import Kind, Route
from ottla.registry.state import deletions, lookups
from ottla.registry.state.decision import Decision
from ottla.registry.state.registry_image import RegistryImage


def _list_schemas(registry: Registry, request: Request) -> object:
    query = request.query
    return lookups.list_schemas(
        registry.image,
        prefix=query.text("subjectPrefix"),
        aliases=query.flag("aliases"),
        deleted=query.flag("deleted"),
        latest_only=query.flag("latestOnly"),
        rule_type=query.text("ruleType"),
        offset=query.number("offset", 0),
        limit=query.number("limit", -1),
    )


def _get_schema(registry: Registry, request: Request) -> object:
    query = request.query
    return lookups.get_schema(
        registry.image,
        whole_number(request.path["id"]),
        subject=query.text("subject"),
        format=query.text("format"),
        reference_format=query.text("referenceFormat"),
        find_tags=query.all("findTags"),
        fetch_max_id=query.flag("fetchMaxId"),
    )


def _get_schema_text(registry: Registry, request: Request) -> Answer:
    query = request.query
    text = lookups.get_schema_text(
        registry.image, whole_number(request.path["id"]), subject=query.text("subject"), format=query.text("format")
    )
    return Answer(body=text.encode())


def _subjects_of_id(registry: Registry, request: Request) -> object:
    query = request.query
    return lookups.subjects_of_id(
        registry.image,
        whole_number(request.path["id"]),
        subject=query.text("subject"),
        deleted=query.flag("deleted"),
        offset=query.number("offset", 0),
        limit=query.number("limit", -1),
    )


def _versions_of_id(registry: Registry, request: Request) -> object:
    query = request.query
    return lookups.versions_of_id(
        registry.image,
        whole_number(request.path["id"]),
        subject=query.text("subject"),
        deleted=query.flag("deleted"),
        offset=query.number("offset", 0),
        limit=query.number("limit", -1),
    )


def _get_schema_by_guid(registry: Registry, request: Request) -> object:
    return lookups.get_schema_by_guid(registry.image, request.path["guid"], format=request.query.text("format"))


def _ids_of_guid(registry: Registry, request: Request) -> object:
    return lookups.ids_of_guid(registry.image, request.path["guid"])


def _types(registry: Registry, request: Request) -> object:
    return registry.image.schemas.types


def _list_contexts(registry: Registry, request: Request) -> object:
    query = request.query
    return lookups.list_contexts(
        registry.image,
        prefix=query.text("contextPrefix"),
        offset=query.number("offset", 0),
        limit=query.number("limit", -1),
    )


def _delete_context(image: RegistryImage, request: Request) -> Decision[object]:
    decision = deletions.delete_context(image, request.path["context"])
    return Decision(decision.records, Answer(status=204))


_READ, _DELETE = Operation.SUBJECT_READ, Operation.SUBJECT_DELETE


def _look_up(path: str, handle: Callable[[Registry, Request], object]) -> Route:
    return Route(method="GET", path=path, kind=Kind.LOOK_UP, operation=_READ, handle=handle)


ROUTES = (
    _look_up("/schemas/ids/{id}", _get_schema),
    _look_up("/schemas/ids/{id}/schema", _get_schema_text),
    _look_up("/schemas/ids/{id}/subjects", _subjects_of_id),
    _look_up("/schemas/ids/{id}/versions", _versions_of_id),
    _look_up("/schemas/guids/{guid}", _get_schema_by_guid),
    _look_up("/schemas/guids/{guid}/ids", _ids_of_guid),
    _look_up("/schemas/types", _types),
    # Walks over all versions: not in the event loop.
    Route(method="GET", path="/schemas", kind=Kind.PARSE, operation=_READ, handle=_list_schemas),
    _look_up("/contexts", _list_contexts),
    Route(method="DELETE", path="/contexts/{context}", kind=Kind.WRITE, operation=_DELETE, handle=_delete_context),
)
