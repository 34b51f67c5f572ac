"""Brokers with throw-away certificates, and what clients need to connect to them."""

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final

import trustme

from ottla import AsyncAdmin
from ottla.broker.broker import Broker

ADMIN_LISTENER: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0,ADMIN://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.admin.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-pw";'
    ),
    "super.users": "User:admin",
}
"""The configs of a broker whose clients are anonymous on one listener, and a super user on another."""


def admin_of(broker: Broker) -> AsyncAdmin:
    """A client of the `ADMIN_LISTENER`, as the super user."""
    (port,) = (endpoint.port for endpoint in broker.endpoints if endpoint.name == "ADMIN")
    return AsyncAdmin(
        bootstrap_servers=f"127.0.0.1:{port}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="admin",
        sasl_plain_password="admin-pw",
    )


async def certificate_of(port: int) -> bytes:
    """The certificate that a listener shows."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    assert isinstance(certificate, bytes)
    return certificate


class Secured:
    """An authority, a broker's certificate and files for clients, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA(organization_name="Example", organization_unit_name="tests")
        self.folder = folder
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        self.keystore = folder / "broker.pem"
        self.issue_broker()

    def issue_broker(self, *names: str) -> None:
        """A new certificate for the broker."""
        issued = self.authority.issue_cert(
            *(names or ("localhost", "127.0.0.1")), common_name="broker", organization_unit_name="tests"
        )
        issued.private_key_and_cert_chain_pem.write_to_path(self.keystore)

    def issue_client(self, name: str) -> Path:
        """A PEM file with the key and certificate of a user."""
        path = self.folder / f"{name}.pem"
        issued = self.authority.issue_cert(f"{name}.example", common_name=name, organization_unit_name="tests")
        issued.private_key_and_cert_chain_pem.write_to_path(path)
        return path

    def broker(self, protocol: str, **more: str) -> dict[str, str]:
        """The configs of a broker whose only listener has this protocol; underscores stand for dots."""
        configs = {
            "listeners": f"{protocol}://127.0.0.1:0",
            "group.initial.rebalance.delay.ms": "0",
            "security.inter.broker.protocol": protocol,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }
        if protocol.startswith("SASL"):
            users = 'username="broker" password="broker-pw" user_broker="broker-pw" user_alice="alice-pw"'
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            configs |= {
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": f"{module} required {users};",
            }
        return {**configs, **{name.replace("_", "."): value for name, value in more.items()}}

    def client(self, protocol: str, **more: Any) -> dict[str, Any]:
        """The options of an Ottla or kafka-python client."""
        options: dict[str, Any] = {"security_protocol": protocol}
        if protocol.endswith("SSL"):
            options["ssl_cafile"] = str(self.ca)
        if protocol.startswith("SASL"):
            options |= {"sasl_mechanism": "PLAIN", "sasl_plain_username": "alice", "sasl_plain_password": "alice-pw"}
        return {**options, **more}
