"""`ottla quotas` against a real broker, and command lines that it refuses."""

import pytest

from tests.unit.cli.command_line import CommandLine

pytestmark = pytest.mark.ottla_broker({})
"""A broker for these tests alone: quotas would slow down others."""


def test_quotas_are_set_described_and_unset(ottla: CommandLine) -> None:
    assert "no quotas are set\n" == ottla.ok("quotas", "describe").out
    done = ottla.ok("quotas", "set", "--user", "alice", "producer_byte_rate=10m", "request_percentage=12.5")
    assert "user alice: producer_byte_rate=10485760, request_percentage=12.5\n" == done.out
    ottla.ok("quotas", "set", "--user-defaults", "--client-id", "etl", "consumer_byte_rate=1k")
    ottla.ok("quotas", "set", "--ip-defaults", "connection_creation_rate=20")
    assert [
        {"user": None, "client_id": "etl", "quotas": {"consumer_byte_rate": 1024.0}},
        {"user": "alice", "quotas": {"producer_byte_rate": 10485760.0, "request_percentage": 12.5}},
        {"ip": None, "quotas": {"connection_creation_rate": 20.0}},
    ] == ottla.ok("quotas", "describe", "--json").json
    assert "<default>" in ottla.ok("quotas", "describe").out
    assert ["alice"] == [each["user"] for each in ottla.ok("quotas", "describe", "--user", "alice", "--json").json]
    ottla.ok("quotas", "unset", "--user", "alice", "producer_byte_rate", "request_percentage")
    assert [] == ottla.ok("quotas", "describe", "--user", "alice", "--json").json
    ottla.ok("quotas", "unset", "--user-defaults", "--client-id", "etl", "consumer_byte_rate")
    ottla.ok("quotas", "unset", "--ip-defaults", "connection_creation_rate")


def test_a_dry_run_changes_nothing(ottla: CommandLine) -> None:
    done = ottla.ok("quotas", "set", "--user", "bob", "producer_byte_rate=1", "--dry-run")
    assert "user bob: producer_byte_rate=1 would be accepted\n" == done.out
    assert [] == ottla.ok("quotas", "describe", "--user", "bob", "--json").json


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("set", "producer_byte_rate=1"), "--user"),
        (("set", "--user", "a", "--user-defaults", "producer_byte_rate=1"), "--user-defaults"),
        (("set", "--user", "a", "--ip", "::1", "producer_byte_rate=1"), "--ip"),
        (("set", "--user", "a", "connection_creation_rate=1"), "producer_byte_rate"),
        (("set", "--ip", "::1", "producer_byte_rate=1"), "connection_creation_rate"),
        (("set", "--user", "a", "request_percentage=much"), "not a number"),
        (("set", "--user", "a", "request_percentage=-1"), "above 0"),
        (("set", "--user", "a", "producer_byte_rate=0"), "size"),
        (("set", "--client-id", "", "producer_byte_rate=1"), "--client-defaults"),
        (("unset", "--user", "a", "speed"), "speed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_ends_with_2_and_words(ottla: CommandLine, arguments: tuple[str, ...], words: str) -> None:
    done = ottla("quotas", *arguments)
    assert (2, True) == (done.status, words in done.err), done
