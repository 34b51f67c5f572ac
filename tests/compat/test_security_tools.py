"""kafka-acls, kafka-configs and kafka-delegation-tokens print the same about Ottla as about Apache Kafka.

Commands run one after the other in the order of the file; ids, secrets and dates are not compared, and neither is the
order of lines. Of a command that fails, the exceptions are compared.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.compat.clients.kafka_tools import Tools
from tests.compat.kafka_jars import KAFKA_VERSION
from tests.compat.kafkas_word import KafkasWord
from tests.compat.ottla_broker import OttlaBroker
from tests.compat.test_acls_like_kafka import PLAIN_MODULE, SecuredKafka, addresses, secured

TOKEN_SETTINGS: Final = {"delegation.token.secret.key": "a secret of the cluster"}
USER: Final = "everything"
LOGIN: Final = f"""\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config={PLAIN_MODULE} required username="{USER}" password="{USER}";
"""
VOLATILE: Final = (
    (r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}", "DATE"),
    (r"(?<![\w-])[\w-]{22}(?![\w-])", "ID"),
    (r"[A-Za-z0-9+/]{40,}={0,2}", "SECRET"),
)
Run = Callable[..., str]


@pytest.fixture(scope="module")
def kafka_listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of a Kafka without and with logins."""
    own, clients = addresses()
    with SecuredKafka(tmp_path_factory.mktemp("tools") / "kafka", own, clients, **TOKEN_SETTINGS):
        yield own, clients


@pytest.fixture(scope="module")
def ottla_listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The same of Ottla."""
    own, clients = addresses()
    settings = {**secured(own, clients), **TOKEN_SETTINGS}
    with OttlaBroker(tmp_path_factory.mktemp("tools") / "ottla", overrides=settings):
        yield own, clients


@pytest.fixture
def same(kafkas_word: KafkasWord, ottla_listeners: tuple[str, str], tmp_path: Path) -> Run:
    """Runs a command as an administrator, or with a login; returns what it printed, the same as of Kafka."""
    steps = itertools.count(1)
    properties = tmp_path / "client.properties"

    def run(tool: str, *args: str, login: str | None = None) -> str:
        """With a login, even an empty one, the tool has a configuration of its own."""
        properties.write_text(login or "")
        config = () if login is None else ("--command-config", str(properties))

        def ask(listeners: tuple[str, str]) -> list[str]:
            return printed(listeners[bool(login)], tool, *args, *config)

        step = f"{next(steps)} {tool} {' '.join(args)}"
        theirs, ours = kafkas_word(ask, step=step, broker="kafka_listeners"), ask(ottla_listeners)
        assert theirs == ours
        return "\n".join(ours)

    return run


def printed(address: str, tool: str, *args: str) -> list[str]:
    """The words of each line; in what order several things are listed is chance."""
    stdout, stderr = Tools(KAFKA_VERSION, address).run_anyhow(tool, *args)
    text = stdout + "".join(line for line in stderr.splitlines(True) if "WARN" not in line)
    if failures := re.findall(r"\w+Exception", text):
        # Wording is each broker's own.
        return sorted(set(failures))
    for pattern, name in VOLATILE:
        text = re.sub(pattern, name, text)
    lines = text.replace(address, "ADDRESS").splitlines()
    return sorted(" ".join(sorted(re.findall(r"[^\s,]+", line))) for line in lines)


def test_acls(same: Run) -> None:
    added = same("kafka-acls", "--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    assert "operation=WRITE" in added
    denial = ("--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "Read")
    same("kafka-acls", "--add", *denial, "--topic", "or", "--resource-pattern-type", "prefixed")
    listed = same("kafka-acls", "--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert "User:alice" in listed
    assert "User:bob" in listed
    same("kafka-acls", "--remove", "--force", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    assert "User:alice" not in same("kafka-acls", "--list")


def test_users(same: Run) -> None:
    of_alice = ("--entity-type", "users", "--entity-name", "alice")
    weaker, stronger = "SCRAM-SHA-256=[iterations=8192,password=a]", "SCRAM-SHA-512=[password=b]"
    refused = same("kafka-configs", "--alter", *of_alice, "--add-config", f"{weaker},{stronger}")
    assert "DuplicateResourceException" in refused
    same("kafka-configs", "--alter", *of_alice, "--add-config", weaker)
    same("kafka-configs", "--alter", *of_alice, "--add-config", stronger)
    assert "SCRAM-SHA-256=iterations=8192" in same("kafka-configs", "--describe", *of_alice)
    same("kafka-configs", "--alter", *of_alice, "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in same("kafka-configs", "--describe", "--entity-type", "users")
    again = same("kafka-configs", "--alter", *of_alice, "--delete-config", "SCRAM-SHA-256")
    assert "ResourceNotFoundException" in again


def test_quotas(same: Run) -> None:
    app = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-name", "app")
    same("kafka-configs", "--alter", *app, "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048")
    default = ("--entity-type", "clients", "--entity-default")
    same("kafka-configs", "--alter", *default, "--add-config", "request_percentage=12.5")
    same("kafka-configs", "--alter", *app, "--delete-config", "consumer_byte_rate")
    described = same("kafka-configs", "--describe", "--entity-type", "users", "--entity-type", "clients")
    assert "producer_byte_rate=1024.0" in described
    assert "consumer_byte_rate" not in described
    refused = same("kafka-configs", "--alter", *app, "--add-config", "producer_byte_rate=-5")
    assert "InvalidRequestException" in refused


def test_delegation_tokens(same: Run) -> None:
    renewer = ("--renewer-principal", "User:bob")
    created = same("kafka-delegation-tokens", "--create", "--max-life-time-period", "-1", *renewer, login=LOGIN)
    assert f"User:{USER}" in created
    of_user = ("--owner-principal", f"User:{USER}")
    assert "User:bob" in same("kafka-delegation-tokens", "--describe", *of_user, login=LOGIN)
    wrong = ("--renew-time-period", "-1", "--hmac", "d3Jvbmc=")
    refused = same("kafka-delegation-tokens", "--renew", *wrong, login=LOGIN)
    assert "DelegationTokenNotFoundException" in refused


def test_delegation_tokens_without_a_login(same: Run) -> None:
    refused = same("kafka-delegation-tokens", "--create", "--max-life-time-period", "-1", login="")
    assert "UnsupportedByAuthenticationException" in refused
