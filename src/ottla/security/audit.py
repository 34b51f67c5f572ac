"""The audit log: which client was allowed or denied what. Denials are logged at INFO, the rest at DEBUG.

A request may name thousands of resources. Its denials are noted on the connection, and become one line for each
operation and resource type, with the first names and the number of the others (`log_denials`).
"""

import logging
from typing import Final

from ottla.security.connection_context import ConnectionContext, DeniedNames
from ottla.security.resources import Operation, ResourceType

AUDIT_LOGGER: Final = logging.getLogger("ottla.authorizer")
NAMES_SHOWN_MAX: Final = 5
NAME_LENGTH_MAX: Final = 249
"""Of a name in the log, as long as a topic's may be; the rest of a longer one is left out."""

_DECISION: Final = "principal %r is %s operation %s on %s from host %s (listener %s)"


def audit(
    client: ConnectionContext, operation: Operation, resource_type: ResourceType, name: str, *, is_allowed: bool
) -> None:
    """Logs that something is allowed, or notes that it is denied: `log_denials` must follow.

    Not for questions that only filter a listing, nor for the bits of allowed operations.
    """
    if is_allowed:
        if AUDIT_LOGGER.isEnabledFor(logging.DEBUG):
            resources = f"resource {_shown(resource_type, name)}"
            AUDIT_LOGGER.debug(_DECISION, *_words(client, operation, resources, "allowed"))
    elif AUDIT_LOGGER.isEnabledFor(logging.INFO):
        names = client.decisions.denied.setdefault((operation, resource_type), DeniedNames())
        names.count += 1
        if names.count <= NAMES_SHOWN_MAX:
            names.first.append(name[: NAME_LENGTH_MAX + 1])


def log_denials(client: ConnectionContext) -> None:
    """Logs what was denied to a client since the last call: called at the end of each request."""
    denied = client.decisions.denied
    for (operation, resource_type), names in denied.items():
        resources = ", ".join(_shown(resource_type, name) for name in names.first)
        if names.count == 1:
            resources = f"resource {resources}"
        else:
            more = names.count - len(names.first)
            resources = f"{names.count} resources {resources}{f' and {more} more' if more else ''}"
        AUDIT_LOGGER.info(_DECISION, *_words(client, operation, resources, "denied"))
    denied.clear()


def _shown(resource_type: ResourceType, name: str) -> str:
    """Names come from clients: as a quoted text they cannot forge lines of the log, nor fill it."""
    cut = "..." if len(name) > NAME_LENGTH_MAX else ""
    return f"{resource_type.name}:{name[:NAME_LENGTH_MAX]!r}{cut}"


def _words(client: ConnectionContext, operation: Operation, resources: str, decision: str) -> tuple[str, ...]:
    host = client.address.rpartition(":")[0]
    return str(client.principal), decision, operation.name, resources, host, client.listener
