"""Decides what ACLs say about one operation, and names those that decide it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.client.admin.acls import ACL, ACLPermissionType
from ottla.security.acl_hosts import parse_host
from ottla.security.acl_index import AclIndex, Verdict
from ottla.security.acls import AclBinding, PatternType, Permission
from ottla.security.resources import Operation, ResourceType


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Whether a principal that connects from a host may do something to a resource."""

    principal: str
    host: str
    operation: Operation
    resource_type: ResourceType
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer of the ACLs, and the ACLs that made it."""

    verdict: Verdict
    because: tuple[ACL, ...]


def decide(acls: Iterable[ACL], question: Question) -> Decision:
    """What these ACLs say. An ACL is a reason if it alone gives this answer."""
    known = list(acls)
    verdict = _verdict(known, question)
    if verdict is Verdict.NOT_COVERED:
        return Decision(verdict=verdict, because=())
    permission = ACLPermissionType.ALLOW if verdict is Verdict.ALLOWED else ACLPermissionType.DENY
    applied = [each for each in known if each.permission_type is permission and _applies(each, question)]
    return Decision(verdict=verdict, because=tuple(applied))


def _applies(acl: ACL, question: Question) -> bool:
    """Whether the ACL, as an ALLOW or a DENY, is about what is asked."""
    if acl.permission_type is ACLPermissionType.ALLOW:
        return _verdict([acl], question) is Verdict.ALLOWED
    # A DENY implies nothing: it must be about the operation itself, from this host.
    everything = ACL(acl.principal, "*", type(acl.operation).ALL, ACLPermissionType.ALLOW, acl.resource_pattern)
    return _verdict([everything], question) is Verdict.ALLOWED and (
        _verdict([everything, acl], question) is Verdict.DENIED
    )


def _verdict(acls: Iterable[ACL], question: Question) -> Verdict:
    index = AclIndex(_binding(each) for each in acls)
    return index.decide(
        question.principal,
        parse_host(question.host.strip("[]")),
        question.operation,
        question.resource_type,
        question.name,
    )


def _binding(acl: ACL) -> AclBinding:
    pattern = acl.resource_pattern
    return AclBinding(
        resource_type=ResourceType(int(pattern.resource_type)),
        pattern_type=PatternType(int(pattern.pattern_type)),
        name=pattern.resource_name,
        principal=acl.principal,
        host=acl.host,
        operation=Operation(int(acl.operation)),
        permission=Permission(int(acl.permission_type)),
    )
