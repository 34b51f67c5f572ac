"""A certificate for loopback, signed by itself, made once for each run of the tests."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from ottla.transport.listener_tls import ListenerTls, ListenerTlsSettings
from ottla.transport.tls_context import TlsSettings
from tests.processes import run


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Where the certificate and its key are."""

    certificate: Path
    key: Path

    def listener_tls(self) -> ListenerTls:
        """For a listener that shows it."""
        chain = {
            "ssl.keystore.key": self.key.read_text(),
            "ssl.keystore.certificate.chain": self.certificate.read_text(),
        }
        settings = TlsSettings.parse({"ssl.keystore.type": "PEM", **chain})
        return ListenerTls("SSL", ListenerTlsSettings(tls=settings))

    def broker_context(self) -> ssl.SSLContext:
        """For the side that shows it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def client_context(self) -> ssl.SSLContext:
        """For the side that trusts it, and nobody else."""
        return ssl.create_default_context(cafile=str(self.certificate))


def make_certificate(folder: Path) -> Certificate:
    """Asks `openssl`, which is wherever Python's own TLS is."""
    made = Certificate(certificate=folder / "certificate.pem", key=folder / "key.pem")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(made.key), "-out", str(made.certificate)]
    run([*command.split(), *names, *files])
    return made
