"""Which ACLs decide an operation."""

import pytest

from ottla.client.admin.acls import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    ResourcePattern,
)
from ottla.operations.security.acl_decision import Question, decide
from ottla.security.acl_index import Verdict
from ottla.security.resources import Operation, ResourceType


def acl(words: str) -> ACL:
    """`allow User:a read t*`, perhaps with `@host`."""
    permission, principal, operation, name = words.split()
    principal, _, host = principal.partition("@")
    kind = ACLResourcePatternType.PREFIXED if name.endswith("*") and name != "*" else ACLResourcePatternType.LITERAL
    return ACL(
        principal,
        host or "*",
        ACLOperation[operation.upper()],
        ACLPermissionType[permission.upper()],
        ResourcePattern(ACLResourceType.TOPIC, name if name == "*" else name.rstrip("*"), kind),
    )


@pytest.mark.parametrize(
    ("acls", "operation", "verdict", "because"),
    [
        ([], Operation.READ, Verdict.NOT_COVERED, []),
        (["allow User:a read t"], Operation.READ, Verdict.ALLOWED, [0]),
        (["allow User:a read t"], Operation.DESCRIBE, Verdict.ALLOWED, [0]),
        (["allow User:a read t", "allow User:* all t*"], Operation.READ, Verdict.ALLOWED, [0, 1]),
        (["allow User:a read t", "deny User:a read *"], Operation.READ, Verdict.DENIED, [1]),
        (["allow User:a read t", "deny User:a read *"], Operation.DESCRIBE, Verdict.ALLOWED, [0]),
        (["allow User:b read t"], Operation.READ, Verdict.DENIED, []),
        (["allow User:a read t", "deny User:a@10.0.0.0/8 all t"], Operation.READ, Verdict.DENIED, [1]),
        (["allow User:a read t", "deny User:a@10.1.0.0/16 all t"], Operation.READ, Verdict.ALLOWED, [0]),
    ],
)
def test_decides_and_says_why(acls: list[str], operation: Operation, verdict: Verdict, because: list[int]) -> None:
    known = [acl(each) for each in acls]
    question = Question(
        principal="User:a", host="10.0.0.1", operation=operation, resource_type=ResourceType.TOPIC, name="t"
    )
    found = decide(known, question)
    assert (verdict, [known[at] for at in because]) == (found.verdict, list(found.because))
