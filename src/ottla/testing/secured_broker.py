"""A broker that only clients with a login or a certificate can use, in a thread of the test process.

It has two listeners: SASL_SSL, where users log in with SCRAM, and SSL, where clients show a certificate. ACLs decide
what users may do; `admin` may do everything. Certificates and passwords are made for each broker.
"""

import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.model.errors import MisuseError
from ottla.testing.broker_handle import create_topic
from ottla.testing.certificates import LOOPBACK, CertificateAuthority
from ottla.testing.free_ports import free_port
from ottla.testing.in_process_broker import InProcessBroker

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.security.scram_argument import ScramUser

ADMIN: Final = "admin"
"""The user that may do everything."""
_BROKER: Final = "broker"
_PROTOCOLS: Final = ("SASL_SSL", "SSL")
_MECHANISM: Final = "SCRAM-SHA-512"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecuredBroker(InProcessBroker):
    """A broker with TLS, SCRAM logins, client certificates and ACLs; `settings` can change all of it but the listeners.

    A user is created when it is first named, with a random password and no permissions. It is the same user
    (`User:alice`) with a password and with a certificate.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.certificates: Final = CertificateAuthority(folder / "certificates")
        keystore = self.certificates.issue(_BROKER, LOOPBACK)
        secured = {
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.file),
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:{_BROKER}",
        }
        super().__init__(folder, {**secured, **(settings or {})})
        self._ports = dict.fromkeys(_PROTOCOLS, 0)
        self._passwords = {ADMIN: secrets.token_urlsafe(16)}

    def _listeners(self) -> str:
        return ",".join(f"{protocol}://{self.host}:{port or free_port()}" for protocol, port in self._ports.items())

    def _first_users(self) -> "list[ScramUser]":
        from ottla.security.scram_argument import parse_scram_user

        password = self._passwords[ADMIN]
        return [parse_scram_user(f"{_MECHANISM}=[name={ADMIN},password={password}]", secrets.token_bytes)]

    def _on_started(self, broker: "Broker") -> None:
        super()._on_started(broker)
        self._ports = {each.name: each.port for each in broker.endpoints}

    def bootstrap_of(self, protocol: str) -> str:
        """The address of the listener with this protocol, SASL_SSL or SSL; it stays the same across restarts."""
        if protocol not in _PROTOCOLS:
            raise MisuseError(f"the broker has no listener with protocol {protocol}; use {' or '.join(_PROTOCOLS)}")
        if not self._ports[protocol]:
            raise MisuseError("the broker was never started, so it has no address yet")
        return f"{self.host}:{self._ports[protocol]}"

    def password_of(self, user: str) -> str:
        """The password of a user, which is created if it does not exist."""
        if user not in self._passwords:
            _check_name(user)
            password = secrets.token_urlsafe(16)
            self._refuse_while_paused("asked for a user")
            self._create_user(user, password)
            self._passwords[user] = password
        return self._passwords[user]

    def _create_user(self, user: str, password: str) -> None:
        from ottla.client.admin.blocking_admin import Admin
        from ottla.client.admin.user_requests import UserScramCredentialUpsertion

        with Admin(**self.client_options(ADMIN), client_id="ottla-testing") as admin:
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, _MECHANISM, password)])

    def certificate_of(self, user: str) -> Path:
        """A PEM file with a private key and a certificate of the user."""
        _check_name(user)
        path = self.certificates.folder / f"{user}.pem"
        return path if path.exists() else self.certificates.issue(user)

    def allow(
        self,
        user: str,
        *operations: str,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """Creates ACLs that allow operations by Kafka's names, such as `"Read"`, on each of the resources."""
        from ottla.client.admin.acls import (
            ACL,
            ACLOperation,
            ACLPermissionType,
            ACLResourcePatternType,
            ACLResourceType,
            ResourcePattern,
        )
        from ottla.client.admin.blocking_admin import Admin

        named = {"TOPIC": topic, "GROUP": group, "TRANSACTIONAL_ID": transactional_id}
        patterns = [
            ResourcePattern(ACLResourceType[kind], name, ACLResourcePatternType.LITERAL)
            for kind, name in named.items()
            if name is not None
        ]
        wanted = {each.name.replace("_", ""): each for each in ACLOperation}
        unknown = [each for each in operations if each.upper() not in wanted]
        if unknown or not operations or not patterns:
            raise MisuseError(
                f"{unknown[0]!r} is not an operation; use names such as Read, Write or Describe"
                if unknown
                else "name at least one operation and one resource, such as allow('alice', 'Read', topic='orders')"
            )
        acls = [
            ACL(f"User:{user}", "*", wanted[operation.upper()], ACLPermissionType.ALLOW, pattern)
            for operation in operations
            for pattern in patterns
        ]
        with Admin(**self.client_options(ADMIN), client_id="ottla-testing") as admin:
            admin.create_acls(acls)

    def client_options(self, user: str = ADMIN, *, protocol: str = "SASL_SSL") -> dict[str, Any]:
        """The arguments of Ottla's and kafka-python's clients, `bootstrap_servers` among them."""
        options: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_of(protocol),
            "security_protocol": protocol,
            "ssl_cafile": str(self.certificates.file),
        }
        if protocol == "SSL":
            certificate = str(self.certificate_of(user))
            return {**options, "ssl_certfile": certificate, "ssl_keyfile": certificate}
        login = {"sasl_plain_username": user, "sasl_plain_password": self.password_of(user)}
        return {**options, "sasl_mechanism": _MECHANISM, **login}

    def librdkafka_options(self, user: str = ADMIN, *, protocol: str = "SASL_SSL") -> dict[str, str]:
        """The configuration of clients on librdkafka, such as confluent-kafka; `bootstrap.servers` is in it."""
        options = {
            "bootstrap.servers": self.bootstrap_of(protocol),
            "security.protocol": protocol,
            "ssl.ca.location": str(self.certificates.file),
        }
        if protocol == "SSL":
            certificate = str(self.certificate_of(user))
            return {**options, "ssl.certificate.location": certificate, "ssl.key.location": certificate}
        login = {"sasl.username": user, "sasl.password": self.password_of(user)}
        return {**options, "sasl.mechanism": _MECHANISM, **login}

    def client_properties(self, user: str = ADMIN, *, protocol: str = "SASL_SSL") -> str:
        """The text of a `client.properties` file, for Java clients, Kafka's tools and `--command-config`."""
        lines = {
            "bootstrap.servers": self.bootstrap_of(protocol),
            "security.protocol": protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.file),
        }
        if protocol == "SSL":
            lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificate_of(user))}
        else:
            login = f'{_LOGIN_MODULE} required username="{user}" password="{self.password_of(user)}";'
            lines |= {"sasl.mechanism": _MECHANISM, "sasl.jaas.config": login}
        return "".join(f"{name}={value}\n" for name, value in lines.items())

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replicas: int = 1
    ) -> str:
        """Creates a topic as `admin` and returns its name."""
        self._refuse_while_paused("asked for a topic")
        options = self.client_options(ADMIN)
        return create_topic(options.pop("bootstrap_servers"), name, partitions, configs, replicas, **options)


def _check_name(user: str) -> None:
    """A user's name is also the name of a file, and is written into properties."""
    if not _NAME.fullmatch(user):
        raise MisuseError(f"{user!r}: names of users must consist of letters, digits, '-', '_' and '.'")
