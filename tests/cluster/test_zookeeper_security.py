"""The metadata store on a real ZooKeeper with TLS, SASL and ACLs: who gets in, and who may read what was written."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from ottla.broker.configs.configuration import BrokerConfig
from ottla.env.real_clock import RealClock
from ottla.metadata.store import Put, StoreUnavailableError
from ottla.metadata.zookeeper.security import ZooKeeperSecurity, zookeeper_security
from ottla.metadata.zookeeper.session import _Handler
from ottla.metadata.zookeeper.zookeeper_store import ZooKeeperStore
from ottla.model.errors import InvalidConfigError
from ottla.testing import CertificateAuthority
from ottla.testing.free_ports import free_port
from tests.cluster.zookeeper import SESSION_TIMEOUT_MAX_MS, ZooKeeperEnsemble

USER, PASSWORD = "broker", "of brokers"


class Secured:
    """A server with a port for TLS, and files of certificates."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.authority = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.authority)
        self.stranger = str(folder / "stranger.pem")
        trustme.CA().cert_pem.write_to_path(self.stranger)
        issued = authority.issue_cert("localhost")
        self.own = str(folder / "own.pem")
        authority.issue_cert("broker.example").private_key_and_cert_chain_pem.write_to_path(self.own)
        store = folder / "server.p12"
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        certificate = load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
        store.write_bytes(
            pkcs12.serialize_key_and_certificates(b"s", key, certificate, None, BestAvailableEncryption(b"secret"))  # type: ignore[arg-type]
        )
        jaas = folder / "jaas.conf"
        jaas.write_text(
            "Server { org.apache.zookeeper.server.auth.DigestLoginModule required "
            f'user_{USER}="{PASSWORD}" user_other="other"; }};\n'
        )
        port = free_port()
        self.port = port
        self.ensemble = ZooKeeperEnsemble(
            folder,
            session_timeout_max_ms=SESSION_TIMEOUT_MAX_MS,
            settings=(
                f"secureClientPort={port}",
                "secureClientPortAddress=127.0.0.1",
                "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            ),
            jvm_options=(
                "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                f"-Dzookeeper.ssl.keyStore.location={store}",
                "-Dzookeeper.ssl.keyStore.password=secret",
                f"-Dzookeeper.ssl.trustStore.location={self.authority}",
                "-Dzookeeper.ssl.clientAuth=none",
                f"-Djava.security.auth.login.config={jaas}",
            ),
        )

    @property
    def plain(self) -> str:
        return self.ensemble.servers

    @property
    def encrypted(self) -> str:
        return f"localhost:{self.port}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    found = Secured(tmp_path_factory.mktemp("zookeeper"))
    with found.ensemble:
        yield found


def security(**configs: Any) -> ZooKeeperSecurity:
    settings = {f"zookeeper.{name.replace('_', '.')}": str(value) for name, value in configs.items()}
    return zookeeper_security(BrokerConfig.parse(settings=settings).values)


@asynccontextmanager
async def opened(servers: str, found: ZooKeeperSecurity, timeout_ms: int = 20_000) -> AsyncIterator[ZooKeeperStore]:
    times = {"session_timeout_ms": 30_000, "request_timeout_ms": timeout_ms}
    store = ZooKeeperStore(servers, RealClock(), security=found, **times)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


async def write_and_read(servers: str, found: ZooKeeperSecurity) -> bytes:
    async with opened(servers, found) as store:
        await store.commit([Put("key", b"value")])
        _, entries = await store.snapshot()
        return next(entry.value for entry in entries if entry.key == "key")


def read_as(servers: str, path: str, **options: Any) -> list[str]:
    """The children of a node, as another client sees them."""
    client = KazooClient(hosts=servers, timeout=10, **options)
    client.start(timeout=20)
    with closing(client):
        try:
            found: list[str] = client.get_children(path)
            return found
        finally:
            client.stop()


def test_a_store_over_tls_with_sasl_and_acls(secured: Secured) -> None:
    found = security(
        ssl_client_enable="true",
        ssl_truststore_location=secured.authority,
        ssl_keystore_location=secured.own,
        sasl_username=USER,
        sasl_password=PASSWORD,
        set_acl="true",
    )
    assert b"value" == asyncio.run(write_and_read(f"{secured.encrypted}/tls", found))
    with pytest.raises(NoAuthError):
        read_as(secured.plain, "/tls")
    other = {"mechanism": "DIGEST-MD5", "username": "other", "password": "other"}
    with pytest.raises(NoAuthError):
        read_as(secured.plain, "/tls", sasl_options=other)
    mine = {"mechanism": "DIGEST-MD5", "username": USER, "password": PASSWORD}
    assert read_as(secured.plain, "/tls", sasl_options=mine)


def test_a_store_with_zookeepers_own_digest_scheme(secured: Secured) -> None:
    found = security(sasl_mechanism="digest", sasl_username="any", sasl_password="one", set_acl="true")
    assert b"value" == asyncio.run(write_and_read(f"{secured.plain}/digest", found))
    with pytest.raises(NoAuthError):
        read_as(secured.plain, "/digest")
    assert read_as(secured.plain, "/digest", auth_data=[("digest", "any:one")])


def test_without_acls_everybody_can_read(secured: Secured) -> None:
    assert b"value" == asyncio.run(write_and_read(f"{secured.plain}/open", security()))
    assert read_as(secured.plain, "/open")


@pytest.mark.parametrize("trusted", ["stranger", "system"])
async def test_a_server_of_another_authority_is_refused(secured: Secured, trusted: str) -> None:
    location = {"ssl_truststore_location": secured.stranger} if trusted == "stranger" else {}
    found = security(ssl_client_enable="true", **location)
    with pytest.raises(StoreUnavailableError):
        async with opened(f"{secured.encrypted}/refused", found, timeout_ms=3000):
            pass


async def test_a_server_with_another_name_is_refused_unless_names_are_not_checked(secured: Secured) -> None:
    configs = {"ssl_client_enable": "true", "ssl_truststore_location": secured.authority}
    address = f"127.0.0.1:{secured.port}/names"
    with pytest.raises(StoreUnavailableError):
        async with opened(address, security(**configs), timeout_ms=3000):
            pass
    unchecked = security(**configs, ssl_endpoint_identification_algorithm="")
    assert b"value" == await write_and_read(address, unchecked)


def test_a_handshake_may_take_longer_than_a_connection(tmp_path: Path) -> None:
    """A server that accepts connections at once, but is slow at TLS, as one that was just elected."""
    found = CertificateAuthority(tmp_path)
    serving, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(found.file))
    serving.load_cert_chain(found.issue("zookeeper", ("localhost",)))
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            accepted, _ = listening.accept()
            time.sleep(0.5)  # longer than a connection takes
            with serving.wrap_socket(accepted, server_side=True) as encrypted:
                encrypted.sendall(b"done")

        thread = threading.Thread(target=serve)
        thread.start()
        handler = _Handler(0.1, 20.0, trusting)
        with closing(handler.create_connection(address=listening.getsockname(), hostname="localhost")) as connected:
            assert b"done" == connected.recv(4)
        thread.join()


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"set_acl": "true"}, "zookeeper.set.acl"),
        ({"sasl_username": "u"}, "zookeeper.sasl.password"),
        ({"ssl_client_enable": "true", "ssl_truststore_location": "/missing.pem"}, "/missing.pem"),
        ({"ssl_client_enable": "true", "ssl_keystore_location": "/missing.pem"}, "keystore.location=/missing.pem"),
    ],
)
def test_configs_that_do_not_fit_are_refused(configs: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        security(**configs)
