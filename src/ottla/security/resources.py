"""Resources and the operations on them, with Kafka's numbers.

Which operations exist for a resource type decides the bits of the `authorized_operations` fields in responses.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Final


class ResourceType(IntEnum):
    """What an operation is done to."""

    # An enumeration hashes its member's name, in Python; every decision looks some up.
    __hash__ = int.__hash__

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(IntEnum):
    """What is done. ALL occurs in ACLs only, and stands for every other one."""

    __hash__ = int.__hash__

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


CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""

OPERATIONS: Final[dict[ResourceType, frozenset[Operation]]] = {
    ResourceType.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset(
        {
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        }
    ),
}
"""The operations that exist for a resource type, for those types whose allowed operations are part of responses."""

OPERATIONS_NOT_REQUESTED: Final = -(2**31)
"""The value of an `authorized_operations` field that the client did not ask for."""


def operation_bits(resource_type: ResourceType, is_allowed: Callable[[Operation], bool]) -> int:
    """The allowed operations of a resource as a bit set."""
    return sum(1 << operation for operation in OPERATIONS[resource_type] if is_allowed(operation))


ALL_OPERATION_BITS: Final = {each: operation_bits(each, lambda operation: True) for each in OPERATIONS}
