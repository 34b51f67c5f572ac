"""A broker with every way to log in, and the logins of its users.

Nobody but the programs' own admin clients uses the plaintext listener. Clients without a name may do everything, so
that those with only TLS can work; alice may read and write topics that begin with `alice-`, whichever way she logs in.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from ottla import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    Admin,
    NewTopic,
    ResourcePattern,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from ottla.testing.free_ports import free_port
from tests.compat.clients.foreign_client import Login
from tests.compat.ottla_broker import OttlaBroker
from tests.unit.broker.logins.secured import AUDIENCE, ISSUER, KEY, OTHER_KEY, jwks_text, token

PASSWORD: Final = "a=b,c d"
"""With what SCRAM must escape in names, and takes as it is in passwords."""
LOGINS: Final = ("TLS", "mutual TLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TOPICS: Final = ("alice-topic", "secret")
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class SecuredBroker:
    """A running broker."""

    def __init__(self, broker: OttlaBroker, addresses: dict[str, str], folder: Path) -> None:
        self.broker = broker
        self.bootstrap = addresses["PLAINTEXT"]
        self._addresses = addresses
        self._folder = folder

    def login(self, kind: str) -> Login:
        """The login of a client that does everything right."""
        listener = {"TLS": "SSL", "mutual TLS": "MUTUAL"}.get(kind, "SASL_SSL")
        login = Login(
            bootstrap=self._addresses[listener],
            protocol="SASL_SSL" if listener == "SASL_SSL" else "SSL",
            authority=str(self._folder / "ca.pem"),
        )
        match kind:
            case "TLS":
                return login
            case "mutual TLS":
                certificate, key = str(self._folder / "alice.pem"), str(self._folder / "alice.key")
                return dataclasses.replace(login, certificate=certificate, key=key)
            case "OAUTHBEARER":
                return dataclasses.replace(login, mechanism=kind, token=str(self._folder / "token"))
            case _:
                return dataclasses.replace(login, mechanism=kind, username="alice", password=PASSWORD)

    def with_wrong_secret(self, kind: str) -> Login:
        """The same with another password, or a token that another key signed."""
        if kind == "OAUTHBEARER":
            return dataclasses.replace(self.login(kind), token=str(self._folder / "forged"))
        return dataclasses.replace(self.login(kind), password="wrong")

    def with_other_authority(self) -> Login:
        """A client that does not trust the broker's certificate."""
        return dataclasses.replace(self.login("PLAIN"), authority=str(self._folder / "other.pem"))


@contextmanager
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    """Started, with users, ACLs and topics."""
    _write_files(folder)
    addresses = {name: f"localhost:{free_port()}" for name in ("PLAINTEXT", "SSL", "MUTUAL", "SASL_SSL")}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,SASL_SSL:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{module} required user_alice="{PASSWORD}";',
        "sasl.oauthbearer.jwks.endpoint.url": (folder / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    with OttlaBroker(folder / "broker", overrides=settings) as broker:
        with Admin(bootstrap_servers=addresses["PLAINTEXT"]) as admin:
            admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS])
            for mechanism in ScramMechanism:
                admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", mechanism, PASSWORD)])
            topics = ResourcePattern(ACLResourceType.TOPIC, "alice-", ACLResourcePatternType.PREFIXED)
            # librdkafka looks for the coordinator of a group that it does not use.
            groups = ResourcePattern(ACLResourceType.GROUP, "*")
            allowed = ((topics, ACLOperation.READ), (topics, ACLOperation.WRITE), (groups, ACLOperation.DESCRIBE))
            admin.create_acls(
                [ACL("User:alice", "*", operation, ACLPermissionType.ALLOW, on) for on, operation in allowed]
            )
        yield SecuredBroker(broker, addresses, folder)


def _write_files(folder: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    other.cert_pem.write_to_path(folder / "other.pem")
    issued = authority.issue_cert("localhost", "127.0.0.1", common_name="broker")
    issued.private_key_and_cert_chain_pem.write_to_path(folder / "broker.pem")
    alice = authority.issue_cert("alice.example", common_name="alice")
    (folder / "alice.pem").write_bytes(b"".join(each.bytes() for each in alice.cert_chain_pems))
    # Java reads keys only in this format.
    key = load_pem_private_key(alice.private_key_pem.bytes(), None)
    (folder / "alice.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (folder / "jwks.json").write_text(jwks_text(KEY))
    (folder / "token").write_text(token(KEY))
    (folder / "forged").write_text(token(OTHER_KEY))
