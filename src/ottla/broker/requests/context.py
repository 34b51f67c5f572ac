"""What a handler knows of a request besides its fields: the version, the client, and what the client may do."""

from msgspec import Struct

from ottla.security.audit import audit
from ottla.security.authorizer import Authorizer, denied
from ottla.security.connection_context import ConnectionContext
from ottla.security.resources import (
    ALL_OPERATION_BITS,
    CLUSTER_NAME,
    OPERATIONS_NOT_REQUESTED,
    Operation,
    ResourceType,
    operation_bits,
)


class RequestContext(Struct, frozen=True):
    """One request's surroundings."""

    version: int
    """Of the API, as on the wire; the request itself is of the newest version's class."""
    client_id: str | None
    connection: ConnectionContext
    authorizer: Authorizer

    @property
    def listener(self) -> str:
        """The name of the listener on which the request came."""
        return self.connection.listener

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client may do this to the resource. The decision is part of the audit log."""
        if self.authorizer.allows_all:
            return True
        is_allowed = self.authorizer.allows(self.connection, operation, resource_type, name)
        audit(self.connection, operation, resource_type, name, is_allowed=is_allowed)
        return is_allowed

    def sees(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """The same for listings, which leave out what is not allowed: not part of the audit log, as in Kafka."""
        authorizer = self.authorizer
        return authorizer.allows_all or authorizer.allows(self.connection, operation, resource_type, name)

    def sees_cluster(self, operation: Operation) -> bool:
        """`sees` for the cluster: where another permission may do instead."""
        return self.sees(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_cluster(self, operation: Operation) -> bool:
        """Whether the client may do this to the cluster."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def check(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raises a DeniedError unless the client may do this to the resource."""
        if not self.allows(operation, resource_type, name):
            raise denied(self.connection, operation, resource_type, name)

    def check_cluster(self, operation: Operation) -> None:
        """Raises a DeniedError unless the client may do this to the cluster."""
        self.check(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def operations(self, resource_type: ResourceType, name: str, *, requested: bool = True) -> int:
        """What the client may do to the resource, as the bits of an `authorized_operations` field."""
        if not requested:
            return OPERATIONS_NOT_REQUESTED
        if self.authorizer.allows_all:
            return ALL_OPERATION_BITS[resource_type]
        return operation_bits(resource_type, lambda operation: self.sees(operation, resource_type, name))
