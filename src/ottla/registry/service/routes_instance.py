"""Routes about the registry itself: the root, and /v1/metadata."""

from ottla.registry.service.authorization import Operation
from ottla.registry.service.http_messages import Request
from ottla.registry.service.registry import Registry
from ottla.registry.service.route_table import Kind, Route
from ottla.version import __version__


def _root(registry: Registry, request: Request) -> object:
    return {}


def _cluster_id(registry: Registry, request: Request) -> object:
    group = registry.config.election.group_id
    clusters = {"kafka-cluster": registry.cluster_id, "schema-registry-cluster": group}
    return {"scope": {"path": [], "clusters": clusters}}


def _version(registry: Registry, request: Request) -> object:
    return {"version": f"ottla-{__version__}", "commitId": ""}


def _deployment(registry: Registry, request: Request) -> object:
    return {"attributes": []}


ROUTES = tuple(
    Route(method=method, path=path, kind=Kind.LOOK_UP, operation=Operation.DESCRIBE, handle=handle)
    for method, path, handle in (
        ("GET", "/", _root),
        ("POST", "/", _root),
        ("GET", "/v1/metadata/id", _cluster_id),
        ("GET", "/v1/metadata/version", _version),
        ("GET", "/v1/metadata/deployment", _deployment),
    )
)
