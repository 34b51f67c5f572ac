"""The security of a cluster whose brokers and clients use SASL_SSL with SCRAM and ACLs: certificates, users, options.

Each broker has its own certificate and listens with SASL_SSL only, for clients and for other brokers. `admin` may do
everything, `broker` is the user of the brokers, and other users have the permissions that a test gives them.
"""

import secrets
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from ottla.client.admin.acls import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    ResourcePattern,
)
from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.user_requests import UserScramCredentialUpsertion
from ottla.testing import BrokerCluster, BrokerHandle, CertificateAuthority, ProcessBroker
from tests.chaos.network import Place

ADMIN: Final = "admin"
BROKER: Final = "broker"
MECHANISM: Final = "SCRAM-SHA-512"
OTHER_MECHANISM: Final = "SCRAM-SHA-256"
"""Enabled as well; a test that uses it creates its users."""
PROTOCOL: Final = "SASL_SSL"
JAAS: Final = f"listener.name.{PROTOCOL.lower()}.{MECHANISM.lower()}.sasl.jaas.config"
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_VALID: Final = timedelta(days=1)


class ClusterSecurity:
    """Certificates and passwords of one cluster, in files below `folder`. `users` exist from the first start on."""

    def __init__(self, folder: Path, *users: str) -> None:
        self.certificates: Final = CertificateAuthority(folder)
        self.passwords: Final = {each: secrets.token_urlsafe(16) for each in (ADMIN, BROKER, *users)}
        """By user; a test that changes a password puts it here."""
        self._hosts: dict[int, str] = {}

    # Brokers

    def settings(self, number: int, host: str) -> dict[str, str]:
        """The security configs of one broker."""
        self._hosts[number] = host
        return {
            "inter.broker.listener.name": PROTOCOL,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.issue(number)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.file),
            "sasl.enabled.mechanisms": f"{MECHANISM},{OTHER_MECHANISM}",
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            JAAS: login_module(BROKER, self.passwords[BROKER]),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:{BROKER}",
        }

    def issue(self, number: int, *, valid: timedelta = _VALID) -> Path:
        """A new key and certificate of a broker, in its file."""
        return self.certificates.issue(f"broker-{number}", (self._hosts[number],), valid=valid)

    @property
    def first_users(self) -> list[str]:
        """The users as --add-scram takes them."""
        return [f"{MECHANISM}=[name={user},password={password}]" for user, password in self.passwords.items()]

    def make_broker(
        self, folder: Path, configs: Mapping[str, str], place: Place | None = None, **where: Any
    ) -> ProcessBroker:
        """A broker, on loopback or in a place of a network; `where` is its metadata store."""
        host = "127.0.0.1" if place is None else place.address
        return ProcessBroker(
            folder,
            {**configs, **self.settings(int(configs["node.id"]), host)},
            host=host,
            launcher=() if place is None else place.launcher,
            protocol=PROTOCOL,
            first_users=self.first_users,
            **where,
        )

    # Clients

    def client_options(self, user: str = ADMIN, mechanism: str = MECHANISM) -> dict[str, Any]:
        """The security options of Ottla's clients."""
        return {
            "security_protocol": PROTOCOL,
            "ssl_cafile": str(self.certificates.file),
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": self.passwords[user],
        }

    def librdkafka_options(self, user: str = ADMIN, mechanism: str = MECHANISM) -> dict[str, str]:
        """The same for clients on librdkafka."""
        return {
            "security.protocol": PROTOCOL,
            "ssl.ca.location": str(self.certificates.file),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": self.passwords[user],
        }

    def java_options(self, user: str = ADMIN) -> dict[str, str]:
        """The same for Java's clients and Kafka's tools."""
        return {
            "security.protocol": PROTOCOL,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.file),
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": login_module(user, self.passwords[user]),
        }

    @contextmanager
    def admin(self, bootstrap: str) -> Iterator[Admin]:
        """A client that may do everything."""
        with Admin(bootstrap_servers=bootstrap, **self.client_options()) as admin:
            yield admin


def login_module(user: str, password: str) -> str:
    """The text of sasl.jaas.config."""
    return f'{_MODULE} required username="{user}" password="{password}";'


def set_password(admin: Admin, user: str, password: str) -> None:
    """Creates a user, or changes its password."""
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, MECHANISM, password)])


def allowing(user: str, operation: ACLOperation, kind: ACLResourceType, name: str = "*") -> ACL:
    """An ACL that allows an operation on a resource, by default on all of its kind, from all hosts."""
    pattern = ResourcePattern(kind, name, ACLResourcePatternType.LITERAL)
    return ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, pattern)


def exactly(acl: ACL) -> ACLFilter:
    """What selects this ACL and no other."""
    return ACLFilter(acl.principal, acl.host, acl.operation, acl.permission_type, acl.resource_pattern)


def client_acls(user: str) -> list[ACL]:
    """What a client needs that writes, reads and has groups and transactions, but does not administer."""
    kinds = (ACLResourceType.TOPIC, ACLResourceType.GROUP, ACLResourceType.TRANSACTIONAL_ID)
    return [allowing(user, ACLOperation.ALL, kind) for kind in kinds]


@contextmanager
def secured_cluster(
    folder: Path, security: ClusterSecurity, settings: Mapping[str, str] | None = None
) -> Iterator[BrokerCluster]:
    """Three brokers on loopback that share a file as their metadata store."""
    with BrokerCluster(
        folder, settings, kind=security.make_broker, client_options=security.client_options()
    ) as cluster:
        yield cluster


def serves(broker: BrokerHandle, keystore: Path) -> bool:
    """Whether new connections get the certificate in this file."""
    return ssl.get_server_certificate((broker.host, broker.port)).strip() in keystore.read_text()
