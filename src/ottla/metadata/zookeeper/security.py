"""How a broker protects its connection to ZooKeeper, and what it writes there: TLS, authentication, ACLs."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.metadata.configs.definition import ConfigValue
from ottla.metadata.configs.zookeeper_configs import DIGEST_MD5
from ottla.model.errors import InvalidConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSecurity:
    """By default nothing is encrypted, clients do not authenticate, and every client may read and change all keys."""

    ssl_context: ssl.SSLContext | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    is_sasl: bool = True
    """Whether the user authenticates with SASL DIGEST-MD5, rather than with ZooKeeper's own digest scheme."""
    sets_acl: bool = False
    """Whether new nodes are for this user only."""

    def client_options(self) -> dict[str, Any]:
        """The options of kazoo's client. TLS is not among them: kazoo would trust all authorities of the system."""
        from kazoo.security import CREATOR_ALL_ACL

        options: dict[str, Any] = {}
        if self.username is not None and self.is_sasl:
            options["sasl_options"] = {
                "mechanism": DIGEST_MD5,
                "username": self.username,
                "password": self.password,
            }
        elif self.username is not None:
            options["auth_data"] = [("digest", f"{self.username}:{self.password}")]
        if self.sets_acl:
            options["default_acl"] = CREATOR_ALL_ACL
        return options


NO_SECURITY: Final = ZooKeeperSecurity()


def zookeeper_security(values: Mapping[str, ConfigValue | None]) -> ZooKeeperSecurity:
    """What the zookeeper.* configs ask for. Raises `InvalidConfigError` if they do not fit together, or a file cannot
    be used."""
    username, password = values["zookeeper.sasl.username"], values["zookeeper.sasl.password"]
    if (username is None) != (password is None):
        raise InvalidConfigError("zookeeper.sasl.username and zookeeper.sasl.password must both be set, or neither")
    is_encrypted = bool(values["zookeeper.ssl.client.enable"])
    has_certificate = is_encrypted and values["zookeeper.ssl.keystore.location"] is not None
    sets_acl = bool(values["zookeeper.set.acl"])
    if sets_acl and username is None and not has_certificate:
        raise InvalidConfigError(
            "zookeeper.set.acl needs a user: set zookeeper.sasl.username and zookeeper.sasl.password, or"
            " zookeeper.ssl.keystore.location"
        )
    return ZooKeeperSecurity(
        ssl_context=_ssl_context(values) if is_encrypted else None,
        username=None if username is None else str(username),
        password=None if password is None else str(password),
        is_sasl=values["zookeeper.sasl.mechanism"] == DIGEST_MD5,
        sets_acl=sets_acl,
    )


def _ssl_context(values: Mapping[str, ConfigValue | None]) -> ssl.SSLContext:
    trusted, own = values["zookeeper.ssl.truststore.location"], values["zookeeper.ssl.keystore.location"]
    password = values["zookeeper.ssl.keystore.password"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = bool(values["zookeeper.ssl.endpoint.identification.algorithm"])
    name = "zookeeper.ssl.truststore.location"
    try:
        if trusted is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            context.load_verify_locations(str(trusted))
        if own is not None:
            name = "zookeeper.ssl.keystore.location"
            # Without a password OpenSSL would ask on the terminal.
            context.load_cert_chain(str(own), password="" if password is None else str(password))
    except (OSError, ValueError) as error:
        # SSLError is an OSError.
        raise InvalidConfigError(f"{name}={values[name]}: {error}") from error
    return context
