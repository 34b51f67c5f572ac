"""Both rivals with three listeners: PLAINTEXT, SSL, and SASL_PLAINTEXT with SCRAM.

Logins are measured without TLS, so that they are not hidden by its handshakes. Both have Kafka's authorizer by its own
name, which allows what no ACL covers; without ACLs it allows everything.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.kafka_race.brokers import (
    CLUSTER_ID,
    COMMON_SETTINGS,
    Address,
    Kafka,
    Ottla,
    kafka_properties,
)
from ottla.testing.certificates import LOOPBACK, CertificateAuthority
from ottla.testing.free_ports import free_port
from tests.compat.kafka_jars import kafka_tool

USER: Final = "alice"
PASSWORD: Final = "alice-secret"
MECHANISM: Final = "SCRAM-SHA-512"
ADD_USER: Final = f"{MECHANISM}=[name={USER},password={PASSWORD}]"
_LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@dataclass(frozen=True, slots=True)
class Ports:
    """Of the listeners besides PLAINTEXT."""

    tls: int
    sasl: int


class Secured:
    """What both have: certificates and ports."""

    def __init__(self, authority: CertificateAuthority) -> None:
        self.ports = Ports(free_port(), free_port())
        self._authority = authority
        self._keystore = authority.issue("broker", LOOPBACK)

    def settings(self, address: Address) -> dict[str, str]:
        """The broker configs of listeners, certificates and the authorizer."""
        listeners = f"PLAINTEXT://{address.bootstrap},SSL://127.0.0.1:{self.ports.tls}"
        listeners += f",SASL_PLAINTEXT://127.0.0.1:{self.ports.sasl}"
        return {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "security.inter.broker.protocol": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority.file),
            "sasl.enabled.mechanisms": MECHANISM,
            "allow.everyone.if.no.acl.found": "true",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        }


class SecuredKafka(Kafka):
    """Apache Kafka."""

    def __init__(self, secured: Secured) -> None:
        self.secured = secured

    def prepare(self, folder: Path, address: Address) -> None:
        """Writes the properties file, and formats the log folder with the user in it."""
        settings = self.secured.settings(address)
        settings["listeners"] += f",CONTROLLER://127.0.0.1:{address.controller_port}"
        protocols = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT")
        mapped = ",".join(["CONTROLLER:PLAINTEXT", *(f"{each}:{each}" for each in protocols)])
        settings["listener.security.protocol.map"] = mapped
        settings[f"listener.name.sasl_plaintext.{MECHANISM.lower()}.sasl.jaas.config"] = _LOGIN_MODULE
        path = folder / "server.properties"
        path.write_text(kafka_properties(folder, address, settings))
        format_words = ("format", "--cluster-id", CLUSTER_ID, "--config", str(path), "--add-scram", ADD_USER)
        kafka_tool("kafka.tools.StorageTool", *format_words)


class SecuredOttla(Ottla):
    """The broker of this tree."""

    def __init__(self, secured: Secured) -> None:
        self.secured = secured

    def command(self, folder: Path, address: Address) -> list[str]:
        """As a user starts it."""
        settings = {**COMMON_SETTINGS, **self.secured.settings(address)}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        serve = [sys.executable, "-m", "ottla", "serve", "--data", str(folder / "data")]
        return [*serve, "--add-scram", ADD_USER, *words]
