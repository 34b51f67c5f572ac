"""Decides by ACLs, with Kafka's rules, in a time that does not grow with their number. Pure.

The rules: of all ACLs whose pattern covers the resource (its literal name, a prefix of it, or `*`), for the principal
or for `User:*`, from the client's host, with this operation or ALL: if one denies, the answer is no; otherwise yes if
one allows. An ALLOW of READ, WRITE, DELETE or ALTER also allows DESCRIBE, and of ALTER_CONFIGS also DESCRIBE_CONFIGS; a
DENY denies nothing but its own operation.

A decision looks up the name, `*`, and one prefix of the name for each length that prefixes have. What a principal may
do at one pattern is merged into two sets of bits; only ACLs for particular hosts are looked at one by one.
"""

from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from itertools import chain
from typing import Final, NamedTuple

from ottla.security.acl_hosts import Host, HostPattern
from ottla.security.acls import WILDCARD, WILDCARD_PRINCIPAL, AclBinding, PatternType, Permission
from ottla.security.resources import Operation, ResourceType

_IMPLIED: Final[dict[Operation, Operation]] = {
    Operation.READ: Operation.DESCRIBE,
    Operation.WRITE: Operation.DESCRIBE,
    Operation.DELETE: Operation.DESCRIBE,
    Operation.ALTER: Operation.DESCRIBE,
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}
_EVERY_BIT: Final = -1


class Verdict(Enum):
    """What ACLs say."""

    ALLOWED = "allowed"
    DENIED = "denied"
    NOT_COVERED = "not covered"
    """No ACL of anyone covers the resource: the broker's configuration decides."""


class _Rule(NamedTuple):
    """An ACL for some hosts."""

    host: HostPattern
    allowed: int
    denied: int


class _Grants:
    """What one principal may do at one pattern: bits of operations."""

    __slots__ = ("allowed", "bindings", "by_host", "denied")

    def __init__(self) -> None:
        self.bindings: set[AclBinding] = set()
        self.allowed = self.denied = 0
        """From any host."""
        self.by_host: tuple[_Rule, ...] = ()

    def merge(self) -> None:
        """To be called when `bindings` has changed."""
        self.allowed = self.denied = 0
        rules = []
        for binding in self.bindings:
            host = HostPattern(binding.host)
            rule = _Rule(host, _allowed_bits(binding), _denied_bits(binding))
            if host.is_any:
                self.allowed |= rule.allowed
                self.denied |= rule.denied
            else:
                rules.append(rule)
        self.by_host = tuple(rules)


class _Patterns:
    """The ACLs of one resource type."""

    __slots__ = ("by_principal", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, dict[str, _Grants]] = {}
        """By name, then by principal."""
        self.prefixed: dict[str, dict[str, _Grants]] = {}
        self.lengths: tuple[int, ...] = ()
        """The lengths of all prefixes, ascending."""
        self.by_principal: dict[str, set[tuple[PatternType, str]]] = {}
        """The patterns at which a principal has ACLs."""

    def of(self, pattern_type: PatternType) -> dict[str, dict[str, _Grants]]:
        return self.prefixed if pattern_type is PatternType.PREFIXED else self.literal

    def covering(self, name: str) -> list[dict[str, _Grants]]:
        """The ACLs by principal of each pattern that covers the name."""
        patterns = [self.literal.get(name), self.literal.get(WILDCARD) if name != WILDCARD else None]
        size, prefixed = len(name), self.prefixed
        patterns += [prefixed.get(name[:length]) for length in self.lengths if length <= size]
        return [each for each in patterns if each is not None]


class AclIndex:
    """A set of ACLs, indexed for decisions."""

    def __init__(self, bindings: Iterable[AclBinding] = ()) -> None:
        self._types: dict[ResourceType, _Patterns] = {each: _Patterns() for each in ResourceType}
        self.change(added=bindings, removed=())

    def change(self, *, added: Iterable[AclBinding], removed: Iterable[AclBinding]) -> None:
        """Adds and removes ACLs; those that are there already, or are not, change nothing."""
        touched: dict[tuple[ResourceType, PatternType, str, str], _Grants] = {}
        for binding, is_added in chain(((each, False) for each in removed), ((each, True) for each in added)):
            patterns = self._types[binding.resource_type]
            by_principal = patterns.of(binding.pattern_type).setdefault(binding.name, {})
            grants = by_principal.setdefault(binding.principal, _Grants())
            (grants.bindings.add if is_added else grants.bindings.discard)(binding)
            touched[binding.resource_type, binding.pattern_type, binding.name, binding.principal] = grants
        for (resource_type, pattern_type, name, principal), grants in touched.items():
            patterns = self._types[resource_type]
            at_pattern, held = patterns.of(pattern_type), patterns.by_principal.setdefault(principal, set())
            if grants.bindings:
                grants.merge()
                held.add((pattern_type, name))
                continue
            held.discard((pattern_type, name))
            if not held:
                del patterns.by_principal[principal]
            del at_pattern[name][principal]
            if not at_pattern[name]:
                del at_pattern[name]
        for resource_type in {each[0] for each in touched if each[1] is PatternType.PREFIXED}:
            patterns = self._types[resource_type]
            patterns.lengths = tuple(sorted({len(prefix) for prefix in patterns.prefixed}))

    def decide(
        self, principal: str, host: Host, operation: Operation, resource_type: ResourceType, name: str
    ) -> Verdict:
        """What the ACLs say about an operation on a resource."""
        bit = 1 << int(operation)
        covering = self._types[resource_type].covering(name)
        is_allowed = False
        for by_principal in covering:
            for each in (principal, WILDCARD_PRINCIPAL):
                grants = by_principal.get(each)
                if grants is None:
                    continue
                if grants.denied & bit:
                    return Verdict.DENIED
                if grants.allowed & bit:
                    is_allowed = True
                for rule in grants.by_host:
                    if (rule.allowed | rule.denied) & bit and rule.host.matches(host):
                        if rule.denied & bit:
                            return Verdict.DENIED
                        is_allowed = True
        if is_allowed:
            return Verdict.ALLOWED
        return Verdict.DENIED if covering else Verdict.NOT_COVERED

    def allows_some(self, principal: str, host: Host, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether some name of the type, existing or not, is allowed, by ACLs for exactly this operation or ALL.

        As Kafka decides it: a DENY for `*` denies, else an ALLOW for `*` allows; else one ALLOW must have neither a
        DENY for the same literal name, nor one for a prefix of its own name.
        """
        patterns = self._types[resource_type]
        allowed: set[tuple[PatternType, str]] = set()
        denied: set[tuple[PatternType, str]] = set()
        for each in {principal, WILDCARD_PRINCIPAL}:
            for pattern_type, name in patterns.by_principal.get(each, ()):
                bindings = patterns.of(pattern_type)[name][each].bindings
                for permission in _permissions(bindings, host, operation):
                    (denied if permission is Permission.DENY else allowed).add((pattern_type, name))
        everything = (PatternType.LITERAL, WILDCARD)
        if everything in denied:
            return False
        if everything in allowed:
            return True
        lengths = sorted({len(prefix) for pattern_type, prefix in denied if pattern_type is PatternType.PREFIXED})
        return any(not _is_hidden(pattern, denied, lengths) for pattern in allowed)


def _is_hidden(
    pattern: tuple[PatternType, str], denied: Collection[tuple[PatternType, str]], lengths: Iterable[int]
) -> bool:
    pattern_type, name = pattern
    if pattern_type is PatternType.LITERAL and pattern in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in lengths if length <= len(name))


def _permissions(bindings: Iterable[AclBinding], host: Host, operation: Operation) -> Iterator[Permission]:
    for binding in bindings:
        if binding.operation in (operation, Operation.ALL) and HostPattern(binding.host).matches(host):
            yield binding.permission


def _allowed_bits(binding: AclBinding) -> int:
    if binding.permission is Permission.DENY:
        return 0
    if binding.operation is Operation.ALL:
        return _EVERY_BIT
    implied = _IMPLIED.get(binding.operation)
    return 1 << binding.operation | (0 if implied is None else 1 << implied)


def _denied_bits(binding: AclBinding) -> int:
    if binding.permission is Permission.ALLOW:
        return 0
    return _EVERY_BIT if binding.operation is Operation.ALL else 1 << binding.operation
