"""The index of ACLs: Kafka's rules case by case, and against a model that looks at every ACL."""

import time
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.acl_hosts import Host, HostPattern, host_of, parse_host
from ottla.security.acl_index import AclIndex, Verdict
from ottla.security.acls import AclBinding, PatternType, Permission
from ottla.security.resources import Operation, ResourceType

ALLOWED, DENIED, NOT_COVERED = Verdict.ALLOWED, Verdict.DENIED, Verdict.NOT_COVERED


def acl(line: str) -> AclBinding:
    """`ALLOW User:a READ TOPIC name`; a name that ends in `+` is a prefix. `from host` may follow."""
    permission, principal, operation, resource_type, name, *host = line.split()
    is_prefix = name.endswith("+")
    return AclBinding(
        resource_type=ResourceType[resource_type],
        pattern_type=PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        name=name.removesuffix("+"),
        principal=principal,
        host=host[1] if host else "*",
        operation=Operation[operation],
        permission=Permission[permission],
    )


def decide(
    lines: str, operation: str, name: str = "orders", principal: str = "User:a", host: str = "10.0.0.1"
) -> Verdict:
    index = AclIndex(acl(line) for line in lines.split("; ") if line)
    return index.decide(principal, parse_host(host), Operation[operation], ResourceType.TOPIC, name)


@pytest.mark.parametrize(
    ("lines", "operation", "expected"),
    [
        ("", "READ", NOT_COVERED),
        ("ALLOW User:a READ TOPIC other", "READ", NOT_COVERED),
        ("ALLOW User:a READ GROUP orders", "READ", NOT_COVERED),
        ("ALLOW User:a READ TOPIC orders", "READ", ALLOWED),
        ("ALLOW User:a READ TOPIC orders", "WRITE", DENIED),
        ("ALLOW User:b READ TOPIC orders", "READ", DENIED),
        ("ALLOW User:A READ TOPIC orders", "READ", DENIED),
        ("ALLOW User:* READ TOPIC orders", "READ", ALLOWED),
        ("ALLOW Group:* READ TOPIC orders", "READ", DENIED),
        ("ALLOW User:a READ TOPIC *", "READ", ALLOWED),
        ("ALLOW User:a READ TOPIC ord+", "READ", ALLOWED),
        ("ALLOW User:a READ TOPIC orders+", "READ", ALLOWED),
        ("ALLOW User:a READ TOPIC orders2+", "READ", NOT_COVERED),
        ("ALLOW User:a READ TOPIC *+", "READ", NOT_COVERED),
        ("ALLOW User:a READ TOPIC ord", "READ", NOT_COVERED),
        ("ALLOW User:a ALL TOPIC orders", "ALTER_CONFIGS", ALLOWED),
        ("DENY User:a ALL TOPIC orders", "READ", DENIED),
        ("ALLOW User:a ALL TOPIC orders; DENY User:a WRITE TOPIC ord+", "WRITE", DENIED),
        ("ALLOW User:a ALL TOPIC orders; DENY User:a WRITE TOPIC *", "WRITE", DENIED),
        ("ALLOW User:a ALL TOPIC orders; DENY User:* WRITE TOPIC orders", "WRITE", DENIED),
        ("ALLOW User:a ALL TOPIC orders; DENY User:a WRITE TOPIC ord+", "READ", ALLOWED),
        ("ALLOW User:a READ TOPIC orders", "DESCRIBE", ALLOWED),
        ("ALLOW User:a WRITE TOPIC orders", "DESCRIBE", ALLOWED),
        ("ALLOW User:a DELETE TOPIC orders", "DESCRIBE", ALLOWED),
        ("ALLOW User:a ALTER TOPIC orders", "DESCRIBE", ALLOWED),
        ("ALLOW User:a CREATE TOPIC orders", "DESCRIBE", DENIED),
        ("ALLOW User:a ALTER_CONFIGS TOPIC orders", "DESCRIBE", DENIED),
        ("ALLOW User:a ALTER_CONFIGS TOPIC orders", "DESCRIBE_CONFIGS", ALLOWED),
        ("ALLOW User:a ALTER TOPIC orders", "DESCRIBE_CONFIGS", DENIED),
        ("ALLOW User:a DESCRIBE TOPIC orders", "READ", DENIED),
        ("ALLOW User:a DESCRIBE TOPIC orders; DENY User:a READ TOPIC orders", "DESCRIBE", ALLOWED),
        ("ALLOW User:a READ TOPIC orders; DENY User:a DESCRIBE TOPIC orders", "DESCRIBE", DENIED),
        ("ALLOW User:a READ TOPIC orders; DENY User:a DESCRIBE TOPIC orders", "READ", ALLOWED),
        ("ALLOW User:a READ TOPIC orders from 10.0.0.1", "READ", ALLOWED),
        ("ALLOW User:a READ TOPIC orders from 10.0.0.2", "READ", DENIED),
        ("ALLOW User:a READ TOPIC orders; DENY User:a READ TOPIC orders from 10.0.0.1", "READ", DENIED),
        ("ALLOW User:a READ TOPIC orders; DENY User:a READ TOPIC orders from 10.0.0.2", "READ", ALLOWED),
        ("ALLOW User:a READ TOPIC orders; DENY User:a READ TOPIC orders from 10.0.0.0/31", "READ", DENIED),
        ("ALLOW User:a READ TOPIC orders; DENY User:a READ TOPIC orders from 10.0.0.2/31", "READ", ALLOWED),
    ],
)
def test_rules(lines: str, operation: str, expected: Verdict) -> None:
    assert expected is decide(lines, operation)


@pytest.mark.parametrize(
    ("pattern", "address", "expected"),
    [
        ("*", "10.0.0.1:5", True),
        ("10.0.0.1", "10.0.0.1:5", True),
        ("10.0.0.1", "10.0.0.10:5", False),
        ("10.0.0.1", "[::ffff:10.0.0.1]:5", True),
        ("10.0.0.0/24", "10.0.0.0:5", True),
        ("10.0.0.0/24", "10.0.0.255:5", True),
        ("10.0.0.77/24", "10.0.0.1:5", True),
        ("10.0.0.0/24", "10.0.1.0:5", False),
        ("10.0.0.0/24", "[2001:db8::1]:5", False),
        ("0.0.0.0/0", "8.8.8.8:5", True),
        ("2001:db8::/32", "[2001:db8::1]:5", True),
        ("2001:db8::/32", "2001:db8::1:5", True),
        ("2001:db8:0:0:0:0:0:1", "[2001:db8::1]:5", True),
        ("::1", "[::1]:5", True),
        ("unix", "unix:5", True),
        ("a/b", "10.0.0.1:5", False),
    ],
)
def test_hosts(pattern: str, address: str, expected: bool) -> None:
    assert expected is HostPattern(pattern).matches(host_of(address))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", False),
        ("ALLOW User:a WRITE TOPIC x", True),
        ("ALLOW User:b WRITE TOPIC x", False),
        ("ALLOW User:* WRITE TOPIC x", True),
        ("ALLOW User:a ALL TOPIC x+", True),
        ("ALLOW User:a READ TOPIC x", False),
        ("ALLOW User:a WRITE TOPIC x from 1.1.1.1", False),
        ("ALLOW User:a WRITE TOPIC *; DENY User:a WRITE TOPIC *", False),
        ("ALLOW User:a WRITE TOPIC x; DENY User:* ALL TOPIC *", False),
        ("ALLOW User:a WRITE TOPIC x; DENY User:a WRITE TOPIC x", False),
        ("ALLOW User:a WRITE TOPIC x; DENY User:a WRITE TOPIC x from 1.1.1.1", True),
        ("ALLOW User:a WRITE TOPIC x+; DENY User:a WRITE TOPIC x", True),
        ("ALLOW User:a WRITE TOPIC xyz+; DENY User:a WRITE TOPIC xy+", False),
        ("ALLOW User:a WRITE TOPIC xyz; DENY User:a WRITE TOPIC xy+", False),
        ("ALLOW User:a WRITE TOPIC xyz; DENY User:a WRITE TOPIC xy", True),
        ("ALLOW User:a WRITE TOPIC x+; DENY User:a WRITE TOPIC xy+", True),
        ("ALLOW User:a WRITE TOPIC *; DENY User:a WRITE TOPIC x+", True),
    ],
)
def test_some_resource_of_a_type(lines: str, expected: bool) -> None:
    index = AclIndex(acl(line) for line in lines.split("; ") if line)
    assert expected is index.allows_some("User:a", parse_host("10.0.0.1"), Operation.WRITE, ResourceType.TOPIC)


# Against a model

NAMES = st.text("ab*", min_size=1, max_size=4)
PRINCIPALS = st.sampled_from(["User:a", "User:b", "User:*", "Group:a"])
HOSTS = st.sampled_from(["*", "10.0.0.1", "10.0.0.2", "10.0.0.0/31", "::/0"])
OPERATIONS = st.sampled_from(Operation)
ASKED = st.sampled_from([each for each in Operation if each is not Operation.ALL])
TYPES = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
BINDINGS = st.builds(
    AclBinding,
    resource_type=TYPES,
    pattern_type=st.sampled_from(PatternType),
    name=NAMES,
    principal=PRINCIPALS,
    host=HOSTS,
    operation=OPERATIONS,
    permission=st.sampled_from(Permission),
)
IMPLY = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "::2"]).map(ip_address)


def naive(
    bindings: set[AclBinding], principal: str, host: Host, operation: Operation, kind: ResourceType, name: str
) -> Verdict:
    covering = [each for each in bindings if each.resource_type is kind and each.applies_to(name)]
    mine = [
        each for each in covering if each.principal in (principal, "User:*") and HostPattern(each.host).matches(host)
    ]
    denies = {each.operation for each in mine if each.permission is Permission.DENY}
    allows = {each.operation for each in mine if each.permission is Permission.ALLOW}
    if denies & {operation, Operation.ALL}:
        return DENIED
    if allows & ({operation, Operation.ALL} | IMPLY.get(operation, set())):
        return ALLOWED
    return DENIED if covering else NOT_COVERED


@given(
    steps=st.lists(st.tuples(st.sets(BINDINGS, max_size=12), st.sets(BINDINGS, max_size=4)), min_size=1, max_size=4),
    kept=st.randoms(use_true_random=False),
    questions=st.lists(st.tuples(PRINCIPALS, ADDRESSES, ASKED, TYPES, NAMES), min_size=1, max_size=20),
)
def test_index_and_model_agree(steps, kept, questions) -> None:  # type: ignore[no-untyped-def]
    """After any changes, and as an index that is built from the outcome."""
    index, bindings = AclIndex(), set[AclBinding]()
    for added, others in steps:
        removed = {each for each in bindings if kept.random() < 0.5} | others
        index.change(added=added, removed=removed)
        bindings = bindings - removed | added
        rebuilt = AclIndex(bindings)
        for question in questions:
            expected = naive(bindings, *question)
            assert (expected, expected) == (index.decide(*question), rebuilt.decide(*question))
            assert rebuilt.allows_some(*question[:4]) is index.allows_some(*question[:4])


def test_decisions_do_not_look_at_every_acl() -> None:
    """Ten thousand decisions among ten thousand ACLs: looking at each of them would take minutes."""
    lines = [f"ALLOW User:u{number} READ TOPIC t{number}{'+' * (number % 2)}" for number in range(10_000)]
    index = AclIndex(map(acl, lines))
    host = parse_host("10.0.0.1")
    start = time.process_time()
    answers = [
        index.decide(f"User:u{number}", host, Operation.READ, ResourceType.TOPIC, f"t{number}")
        for number in range(10_000)
    ]
    assert [ALLOWED] * 10_000 == answers
    assert time.process_time() - start < 5
