"""ACLs as users of the admin clients write them, with the names and arguments of kafka-python."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.client.arguments import ArgumentError, check_fields


class ACLResourceType(IntEnum):
    """What an ACL is about. ANY is for filters. kafka-python calls it `ResourceType`."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class ACLOperation(IntEnum):
    """What an ACL allows or denies. ANY is for filters; ALL is every operation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ACLPermissionType(IntEnum):
    """Whether an ACL allows or denies. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ACLResourcePatternType(IntEnum):
    """Which names an ACL's name stands for: itself, or every name that begins with it.

    For filters only: ANY finds ACLs with this name of either type, MATCH finds all ACLs that apply to this name.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


CLUSTER_RESOURCE_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


@dataclass(frozen=True, slots=True)
class ResourcePatternFilter:
    """Selects resources; the name None stands for all. Raises `ArgumentError` for a field of the wrong type."""

    resource_type: ACLResourceType = ACLResourceType.ANY
    resource_name: str | None = None
    pattern_type: ACLResourcePatternType = ACLResourcePatternType.ANY

    def __post_init__(self) -> None:
        check_fields(self)

    def __str__(self) -> str:
        name = "any name" if self.resource_name is None else repr(self.resource_name)
        return f"{self.resource_type.name.lower()} {name} ({self.pattern_type.name.lower()})"


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resources that an ACL is about: one, all that begin with a prefix, or all with the literal name `*`.

    Raises `ArgumentError` for a field of the wrong type, or a type that is for filters.
    """

    resource_type: ACLResourceType
    resource_name: str
    pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL

    def __post_init__(self) -> None:
        check_fields(self)
        if self.resource_type in (ACLResourceType.ANY, ACLResourceType.UNKNOWN):
            raise ArgumentError(f"resource_type {self.resource_type.name} is only for a ResourcePatternFilter")
        if self.pattern_type not in (ACLResourcePatternType.LITERAL, ACLResourcePatternType.PREFIXED):
            raise ArgumentError(f"pattern_type {self.pattern_type.name} is only for a ResourcePatternFilter")

    def __str__(self) -> str:
        return f"{self.resource_type.name.lower()} {self.resource_name!r} ({self.pattern_type.name.lower()})"


@dataclass(frozen=True, slots=True)
class ACLFilter:
    """Selects ACLs; None stands for any principal, any host. Raises `ArgumentError` for a field of the wrong type."""

    principal: str | None = None
    host: str | None = None
    operation: ACLOperation = ACLOperation.ANY
    permission_type: ACLPermissionType = ACLPermissionType.ANY
    resource_pattern: ResourcePatternFilter | ResourcePattern = ResourcePatternFilter()

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class ACL:
    """One ACL: allows or denies an operation on resources to a principal (`User:alice`, or `User:*` for all) that
    connects from a host (an address, a CIDR range, or `*`).

    Raises `ArgumentError` for a field of the wrong type, or a value that is for filters.
    """

    principal: str
    host: str
    operation: ACLOperation
    permission_type: ACLPermissionType
    resource_pattern: ResourcePattern

    def __post_init__(self) -> None:
        check_fields(self)
        if self.operation in (ACLOperation.ANY, ACLOperation.UNKNOWN):
            raise ArgumentError(f"operation {self.operation.name} is only for an ACLFilter")
        if self.permission_type in (ACLPermissionType.ANY, ACLPermissionType.UNKNOWN):
            raise ArgumentError(f"permission_type {self.permission_type.name} is only for an ACLFilter")

    def __str__(self) -> str:
        host = "" if self.host == "*" else f" from {self.host}"
        return (
            f"{self.permission_type.name.lower()} {self.principal}{host} {self.operation.name.lower()}"
            f" on {self.resource_pattern}"
        )
