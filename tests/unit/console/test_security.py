"""Security: explanations and previews without a cluster, and all pages on a broker with an authorizer."""

from typing import Any

import pytest

from ottla.client.admin.acls import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    ResourcePattern,
)
from ottla.console.services.permissions import (
    AuthorizerFacts,
    Explanation,
    explain,
    facts_of,
    parse_operation,
    parse_resource,
    principal_of,
)
from ottla.console.services.security import (
    AclForm,
    QuotaRow,
    UserRow,
    acl_key,
    parse_acl_key,
    plan_acls,
    plan_quotas,
    plan_removal,
    plan_user,
    select_acls,
)
from ottla.model.errors import InvalidRequestError
from ottla.operations.security.acl_decision import Question
from ottla.security.quota_entity import QuotaEntity

FACTS = AuthorizerFacts(has_authorizer=True, super_users=frozenset({"User:admin"}), allows_uncovered=False)
HIDDEN = AuthorizerFacts(has_authorizer=None, super_users=None, allows_uncovered=None, unseen=("hidden",))


def acl(words: str) -> ACL:
    """`allow User:alice READ topic orders literal *`."""
    permission, principal, operation, kind, name, pattern, host = words.split()
    return ACL(
        principal,
        host,
        ACLOperation[operation],
        ACLPermissionType[permission.upper()],
        ResourcePattern(ACLResourceType[kind.upper()], name, ACLResourcePatternType[pattern.upper()]),
    )


def asked(
    acls: list[str], operation: str, resource: str, facts: AuthorizerFacts = FACTS, user: str = "alice"
) -> Explanation:
    what = parse_resource(resource)
    question = Question(
        principal=principal_of(user),
        host="10.1.2.3",
        operation=parse_operation(operation),
        resource_type=what.type,
        name=what.acl_name,
    )
    return explain([acl(each) for each in acls], question, what, facts)


READ = "allow User:alice READ topic orders literal *"


@pytest.mark.parametrize(
    ("acls", "operation", "resource", "is_allowed", "words"),
    [
        ([READ], "READ", "topic:orders", True, "An ACL allows it"),
        ([READ], "DESCRIBE", "topic:orders", True, "An ACL allows it"),
        ([READ], "WRITE", "topic:orders", False, "none of them allows"),
        ([READ], "READ", "topic:other", False, "No ACL covers"),
        ([READ, "deny User:* ALL topic ord prefixed 10.0.0.0/8"], "READ", "topic:orders", False, "a denial takes"),
        ([READ, "deny User:alice READ topic orders literal 10.9.9.9"], "READ", "topic:orders", True, "An ACL allows"),
        (["deny User:alice READ topic orders literal *"], "DESCRIBE", "topic:orders", False, "none of them allows"),
        (["allow User:* ALL topic * literal *"], "ALTER_CONFIGS", "topic:x", True, "An ACL allows"),
        (["allow User:alice CREATE cluster kafka-cluster literal *"], "CREATE", "topic:new", True, "on the cluster"),
        (["allow User:alice READ topic :subject: prefixed *"], "READ", "subject:orders-value", True, "An ACL allows"),
    ],
)
def test_explains(acls: list[str], operation: str, resource: str, is_allowed: bool, words: str) -> None:
    # A registry has super users of its own, so what ACLs deny there is only denied as far as can be seen.
    found = asked(acls, operation, resource)
    assert is_allowed == bool(found.is_allowed)
    assert words in found.reason


def test_says_which_acl_decides_and_why_others_do_not() -> None:
    deny = "deny User:alice WRITE topic orders literal *"
    bob = "allow User:bob ALL topic orders literal *"
    found = asked([READ, deny, bob], "DESCRIBE", "topic:orders")
    assert (acl(READ),) == found.deciding
    assert ("An ACL that allows READ also allows DESCRIBE.",) == found.notes
    assert ["it denies WRITE only; a denial implies no other operation", "it is for User:bob"] == [
        each.why for each in found.others
    ]
    answers = {each.operation.name: each.is_allowed for each in found.operations}
    assert (True, False, True) == (answers["READ"], answers["WRITE"], answers["DESCRIBE"])


def test_super_users_and_open_clusters() -> None:
    assert "super.users" in asked([], "DELETE", "topic:x", user="admin").reason
    opened = AuthorizerFacts(has_authorizer=True, super_users=frozenset(), allows_uncovered=True)
    assert asked([READ], "READ", "topic:x", opened).is_allowed
    assert asked([READ], "WRITE", "topic:orders", opened).is_allowed is False


def test_never_claims_more_than_can_be_seen() -> None:
    found = asked([READ], "WRITE", "topic:orders", HIDDEN)
    assert (None, ("hidden",)) == (found.is_allowed, found.unseen)
    assert "unless User:alice is a super user" in found.reason
    assert asked([READ], "READ", "topic:orders", HIDDEN).is_allowed
    assert asked([], "READ", "topic:orders", HIDDEN).is_allowed is None
    told = facts_of([{"super.users": "User:a"}, {"super.users": "User:b"}])
    assert told.super_users is None
    assert any("different values of super.users" in each for each in told.unseen)


def test_questions_are_read() -> None:
    assert "cluster" == str(parse_resource("cluster"))
    assert "DESCRIBE_CONFIGS" == parse_operation("DescribeConfigs").name
    for wrong in ("orders", "topic:", "cluster:other", "thing:x"):
        with pytest.raises(InvalidRequestError):
            parse_resource(wrong)
    for wrong in ("ALL", "ANY", "x", ""):
        with pytest.raises(InvalidRequestError):
            parse_operation(wrong)


def form(**fields: Any) -> AclForm:
    given: dict[str, Any] = {
        "principal": "User:alice",
        "permission": "allow",
        "word": "topic",
        "name": "orders",
        "pattern": "literal",
        "host": "*",
        "operations": ("Read",),
    }
    return AclForm(**{**given, **fields})


def test_adding_acls_is_previewed() -> None:
    existing = [acl("deny User:alice WRITE topic orders literal *")]
    plan = plan_acls(existing, form(operations=("Read", "Write")).acls(), FACTS)
    assert [("denied", "allowed", ""), ("denied", "denied")] == [
        (plan.effects[0].before, plan.effects[0].after, plan.effects[0].note),
        (plan.effects[1].before, plan.effects[1].after),
    ]
    assert "because of another ACL: deny" in plan.effects[1].note
    words = ("acls", "add", "--allow-principal", "User:alice", "--operation", "Read,Write", "--topic", "orders")
    assert (words,) == plan.commands
    assert () == plan_acls(plan.acls, list(plan.acls), FACTS).acls
    opened = AuthorizerFacts(has_authorizer=True, super_users=frozenset(), allows_uncovered=True)
    first = plan_acls([], form().acls(), opened)
    assert "allowed (no ACL covers it)" == first.effects[0].before
    assert "first ACL on topic" in first.warnings[0]
    every = plan_acls([], form(principal="User:*", permission="deny").acls(), FACTS)
    assert "you included" in every.warnings[0]


def test_removing_acls_is_previewed() -> None:
    existing = [acl(READ), acl("allow User:* READ topic * literal *")]
    plan = plan_removal(existing, [acl(READ), acl("allow User:zed READ topic gone literal *")], FACTS)
    assert ((acl(READ),), "allowed", "allowed") == (plan.acls, plan.effects[0].before, plan.effects[0].after)
    alone = plan_removal([acl(READ)], [acl(READ)], FACTS)
    assert ("allowed", "denied (no ACL covers it)") == (alone.effects[0].before, alone.effects[0].after)
    ranged = plan_removal([acl("deny User:a WRITE group g prefixed 10.0.0.0/8")] * 2, existing, FACTS)
    assert () == ranged.acls


def test_forms_of_acls() -> None:
    assert ["WRITE", "DESCRIBE", "CREATE"] == [each.operation.name for each in form(operations=("producer",)).acls()]
    assert ":subject:" == form(word="subject", name="*").resource_pattern().resource_name
    assert "kafka-cluster" == form(word="cluster", name="").resource_pattern().resource_name
    for wrong in (
        {"principal": "alice"},
        {"principal": "User:"},
        {"permission": "x"},
        {"word": "x"},
        {"name": ""},
        {"pattern": "match"},
        {"operations": ()},
        {"operations": ("Fly",)},
        {"word": "group", "operations": ("producer",)},
    ):
        with pytest.raises(InvalidRequestError):
            form(**wrong).acls()
    odd = acl("deny User:a WRITE topic x prefixed 10.0.0.0/8")
    assert odd == parse_acl_key(acl_key(odd).replace("\n", "\r\n"))
    with pytest.raises(InvalidRequestError):
        parse_acl_key("x")
    assert [odd] == select_acls([acl(READ), odd], name="xyz")
    assert [acl(READ)] == select_acls([acl(READ), odd], principal="User:alice", word="topic")


def test_quotas_are_previewed() -> None:
    alice = QuotaEntity(user="alice")
    rows = [QuotaRow(entity=alice, words="user alice", values={"producer_byte_rate": 5.0, "request_percentage": 50.0})]
    given = {"producer_byte_rate": "10m", "request_percentage": "", "consumer_byte_rate": ""}
    plan = plan_quotas(rows, alice, given)
    assert [("producer_byte_rate", 5.0, 10485760.0), ("request_percentage", 50.0, None)] == [
        (each.key, each.before, each.after) for each in plan.changes
    ]
    assert (
        ("quotas", "set", "--user", "alice", "producer_byte_rate=10485760"),
        ("quotas", "unset", "--user", "alice", "request_percentage"),
    ) == plan.commands
    for wrong in ({"producer_byte_rate": "x"}, {"request_percentage": "-1"}, {"controller_mutation_rate": "nan"}):
        with pytest.raises(InvalidRequestError):
            plan_quotas(rows, alice, wrong)


def test_users_are_previewed() -> None:
    rows = [UserRow(user="alice", credentials=(("SCRAM-SHA-512", 8192),))]
    plan = plan_user(rows, "alice", ["SCRAM-SHA-512", "SCRAM-SHA-256"])
    assert (("SCRAM-SHA-256",), ("SCRAM-SHA-512",), False) == (plan.added, plan.replaced, plan.is_new)
    assert ("users", "create", "alice", "--replace") == plan.command
    assert ("users", "create", "bob", "--mechanism", "SCRAM-SHA-512") == plan_user(
        rows, "bob", ["SCRAM-SHA-512"]
    ).command
    for user, mechanisms in (("", ["SCRAM-SHA-512"]), ("x", []), ("x", ["PLAIN"])):
        with pytest.raises(InvalidRequestError):
            plan_user(rows, user, mechanisms)
