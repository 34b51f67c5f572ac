"""All routes of the REST interface."""

from typing import Final

from ottla.registry.service import (
    routes_associations,
    routes_configs,
    routes_instance,
    routes_schemas,
    routes_subjects,
)
from ottla.registry.service.route_table import Route

ROUTES: Final[tuple[Route, ...]] = (
    *routes_schemas.ROUTES,
    *routes_subjects.ROUTES,
    *routes_configs.ROUTES,
    *routes_associations.ROUTES,
    *routes_instance.ROUTES,
)
