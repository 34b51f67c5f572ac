"""Access control lists: bindings, which allow or deny an operation, and filters, which select bindings. Pure data.

`acl_index.py` decides with them, `acl_authorizer.py` is the `Authorizer`, `ottla.metadata` stores them. The numbers of
the enumerations are Kafka's.
"""

from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_network
from typing import Final

from ottla.model.errors import InvalidRequestError
from ottla.security.resources import CLUSTER_NAME, Operation, ResourceType

WILDCARD: Final = "*"
"""As a literal resource name any name; as a host any address."""
WILDCARD_PRINCIPAL: Final = "User:*"
"""The only principal of an ACL that stands for several."""


class PatternType(IntEnum):
    """Which names a binding's name stands for: only itself (`*`: all), or all that begin with it."""

    LITERAL = 3
    PREFIXED = 4


class FilterPatternType(IntEnum):
    """How a filter selects by resource name."""

    ANY = 1
    """Bindings with this name, of either pattern type."""
    MATCH = 2
    """Bindings that apply to a resource of this name."""
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """What a binding says."""

    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AclBinding:
    """One ACL. It has no other identity than its fields: creating it twice gives one."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str
    principal: str
    """As `Type:name`."""
    host: str
    """`*`, an address, or a CIDR range."""
    operation: Operation
    permission: Permission

    @property
    def is_wildcard(self) -> bool:
        """Whether it applies to every resource of its type."""
        return self.pattern_type is PatternType.LITERAL and self.name == WILDCARD

    def applies_to(self, name: str) -> bool:
        """Whether it applies to the resource of this name; the type is not looked at."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def check(self) -> None:
        """Raises `InvalidRequestError` unless Kafka would accept it. Whether the operation exists for the resource type
        is not checked, as in Kafka."""
        if not self.name:
            raise InvalidRequestError("the resource name must not be empty")
        if self.resource_type is ResourceType.CLUSTER and self.name != CLUSTER_NAME:
            raise InvalidRequestError(f"the name of the only CLUSTER resource is {CLUSTER_NAME}")
        if ":" not in self.principal:
            raise InvalidRequestError(f"principal {self.principal[:100]!r} is not in the form Type:name")
        if not self.host:
            raise InvalidRequestError("the host must not be empty; * means any host")
        if "/" in self.host:
            try:
                ip_network(self.host, strict=False)
                # Python also reads a netmask, as in 10.0.0.0/255.0.0.0; Kafka does not.
                int(self.host.rpartition("/")[2])
            except ValueError as error:
                raise InvalidRequestError(
                    f"host {self.host[:100]!r} is not a valid CIDR range; write it as 10.1.0.0/16"
                ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Selects bindings; None accepts any value. Principals and hosts are compared as text."""

    resource_type: ResourceType | None = None
    pattern_type: FilterPatternType = FilterPatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    def matches(self, binding: AclBinding) -> bool:
        """Whether the binding is selected."""
        return (
            self.resource_type in (None, binding.resource_type)
            and self.operation in (None, binding.operation)
            and self.permission in (None, binding.permission)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self._matches_name(binding)
        )

    def _matches_name(self, binding: AclBinding) -> bool:
        match self.pattern_type:
            case FilterPatternType.ANY:
                return self.name in (None, binding.name)
            case FilterPatternType.MATCH:
                return self.name is None or binding.applies_to(self.name)
            case _:
                return int(self.pattern_type) == int(binding.pattern_type) and self.name in (None, binding.name)
