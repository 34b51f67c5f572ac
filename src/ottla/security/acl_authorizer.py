"""The `Authorizer` of a cluster with ACLs, as Kafka's StandardAuthorizer."""

from collections.abc import Iterable
from typing import Final

from ottla.model.errors import InvalidConfigError
from ottla.security.acl_hosts import host_of
from ottla.security.acl_index import AclIndex, Verdict
from ottla.security.acls import AclBinding
from ottla.security.connection_context import ConnectionContext
from ottla.security.resources import Operation, ResourceType

_ANY_NAME: Final = "hardcode"
"""The name that Kafka asks for to learn what is allowed for resources without ACLs."""


class AclAuthorizer:
    """Decides by the cluster's ACLs. Super users, as `Type:name`, may do everything.

    Until `apply` was called there are no ACLs: then only super users are allowed, or all clients with
    `allows_uncovered`, which is Kafka's allow.everyone.if.no.acl.found.
    """

    allows_all: Final = False

    def __init__(self, *, super_users: Iterable[str] = (), allows_uncovered: bool = False) -> None:
        self.super_users: Final = frozenset(super_users)
        self._allows_uncovered = allows_uncovered
        self._bindings: frozenset[AclBinding] = frozenset()
        self._index = AclIndex()
        self.version = 0
        """Counts the changes of the ACLs."""

    def apply(self, bindings: frozenset[AclBinding]) -> None:
        """Decides by these ACLs from now on."""
        if bindings is self._bindings or bindings == self._bindings:
            return
        self._index.change(added=bindings - self._bindings, removed=self._bindings - bindings)
        self._bindings = bindings
        self.version += 1

    def allows(
        self, client: ConnectionContext, operation: Operation, resource_type: ResourceType, name: str, /
    ) -> bool:
        """Whether the client may do this to the resource."""
        principal = str(client.principal)
        if principal in self.super_users:
            return True
        verdict = self._index.decide(principal, host_of(client.address), operation, resource_type, name)
        if verdict is Verdict.NOT_COVERED:
            return self._allows_uncovered
        return verdict is Verdict.ALLOWED

    def allows_any(self, client: ConnectionContext, operation: Operation, resource_type: ResourceType, /) -> bool:
        """Whether the client may do this to at least one resource of the type, existing or not."""
        if self.allows(client, operation, resource_type, _ANY_NAME):
            return True
        return self._index.allows_some(str(client.principal), host_of(client.address), operation, resource_type)


def parse_super_users(text: str) -> frozenset[str]:
    """The principals in `super.users`, which are separated by semicolons, since names may have commas.

    Raises `InvalidConfigError` for one without a type.
    """
    users = frozenset(each.strip() for each in text.split(";") if each.strip())
    for each in users:
        if ":" not in each:
            raise InvalidConfigError(f"super.users: {each!r} is not in the form Type:name, as User:{each}")
    return users
