"""The options of `ottla acls`, with the names of kafka-acls, and the ACLs and filters that they describe."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.options import UsageError, parse_choice, parse_choices

if TYPE_CHECKING:
    from ottla.client.admin.acls import (
        ACL,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourceType,
        ResourcePattern,
        ResourcePatternFilter,
    )

ANY_HOST: Final = "*"
_FIXED_TYPES: Final = {("CLUSTER", "kafka-cluster"): "LITERAL", ("TOPIC", ":subject:"): "PREFIXED"}


def _option(name: str, metavar: str, words: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(name, metavar=metavar, help=words, show_default=False)
    return found


AllowPrincipals = Annotated[
    list[str] | None, _option("--allow-principal", "TYPE:NAME", "Principal to allow; may be repeated.")
]
DenyPrincipals = Annotated[
    list[str] | None, _option("--deny-principal", "TYPE:NAME", "Principal to deny; may be repeated.")
]
AllowHosts = Annotated[
    list[str] | None,
    _option("--allow-host", "HOST", "Only from this address or CIDR range, for --allow-principal; may be repeated."),
]
DenyHosts = Annotated[
    list[str] | None,
    _option("--deny-host", "HOST", "Only from this address or CIDR range, for --deny-principal; may be repeated."),
]
Operations = Annotated[
    list[str] | None,
    _option("--operation", "OPERATION,...", "Operations, such as Read or DescribeConfigs; may be repeated."),
]
Topics = Annotated[list[str] | None, _option("--topic", "TOPIC", "Topic, or `*` for all; may be repeated.")]
Groups = Annotated[list[str] | None, _option("--group", "GROUP", "Group, or `*` for all; may be repeated.")]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
TransactionalIds = Annotated[
    list[str] | None, _option("--transactional-id", "ID", "Transactional id, or `*` for all; may be repeated.")
]
Tokens = Annotated[list[str] | None, _option("--delegation-token", "ID", "Delegation token; may be repeated.")]
Users = Annotated[
    list[str] | None,
    _option("--user-principal", "TYPE:NAME", "User whose tokens may be created or described; may be repeated."),
]
Subjects = Annotated[
    list[str] | None,
    _option("--subject", "SUBJECT", "Subject of the schema registry, or `*` for all; may be repeated."),
]
PatternType = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        metavar="literal|prefixed",
        help="Whether resource names are literal or prefixes.",
    ),
]
FilterType = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        metavar="any|match|literal|prefixed",
        help="ACLs to find: all with this resource name (any), all that apply to the resource (match), or those of"
        " one type.",
    ),
]
Principals = Annotated[
    list[str] | None, _option("--principal", "TYPE:NAME", "Only ACLs of this principal; may be repeated.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceOptions:
    """The resources of a command line."""

    topics: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    cluster: bool = False
    transactional_ids: Sequence[str] | None = None
    tokens: Sequence[str] | None = None
    users: Sequence[str] | None = None
    subjects: Sequence[str] | None = None

    def names(self) -> "Iterator[tuple[ACLResourceType, str]]":
        """Type and name of each."""
        from ottla.client.admin.acls import CLUSTER_RESOURCE_NAME, ACLResourceType
        from ottla.operations.security.acl_words import SUBJECT_PREFIX

        for kind, names in (
            (ACLResourceType.TOPIC, self.topics),
            (ACLResourceType.TOPIC, [SUBJECT_PREFIX + each.removeprefix("*") for each in self.subjects or ()]),
            (ACLResourceType.GROUP, self.groups),
            (ACLResourceType.TRANSACTIONAL_ID, self.transactional_ids),
            (ACLResourceType.DELEGATION_TOKEN, self.tokens),
            (ACLResourceType.USER, self.users),
            (ACLResourceType.CLUSTER, [CLUSTER_RESOURCE_NAME] if self.cluster else None),
        ):
            for name in names or ():
                yield kind, name

    def patterns(self, pattern_type: str) -> "list[ResourcePattern]":
        """For ACLs to create. The cluster has only one name, which is always literal; all subjects are a prefix."""
        from ottla.client.admin.acls import ACLResourcePatternType, ResourcePattern

        chosen = ACLResourcePatternType[
            parse_choice(pattern_type, ["literal", "prefixed"], "--resource-pattern-type").upper()
        ]
        patterns = []
        for kind, name in self.names():
            fixed = _FIXED_TYPES.get((kind.name, name))
            patterns.append(ResourcePattern(kind, name, chosen if fixed is None else ACLResourcePatternType[fixed]))
        return patterns

    def filters(self, pattern_type: str) -> "list[ResourcePatternFilter]":
        """For ACLs to find; without a resource one that finds all."""
        from ottla.client.admin.acls import ACLResourcePatternType, ResourcePatternFilter
        from ottla.operations.security.acl_words import SUBJECT_PREFIX

        chosen = ACLResourcePatternType[
            parse_choice(pattern_type, ["any", "match", "literal", "prefixed"], "--resource-pattern-type").upper()
        ]
        return [
            ResourcePatternFilter(
                kind,
                name,
                ACLResourcePatternType.PREFIXED
                if name == SUBJECT_PREFIX and chosen is ACLResourcePatternType.LITERAL
                else chosen,
            )
            for kind, name in self.names()
        ] or [ResourcePatternFilter(pattern_type=chosen)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
    """The principals, hosts and operations of a command line."""

    allow_principals: Sequence[str] | None = None
    deny_principals: Sequence[str] | None = None
    allow_hosts: Sequence[str] | None = None
    deny_hosts: Sequence[str] | None = None

    def check(self) -> None:
        """Raises `UsageError` unless the options fit together."""
        for option, hosts, principals in (
            ("--allow-host", self.allow_hosts, self.allow_principals),
            ("--deny-host", self.deny_hosts, self.deny_principals),
        ):
            if hosts and not principals:
                raise UsageError(f"{option} needs {option.replace('host', 'principal')}")
        for principal in (*(self.allow_principals or ()), *(self.deny_principals or ())):
            if ":" not in principal:
                raise UsageError(f"principal {principal!r} must have the form Type:name, as User:{principal}")

    def rules(self) -> "Iterator[tuple[ACLPermissionType, str, Sequence[str]]]":
        """Permission, principal and hosts."""
        from ottla.client.admin.acls import ACLPermissionType

        for permission, principals, hosts in (
            (ACLPermissionType.ALLOW, self.allow_principals, self.allow_hosts),
            (ACLPermissionType.DENY, self.deny_principals, self.deny_hosts),
        ):
            for principal in principals or ():
                yield permission, principal, hosts or ()

    def acls(self, operations: "Sequence[ACLOperation]", pattern: "ResourcePattern") -> "Iterator[ACL]":
        """The ACLs of one resource."""
        from ottla.client.admin.acls import ACL

        for permission, principal, hosts in self.rules():
            for host in hosts or (ANY_HOST,):
                for operation in operations:
                    yield ACL(principal, host, operation, permission, pattern)

    def filters(
        self, operations: "Sequence[ACLOperation]", pattern: "ResourcePatternFilter | ResourcePattern"
    ) -> "Iterator[ACLFilter]":
        """What finds ACLs of one resource; what is not given may be anything."""
        from ottla.client.admin.acls import ACLFilter, ACLOperation, ACLPermissionType

        rules: list[tuple[ACLPermissionType, str | None, Sequence[str]]] = list(self.rules())
        if not rules:
            rules = [(ACLPermissionType.ANY, None, ())]
        for permission, principal, hosts in rules:
            for host in hosts or (None,):
                for operation in operations or (ACLOperation.ANY,):
                    yield ACLFilter(principal, host, operation, permission, pattern)


def parse_operations(words: Sequence[str] | None) -> "list[ACLOperation]":
    """Operations as kafka-acls spells them (DescribeConfigs), or with underscores, in any case."""
    from ottla.operations.security.acl_words import operations_by_spelling

    known = operations_by_spelling()
    given = [each.replace("_", "").replace("-", "") for each in words or ()]
    return [known[each] for each in parse_choices(given, list(known), "--operation")]
