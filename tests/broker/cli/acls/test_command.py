"""`ottla acls` against a real broker with an authorizer, and command lines that it refuses."""

from collections.abc import Iterator

import pytest

from ottla.metadata.configs.authorization_configs import STANDARD_AUTHORIZER
from tests.unit.cli.command_line import CommandLine

TEST_ACL = {
    "resource_type": "topic",
    "resource_name": "events",
    "pattern_type": "literal",
    "principal": "User:alice",
    "host": "*",
    "operation": "Read",
    "permission_type": "allow",
}


pytestmark = pytest.mark.ottla_broker({"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"})
"""Anonymous clients may do everything."""


@pytest.fixture(autouse=True)
def no_acls(ottla: CommandLine) -> Iterator[None]:
    """Every test begins without ACLs."""
    yield
    for each in ottla.ok("acls", "list", "--json").json:
        option = {"topic": "--topic", "group": "--group", "transactional_id": "--transactional-id"}
        resource = (
            ["--cluster"]
            if each["resource_type"] == "cluster"
            else [option[each["resource_type"]], each["resource_name"]]
        )
        ottla.ok("acls", "remove", *resource, "--resource-pattern-type", each["pattern_type"], "--yes")


def test_an_acl_is_added_listed_and_removed(ottla: CommandLine) -> None:
    added = ottla.ok(
        "acls", "add", "--allow-principal", "User:alice", "--operation", "read", "--topic", "events", "--json"
    )
    assert [TEST_ACL] == added.json
    assert [TEST_ACL] == ottla.ok("acls", "list", "--json").json
    table = ottla.ok("acls", "list").out
    assert "User:alice" in table
    refused = ottla("acls", "remove", "--topic", "events")
    assert (2, True) == (refused.status, "--yes" in refused.err)
    assert "allow User:alice read on topic 'events' (literal)" in refused.err
    removed = ottla.ok("acls", "remove", "--topic", "events", "--yes", "--json")
    assert [TEST_ACL] == removed.json
    assert [] == ottla.ok("acls", "list", "--json").json


def test_adding_twice_is_no_error(ottla: CommandLine) -> None:
    for _ in range(2):
        ottla.ok("acls", "add", "--allow-principal", "User:a", "--topic", "t")
    assert 1 == len(ottla.ok("acls", "list", "--json").json)


def test_what_a_producer_and_a_consumer_need(ottla: CommandLine) -> None:
    ottla.ok(
        "acls", "add", "--allow-principal", "User:app", "--producer", "--consumer", "--topic", "app.",
        "--group", "app.", "--transactional-id", "app.", "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    found = {
        (each["resource_type"], each["pattern_type"], each["operation"])
        for each in ottla.ok("acls", "list", "--json").json
    }
    expected = {("topic", "prefixed", each) for each in ("Read", "Write", "Describe", "Create")}
    expected |= {("group", "prefixed", "Read")}
    expected |= {("transactional_id", "prefixed", each) for each in ("Write", "Describe")}
    assert expected == found


def test_list_finds_what_applies_to_a_name(ottla: CommandLine) -> None:
    ottla.ok("acls", "add", "--allow-principal", "User:a", "--topic", "app.", "--resource-pattern-type", "prefixed")
    ottla.ok("acls", "add", "--allow-principal", "User:b", "--topic", "*")
    ottla.ok("acls", "add", "--allow-principal", "User:c", "--topic", "other")

    def principals(*options: str) -> list[str]:
        return [each["principal"] for each in ottla.ok("acls", "list", *options, "--json").json]

    matching = principals("--topic", "app.orders", "--resource-pattern-type", "match")
    assert ["User:a", "User:b"] == sorted(matching)
    assert [] == principals("--topic", "app.orders")
    assert ["User:c"] == principals("--principal", "User:c")


def test_check_says_what_decides(ottla: CommandLine) -> None:
    ottla.ok("acls", "add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "*")
    ottla.ok(
        "acls", "add", "--deny-principal", "User:*", "--deny-host", "10.9.0.0/16", "--operation", "All", "--topic", "t"
    )
    question = ("acls", "check", "--principal", "User:a", "--operation", "Describe", "--topic", "t")
    allowed = ottla.ok(*question, "--json").json
    assert ("allowed", "*") == (allowed[0]["verdict"], allowed[0]["because"][0]["resource_name"])
    denied = ottla(*question, "--host", "10.9.1.1")
    assert 1 == denied.status
    assert denied.out.startswith("denied: Describe on topic t\n  deny User:* from 10.9.0.0/16 all")
    uncovered = ottla("acls", "check", "--principal", "User:a", "--operation", "Read", "--group", "g")
    assert (1, True) == (uncovered.status, uncovered.out.startswith("not covered"))


def test_subjects_have_acls_too(ottla: CommandLine) -> None:
    ottla.ok("acls", "add", "--allow-principal", "User:a", "--operation", "Read", "--subject", "orders-value")
    ottla.ok("acls", "add", "--allow-principal", "User:b", "--operation", "Read", "--subject", "*")
    found = [(each["resource_name"], each["pattern_type"]) for each in ottla.ok("acls", "list", "--json").json]
    assert [(":subject:", "prefixed"), (":subject:orders-value", "literal")] == found
    ottla.ok("acls", "check", "--principal", "User:b", "--operation", "Read", "--subject", "orders-value")
    denied = ottla("acls", "check", "--principal", "User:a", "--operation", "Read", "--subject", "other")
    assert 1 == denied.status
    assert 1 == len(ottla.ok("acls", "remove", "--subject", "*", "--yes", "--json").json)
    ottla.ok("acls", "remove", "--subject", "orders-value", "--yes")


def test_a_refusal_of_the_broker_is_told(ottla: CommandLine) -> None:
    refused = ottla("acls", "add", "--allow-principal", "User:a", "--allow-host", "10.0.0.0/99", "--topic", "t")
    assert 1 == refused.status
    assert "CIDR" in refused.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "--topic", "t"), "--allow-principal"),
        (("add", "--allow-principal", "User:a"), "pass a resource"),
        (("add", "--allow-principal", "alice", "--topic", "t"), "as User:alice"),
        (("add", "--allow-principal", "User:a", "--deny-host", "::1", "--topic", "t"), "--deny-principal"),
        (("add", "--allow-principal", "User:a", "--producer", "--operation", "Read", "--topic", "t"), "--operation"),
        (("add", "--allow-principal", "User:a", "--consumer", "--topic", "t"), "--group"),
        (("add", "--allow-principal", "User:a", "--producer", "--group", "g", "--topic", "t"), "--group"),
        (("add", "--allow-principal", "User:a", "--operation", "Fly", "--topic", "t"), "Fly"),
        (("add", "--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"), "prefixed"),
        (("remove",), "pass a resource or a principal"),
        (("check", "--principal", "User:a", "--topic", "t"), "--operation"),
        (("check", "--principal", "a", "--topic", "t", "--operation", "Read"), "User:a"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_ends_with_2_and_words(ottla: CommandLine, arguments: tuple[str, ...], words: str) -> None:
    done = ottla("acls", *arguments)
    assert (2, True) == (done.status, words in done.err), done
