"""How ACLs are written: the names of operations, resources of a schema registry, and what producers and consumers need.

Pure.
"""

from typing import Final

from ottla.client.admin.acls import ACLOperation, ACLResourceType

SUBJECT_PREFIX: Final = ":subject:"
"""ACLs of a registry's subjects are ACLs of topics with names that begin so; no topic's name does."""

_PRODUCER: Final = {
    ACLResourceType.TOPIC: (ACLOperation.WRITE, ACLOperation.DESCRIBE, ACLOperation.CREATE),
    ACLResourceType.TRANSACTIONAL_ID: (ACLOperation.WRITE, ACLOperation.DESCRIBE),
}
_CONSUMER: Final = {
    ACLResourceType.TOPIC: (ACLOperation.READ, ACLOperation.DESCRIBE),
    ACLResourceType.GROUP: (ACLOperation.READ,),
}


def spelled_operation(operation: ACLOperation) -> str:
    """An operation as kafka-acls spells it, such as DescribeConfigs."""
    return operation.name.title().replace("_", "")


def operations_by_spelling() -> dict[str, ACLOperation]:
    """The operations that an ACL may have, by the name that kafka-acls gives them."""
    return {
        spelled_operation(each): each for each in ACLOperation if each not in (ACLOperation.UNKNOWN, ACLOperation.ANY)
    }


def needed_operations(kind: ACLResourceType, *, producer: bool, consumer: bool) -> list[ACLOperation]:
    """What a producer or a consumer needs on a resource, as `--producer` and `--consumer` of kafka-acls create it."""
    found = (*(_PRODUCER.get(kind, ()) if producer else ()), *(_CONSUMER.get(kind, ()) if consumer else ()))
    return list(dict.fromkeys(found))
