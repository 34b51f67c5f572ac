"""Routes below /config and /mode, and all settings at once."""

import msgspec

from ottla.registry.service.authorization import Operation
from ottla.registry.service.http_messages import Request
from ottla.registry.service.registry import Registry
from ottla.registry.service.route_table import Kind, Route
from ottla.registry.state import configs, lookups, modes
from ottla.registry.state.decision import Decision
from ottla.registry.state.registry_image import RegistryImage
from ottla.registry.state.requests import ConfigUpdate, ModeUpdate

_CONFIGS = msgspec.json.Decoder(ConfigUpdate, strict=False)
_MODES = msgspec.json.Decoder(ModeUpdate, strict=False)


def _get_config(registry: Registry, request: Request) -> object:
    return configs.get_config(
        registry.image, request.path.get("subject"), default_to_global=request.query.flag("defaultToGlobal")
    )


def _update_config(image: RegistryImage, request: Request) -> Decision[object]:
    return configs.update_config(image, request.path.get("subject"), request.decoded(_CONFIGS))


def _delete_config(image: RegistryImage, request: Request) -> Decision[object]:
    return configs.delete_config(image, request.path.get("subject"))


def _get_mode(registry: Registry, request: Request) -> object:
    return modes.get_mode(
        registry.image, request.path.get("subject"), default_to_global=request.query.flag("defaultToGlobal")
    )


def _update_mode(image: RegistryImage, request: Request) -> Decision[object]:
    return modes.update_mode(
        image, request.path.get("subject"), request.decoded(_MODES), force=request.query.flag("force")
    )


def _delete_mode(image: RegistryImage, request: Request) -> Decision[object]:
    return modes.delete_mode(image, request.path.get("subject"), recursive=request.query.flag("recursive"))


def _all_settings(registry: Registry, request: Request) -> object:
    return lookups.all_settings(registry.image)


_READ, _WRITE = Operation.SUBJECT_COMPATIBILITY_READ, Operation.SUBJECT_COMPATIBILITY_WRITE

ROUTES = tuple(
    route
    for path in ("/config", "/config/{subject}")
    for route in (
        Route(method="GET", path=path, kind=Kind.LOOK_UP, operation=_READ, handle=_get_config),
        Route(method="PUT", path=path, kind=Kind.WRITE, operation=_WRITE, handle=_update_config, has_body=True),
        Route(method="DELETE", path=path, kind=Kind.WRITE, operation=_WRITE, handle=_delete_config),
    )
) + tuple(
    route
    for path in ("/mode", "/mode/{subject}")
    for route in (
        Route(method="GET", path=path, kind=Kind.LOOK_UP, operation=_READ, handle=_get_mode),
        Route(method="PUT", path=path, kind=Kind.WRITE, operation=_WRITE, handle=_update_mode, has_body=True),
        Route(method="DELETE", path=path, kind=Kind.WRITE, operation=_WRITE, handle=_delete_mode),
    )
)
# Walks over all configs: not in the event loop.
ROUTES += (Route(method="GET", path="/ottla/settings", kind=Kind.PARSE, operation=_READ, handle=_all_settings),)
