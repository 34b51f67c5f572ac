"""The ACLs that a producer or a consumer needs, as `--producer` and `--consumer` of kafka-acls create them. Pure."""

from ottla.cli.acls.options import ResourceOptions
from ottla.cli.options import UsageError
from ottla.client.admin.acls import (
    CLUSTER_RESOURCE_NAME,
    ACLOperation,
    ACLResourcePatternType,
    ACLResourceType,
    ResourcePattern,
)
from ottla.operations.security.acl_words import needed_operations


def needs(
    resources: ResourceOptions, pattern_type: str, *, producer: bool, consumer: bool, idempotent: bool
) -> list[tuple[ResourcePattern, list[ACLOperation]]]:
    """Which operations on which resources. Raises `UsageError` if a resource is missing, or one is of no use."""
    if idempotent and not producer:
        raise UsageError("--idempotent needs --producer")
    if not resources.topics:
        raise UsageError("--producer and --consumer need --topic")
    if consumer and not resources.groups:
        raise UsageError("--consumer needs --group")
    if resources.groups and not consumer:
        raise UsageError("--group does not apply to --producer; add --consumer, or pass --operation instead")
    if resources.transactional_ids and not producer:
        raise UsageError("--transactional-id does not apply to --consumer; add --producer")
    if resources.cluster or resources.tokens or resources.users or resources.subjects:
        raise UsageError("--producer and --consumer take only --topic, --group and --transactional-id")
    found: dict[ResourcePattern, dict[ACLOperation, None]] = {}
    for pattern in resources.patterns(pattern_type):
        for operation in needed_operations(pattern.resource_type, producer=producer, consumer=consumer):
            found.setdefault(pattern, {})[operation] = None
    if idempotent:
        cluster = ResourcePattern(ACLResourceType.CLUSTER, CLUSTER_RESOURCE_NAME, ACLResourcePatternType.LITERAL)
        found[cluster] = {ACLOperation.IDEMPOTENT_WRITE: None}
    return [(pattern, list(operations)) for pattern, operations in found.items()]
