"""`ottla tokens` against a broker with logins: the life of a token, who may change it, and refused command lines."""

from pathlib import Path

import pytest

from ottla import Admin
from ottla.client.properties import parse_properties, security_options
from ottla.testing import SecuredBroker
from tests.broker.inside import connections
from tests.unit.cli.command_line import CommandLine

DAY_MS = 24 * 3600 * 1000


pytestmark = pytest.mark.ottla_broker({"delegation.token.secret.key": "a key that all brokers share"})


@pytest.fixture
def bootstrap(secured: SecuredBroker) -> str:
    """Its address."""
    return secured.bootstrap_of("SASL_SSL")


def properties_of(secured: SecuredBroker, folder: Path, user: str) -> str:
    """A file for `--command-config`."""
    path = folder / f"{user}.properties"
    path.touch(0o600)
    path.write_text(secured.client_properties(user))
    return str(path)


@pytest.fixture
def alice(secured: SecuredBroker, tmp_path: Path) -> tuple[str, str]:
    return "--command-config", properties_of(secured, tmp_path, "alice")


@pytest.fixture
def bob(secured: SecuredBroker, tmp_path: Path) -> tuple[str, str]:
    return "--command-config", properties_of(secured, tmp_path, "bob")


def test_a_token_is_created_described_renewed_and_deleted(ottla: CommandLine, alice: tuple[str, str]) -> None:
    assert [] == ottla.ok("tokens", "describe", "--json", *alice).json
    assert "no delegation tokens\n" == ottla.ok("tokens", "describe", *alice).out
    created = ottla.ok("tokens", "create", "--renewer", "User:scheduler", "--max-lifetime", "3d", "--json", *alice).json
    hmac = created.pop("hmac")
    token_id, issued = created["token_id"], created["issue_timestamp"]
    assert {
        "token_id": token_id,
        "owner": "User:alice",
        "requester": "User:alice",
        "renewers": ["User:scheduler"],
        "issue_timestamp": issued,
        "expiry_timestamp": issued + DAY_MS,
        "max_timestamp": issued + 3 * DAY_MS,
    } == created
    assert [created] == ottla.ok("tokens", "describe", "--json", *alice).json
    assert [{**created, "hmac": hmac}] == ottla.ok("tokens", "describe", "--show-hmac", "--json", *alice).json
    table = ottla.ok("tokens", "describe", "--owner", "User:alice", *alice).out
    assert (True, False) == (token_id in table, hmac in table)
    assert hmac in ottla.ok("tokens", "describe", "--show-hmac", *alice).out
    renewed = ottla.ok("tokens", "renew", token_id, "--period", "1h", "--json", *alice).json
    assert renewed["expiry_timestamp"] < created["expiry_timestamp"]
    assert f"token {token_id}: expires at 20" in ottla.ok("tokens", "renew", token_id, *alice).out
    soon = ottla.ok("tokens", "expire", token_id, "--in", "10m", "--json", *alice).json
    assert (False, True) == (soon["deleted"], soon["expiry_timestamp"] < renewed["expiry_timestamp"])
    unconfirmed = ottla("tokens", "expire", token_id, *alice)
    assert (2, True) == (unconfirmed.status, "--yes" in unconfirmed.err)
    assert f"token {token_id}: deleted\n" == ottla.ok("tokens", "expire", token_id, "--yes", *alice).out
    assert [] == ottla.ok("tokens", "describe", "--json", *alice).json


def test_what_create_prints_is_enough_to_log_in(
    secured: SecuredBroker, ottla: CommandLine, alice: tuple[str, str]
) -> None:
    shown = ottla.ok("tokens", "create", *alice).out
    facts = {line[:15].strip(): line[17:] for line in shown.splitlines()}
    assert ("User:alice", "") == (facts["owner"], facts["renewers"])
    token_id = facts["token id"]
    login = (
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="{token_id}" password="{facts["hmac"]}" tokenauth="true";'
    )
    kept = [line for line in secured.client_properties("alice").splitlines() if not line.startswith("sasl.jaas")]
    properties = parse_properties("\n".join([*kept, login]))
    with Admin(bootstrap_servers=properties["bootstrap.servers"], **security_options(properties)) as admin:
        admin.list_topics()
        principals = {(str(client.principal), client.is_token_login) for client in connections(secured.broker)}
        assert ("User:alice", True) in principals
    ottla.ok("tokens", "expire", token_id, "--yes", *alice)


def test_another_user_neither_sees_nor_changes_a_token(
    ottla: CommandLine, alice: tuple[str, str], bob: tuple[str, str]
) -> None:
    token_id = ottla.ok("tokens", "create", "--json", *alice).json["token_id"]
    assert [] == ottla.ok("tokens", "describe", "--json", *bob).json
    for command in (("renew", token_id), ("expire", token_id, "--yes")):
        refused = ottla("tokens", *command, *bob)
        assert (2, True) == (refused.status, "may not see it" in refused.err)
    foreign = ottla("tokens", "create", "--owner", "User:alice", *bob)
    assert (1, True) == (foreign.status, "DELEGATION_TOKEN_AUTHORIZATION_FAILED" in foreign.err)
    ottla.ok("tokens", "expire", token_id, "--yes", *alice)


def test_a_token_for_another_user(ottla: CommandLine, secured: SecuredBroker, tmp_path: Path) -> None:
    admin = ("--command-config", properties_of(secured, tmp_path, "admin"))
    token = ottla.ok("tokens", "create", "--owner", "User:etl", "--json", *admin).json
    assert ("User:etl", "User:admin") == (token["owner"], token["requester"])
    ottla.ok("tokens", "expire", token["token_id"], "-y", *admin)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "--max-lifetime", "soon"), "duration"),
        (("create", "--max-lifetime", "0s"), "must not be 0"),
        (("create", "--renewer", "scheduler"), "Type:name"),
        (("renew", "nothing", "--period", "1x"), "duration"),
        (("renew",), "TOKEN_ID"),
        (("describe", "--owner", "alice"), "Type:name"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_ends_with_2_and_words(
    ottla: CommandLine, alice: tuple[str, str], arguments: tuple[str, ...], words: str
) -> None:
    done = ottla("tokens", *arguments, *alice)
    assert (2, True) == (done.status, words in done.err), done


def test_no_secret_is_in_an_argument(ottla: CommandLine) -> None:
    """The command line of a process can be seen by other users."""
    for command in ("create", "renew", "expire", "describe"):
        page = ottla.ok("tokens", command, "--help").out
        assert ("Examples" in page, "--hmac" in page) == (True, False), page


def test_disabled_tokens_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with SecuredBroker(tmp_path / "without") as without:
        elsewhere = CommandLine(without.bootstrap_of("SASL_SSL"), capfd)
        login = ("--command-config", properties_of(without, tmp_path, "admin"))
        for command in (("create",), ("describe",)):
            refused = elsewhere("tokens", *command, *login)
            assert (1, True) == (refused.status, "DELEGATION_TOKEN_AUTH_DISABLED" in refused.err)
