"""ZooKeeper's servers with TLS and SASL, for brokers that reach them no other way."""

from collections.abc import Sequence
from typing import Any, Final

from ottla.testing import CertificateAuthority
from tests.chaos.network import Place

PORT: Final = 2281
"""Of TLS, at each server; the servers have places, and so addresses, of their own."""
USER: Final = "ottla"
PASSWORD: Final = "of brokers"


class ZooKeeperSecurity:
    """Certificates and a user for servers in these places."""

    def __init__(self, certificates: CertificateAuthority, places: Sequence[Place]) -> None:
        self._certificates = certificates
        self._places = tuple(places)

    @property
    def addresses(self) -> str:
        """Where the servers use TLS, as clients take it."""
        return ",".join(f"{each.address}:{PORT}" for each in self._places)

    def server_options(self) -> dict[str, Any]:
        """The arguments of `ZooKeeperEnsemble`."""
        keystore = self._certificates.issue("zookeeper", tuple(each.address for each in self._places))
        jaas = self._certificates.folder / "zookeeper.jaas"
        jaas.write_text(
            f'Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_{USER}="{PASSWORD}"; }};\n'
        )
        return {
            "settings": (
                f"secureClientPort={PORT}",
                "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            ),
            "jvm_options": (
                "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                f"-Dzookeeper.ssl.keyStore.location={keystore}",
                f"-Dzookeeper.ssl.trustStore.location={_pem(self._certificates)}",
                "-Dzookeeper.ssl.clientAuth=none",
                f"-Djava.security.auth.login.config={jaas}",
            ),
        }

    def broker_configs(self) -> dict[str, str]:
        """How brokers connect, and who may read what they write."""
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(self._certificates.file),
            "zookeeper.sasl.username": USER,
            "zookeeper.sasl.password": PASSWORD,
            "zookeeper.set.acl": "true",
        }


def _pem(certificates: CertificateAuthority) -> str:
    """The authority's certificate in a file whose name says what it is, which ZooKeeper needs."""
    path = certificates.folder / "authority.pem"
    path.write_bytes(certificates.file.read_bytes())
    return str(path)
