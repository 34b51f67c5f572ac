"""kafka-acls, kafka-configs and kafka-delegation-tokens print the same about Ottla as about Apache Kafka.

Each command runs against both brokers, one after the other in the order of the file; ids, secrets and dates are not
compared, and neither is the order of lines. Of a command that fails, the exceptions are compared.
"""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from ottla.testing.free_ports import free_port
from tests.compat.clients.kafka_tools import Tools
from tests.compat.kafka_jars import KAFKA_VERSION
from tests.compat.ottla_broker import OttlaBroker
from tests.compat.test_acls_like_kafka import PLAIN_MODULE, SecuredKafka, secured

TOKEN_SETTINGS: Final = {"delegation.token.secret.key": "a secret of the cluster"}
USER: Final = "everything"
VOLATILE: Final = (
    (r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}", "DATE"),
    (r"(?<![\w-])[\w-]{22}(?![\w-])", "ID"),
    (r"[A-Za-z0-9+/]{40,}={0,2}", "SECRET"),
)
Run = Callable[..., str]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tuple[str, str], ...]]:
    """The addresses without and with logins, of Kafka and of Ottla."""
    own, clients, kafka_own, kafka_clients = (f"127.0.0.1:{free_port()}" for _ in range(4))
    folder = tmp_path_factory.mktemp("tools")
    kafka = SecuredKafka(folder / "kafka", kafka_own, kafka_clients, **TOKEN_SETTINGS)
    with kafka, OttlaBroker(folder / "ottla", overrides={**secured(own, clients), **TOKEN_SETTINGS}):
        yield (kafka_own, kafka_clients), (own, clients)


@pytest.fixture
def same(brokers: tuple[tuple[str, str], ...]) -> Run:
    """Runs a command against both as an administrator; answers what it printed, which must be the same."""
    return lambda tool, *args: both([own for own, _ in brokers], tool, args)


@pytest.fixture
def same_with_login(brokers: tuple[tuple[str, str], ...], tmp_path: Path) -> Run:
    """The same as a user who logs in."""
    properties = tmp_path / "client.properties"
    module = f'{PLAIN_MODULE} required username="{USER}" password="{USER}";'
    properties.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={module}\n")
    config = ("--command-config", str(properties))
    return lambda tool, *args: both([clients for _, clients in brokers], tool, (*args, *config))


def both(addresses: list[str], tool: str, args: tuple[str, ...]) -> str:
    def printed(address: str) -> list[str]:
        stdout, stderr = Tools(KAFKA_VERSION, address).run_anyhow(tool, *args)
        text = stdout + "".join(line for line in stderr.splitlines(True) if "WARN" not in line)
        if failures := re.findall(r"\w+Exception", text):
            # Wording is each broker's own.
            return sorted(set(failures))
        for pattern, name in VOLATILE:
            text = re.sub(pattern, name, text)
        return sorted(re.sub(r"[ \t]+", " ", line).strip() for line in text.replace(address, "ADDRESS").splitlines())

    with ThreadPoolExecutor() as pool:
        theirs, ours = pool.map(printed, addresses)
    assert words(theirs) == words(ours)
    return "\n".join(ours)


def words(lines: list[str]) -> list[list[str]]:
    """The words of each line; in what order several things are listed is chance."""
    return sorted(sorted(re.findall(r"[^\s,]+", line)) for line in lines)


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


def test_delegation_tokens(same_with_login: Run) -> None:
    renewer = ("--renewer-principal", "User:bob")
    created = same_with_login("kafka-delegation-tokens", "--create", "--max-life-time-period", "-1", *renewer)
    assert f"User:{USER}" in created
    of_user = ("--owner-principal", f"User:{USER}")
    assert "User:bob" in same_with_login("kafka-delegation-tokens", "--describe", *of_user)
    wrong = ("--renew-time-period", "-1", "--hmac", "d3Jvbmc=")
    refused = same_with_login("kafka-delegation-tokens", "--renew", *wrong)
    assert "DelegationTokenNotFoundException" in refused


def test_delegation_tokens_without_a_login(same: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.properties").write_text("")
    config = ("--command-config", str(tmp_path / "empty.properties"))
    refused = same("kafka-delegation-tokens", "--create", "--max-life-time-period", "-1", *config)
    assert "UnsupportedByAuthenticationException" in refused
