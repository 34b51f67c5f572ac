"""Operations as kafka-acls spells them, and what producers and consumers need."""

import pytest

from ottla.client.admin.acls import ACLOperation, ACLResourceType
from ottla.operations.security.acl_words import needed_operations, operations_by_spelling, spelled_operation


def test_operations_by_their_spelling() -> None:
    spelled = operations_by_spelling()
    assert (ACLOperation.DESCRIBE_CONFIGS, ACLOperation.ALL) == (spelled["DescribeConfigs"], spelled["All"])
    assert {ACLOperation.UNKNOWN, ACLOperation.ANY} == {*ACLOperation} - {*spelled.values()}
    assert [*spelled] == [spelled_operation(each) for each in spelled.values()]
    assert "IdempotentWrite" == spelled_operation(ACLOperation.IDEMPOTENT_WRITE)


READ, WRITE, DESCRIBE, CREATE = ACLOperation.READ, ACLOperation.WRITE, ACLOperation.DESCRIBE, ACLOperation.CREATE
TOPIC, GROUP = ACLResourceType.TOPIC, ACLResourceType.GROUP


@pytest.mark.parametrize(
    ("kind", "producer", "consumer", "operations"),
    [
        (TOPIC, True, False, [WRITE, DESCRIBE, CREATE]),
        (TOPIC, False, True, [READ, DESCRIBE]),
        (TOPIC, True, True, [WRITE, DESCRIBE, CREATE, READ]),
        (TOPIC, False, False, []),
        (ACLResourceType.TRANSACTIONAL_ID, True, True, [WRITE, DESCRIBE]),
        (GROUP, False, True, [READ]),
        (GROUP, True, False, []),
        (ACLResourceType.CLUSTER, True, True, []),
    ],
)
def test_what_producers_and_consumers_need(
    kind: ACLResourceType, producer: bool, consumer: bool, operations: list[ACLOperation]
) -> None:
    assert operations == needed_operations(kind, producer=producer, consumer=consumer)
