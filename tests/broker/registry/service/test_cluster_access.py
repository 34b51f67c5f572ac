"""A registry with TLS whose clients are the users of a cluster: real broker, real logins, the cluster's ACLs."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import trustme

from ottla import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    Admin,
    ResourcePattern,
    UserScramCredentialUpsertion,
)
from ottla.broker.broker import Broker
from ottla.metadata.configs.authorization_configs import STANDARD_AUTHORIZER
from ottla.model.errors import InvalidConfigError
from ottla.registry.service.cluster_access import SUBJECT_PREFIX, ClusterAccess
from ottla.transport.addresses import Address
from tests.broker.running_broker import serving_in_thread
from tests.processes import OTTLA, Program, run
from tests.waiting import PATIENCE_SECONDS, wait_until

PASSWORDS = {"admin": "admin's", "registry": "registry's", "alice": "alice's", "bob": "bob's"}
SCHEMA = {"schema": '"string"'}


class Served:
    """A broker with logins and ACLs, and a registry process that uses it."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.bootstrap = f"127.0.0.1:{broker.port}"
        authority = trustme.CA()
        self.authority = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.authority)
        certificate = folder / "registry.pem"
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
        properties = folder / "registry.properties"
        properties.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
            f' username="registry" password="{PASSWORDS["registry"]}";\n'
        )
        command = [*OTTLA, "registry", "serve", "--listen", "127.0.0.1:0", "--bootstrap", self.bootstrap]
        command += ["--command-config", str(properties), "--replication-factor", "1"]
        command += ["--authentication", "cluster", "--super-user", "User:admin"]
        command += ["--tls-certificate", str(certificate), "--tls-ca", self.authority]
        self.program = Program(command, folder / "registry")
        self.url = self.program.wait_ready()

    def ask(self, method: str, path: str, user: str | None, password: str | None = None, **options: object) -> int:
        """The status of a request."""
        auth = None if user is None else (user, password or PASSWORDS[user])
        trusted = ssl.create_default_context(cafile=self.authority)
        with httpx.Client(verify=trusted, trust_env=False, timeout=PATIENCE_SECONDS) as http:
            return http.request(method, self.url + path, auth=auth, **options).status_code  # type: ignore[arg-type]

    def wait_status(self, wanted: int, method: str, path: str, user: str, **options: object) -> None:
        """Returns once the registry has read the ACLs that give this answer."""
        wait_until(lambda: self.ask(method, path, user, **options) == wanted, f"{path}: {wanted}")  # type: ignore[arg-type]

    def admin(self) -> Admin:
        return Admin(
            bootstrap_servers=self.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username="admin",
            sasl_plain_password=PASSWORDS["admin"],
        )


def add_users(broker: Broker) -> None:
    """Through a listener without logins, whose clients may do everything."""
    address = next(each for each in broker.endpoints if each.name == "PLAINTEXT")
    with Admin(bootstrap_servers=f"127.0.0.1:{address.port}") as admin:
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(user, "SCRAM-SHA-512", password) for user, password in PASSWORDS.items()]
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("registry")
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:admin;User:registry",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with serving_in_thread(folder, settings) as broker:
        add_users(broker)
        registry = Served(folder, broker)
        try:
            yield registry
        finally:
            registry.program.kill()


def allow(principal: str, operation: ACLOperation, subject: str, *, prefixed: bool = False, host: str = "*") -> ACL:
    kind = ACLResourcePatternType.PREFIXED if prefixed else ACLResourcePatternType.LITERAL
    pattern = ResourcePattern(ACLResourceType.TOPIC, SUBJECT_PREFIX + subject, kind)
    return ACL(principal, host, operation, ACLPermissionType.ALLOW, pattern)


def test_only_users_of_the_cluster_get_in(served: Served) -> None:
    assert 401 == served.ask("GET", "/subjects", None)
    assert 401 == served.ask("GET", "/subjects", "alice", "wrong")
    assert 401 == served.ask("GET", "/subjects", "nobody", "wrong")
    assert 401 == served.ask("GET", "/metrics", None)
    assert 401 == served.ask("GET", "/subjects", None, headers={"authorization": "Basic !"})
    assert 401 == served.ask("GET", "/subjects", None, headers={"authorization": "Bearer a.b.c"})
    assert 200 == served.ask("GET", "/subjects", "alice")


def test_a_client_without_a_login_is_told_how(served: Served) -> None:
    trusted = ssl.create_default_context(cafile=served.authority)
    answer = httpx.get(served.url + "/subjects", verify=trusted)
    assert ('Basic realm="ottla"', 401) == (answer.headers["www-authenticate"], answer.json()["error_code"])


def test_the_command_line_logs_in(served: Served) -> None:
    command = [*OTTLA, "registry", "subjects", "--json"]
    address = served.url.removeprefix("https://")
    trusting = {"OTTLA_REGISTRY_CA": served.authority}
    url = f"https://admin:{quote(PASSWORDS['admin'])}@{address}"
    run([*command, "--url", url], environment=trusting)
    url = f"https://admin:secret@{address}"
    assert "secret" not in run([*command, "--url", url], environment=trusting, status=1).stderr


def test_a_password_that_was_accepted_does_not_let_others_in(served: Served) -> None:
    assert 200 == served.ask("GET", "/subjects", "alice")
    assert 401 == served.ask("GET", "/subjects", "bob", PASSWORDS["alice"])
    assert 401 == served.ask("GET", "/subjects", "alice", PASSWORDS["bob"])


def test_acls_decide_by_subject(served: Served) -> None:
    assert 200 == served.ask("POST", "/subjects/other/versions", "admin", json=SCHEMA)
    path = "/subjects/alice-value/versions"
    assert 403 == served.ask("POST", path, "alice", json=SCHEMA)
    with served.admin() as admin:
        admin.create_acls(
            [
                allow("User:alice", ACLOperation.WRITE, "alice-", prefixed=True),
                allow("User:alice", ACLOperation.READ, "alice-", prefixed=True),
            ]
        )
        served.wait_status(200, "POST", path, "alice", json=SCHEMA)
        assert 200 == served.ask("GET", f"{path}/1", "alice")
        assert 403 == served.ask("GET", "/subjects/other/versions/1", "alice")
        assert 403 == served.ask("DELETE", "/subjects/alice-value", "alice")
        assert 403 == served.ask("PUT", "/config", "alice", json={"compatibility": "NONE"})
        assert 403 == served.ask("GET", f"{path}/1", "bob")
        assert 200 == served.ask("PUT", "/config/alice-value", "admin", json={"compatibility": "NONE"})
        admin.delete_acls([ACLFilter(principal="User:alice")])
        served.wait_status(403, "GET", f"{path}/1", "alice")


def test_a_client_cannot_say_that_it_has_another_address(served: Served) -> None:
    elsewhere = allow("User:alice", ACLOperation.READ, "elsewhere-", prefixed=True, host="203.0.113.9")
    everywhere = allow("User:bob", ACLOperation.READ, "elsewhere-", prefixed=True)
    with served.admin() as admin:
        admin.create_acls([elsewhere, everywhere])
    path = "/subjects/elsewhere-value/versions"
    served.wait_status(404, "GET", path, "bob")
    assert 403 == served.ask("GET", path, "alice", headers={"X-Forwarded-For": "203.0.113.9"})


def test_the_cluster_must_have_logins() -> None:
    with pytest.raises(InvalidConfigError, match="SASL_SSL"):
        ClusterAccess([Address("localhost", 9092)], None)
