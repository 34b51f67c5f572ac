"""Certificates and passwords that change at the wrong moment: while a broker is down, too late, or under its feet.

Three brokers as processes, everything over SASL_SSL with SCRAM; connections between brokers log in again every few
seconds. Records are written all the time with acks=all, and all that was acknowledged must be there in the end.
"""

import itertools
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest

from ottla import Producer
from ottla.client.admin.acls import ACLOperation, ACLResourceType
from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.user_requests import UserScramCredentialDeletion
from ottla.client.admin.values import ConfigResource
from ottla.testing import BrokerCluster, BrokerDidNotStartError, BrokerHandle, ProcessBroker
from tests.chaos.arena import PARTITIONS, read_contents
from tests.cluster.cluster_security import (
    BROKER,
    JAAS,
    MECHANISM,
    ClusterSecurity,
    allowing,
    client_acls,
    login_module,
    secured_cluster,
    serves,
    set_password,
)
from tests.waiting import wait_until

APP: Final = "app"
TOPIC: Final = "plain"
SETTINGS: Final = {
    "connections.max.reauth.ms": "4000",
    "replica.lag.time.max.ms": "6000",
    "broker.session.timeout.ms": "20000",
}


class Secured:
    """The cluster that the tests share, and everything that was acknowledged there."""

    def __init__(self, cluster: BrokerCluster, security: ClusterSecurity) -> None:
        self.cluster = cluster
        self.security = security
        self.acknowledged: list[str] = []

    @contextmanager
    def written_to(self) -> Iterator[Callable[[], int]]:
        """Somebody writes meanwhile; yields how many records were acknowledged so far. Nothing may fail for good."""
        is_over = threading.Event()
        failures: list[BaseException] = []

        def told(value: str, delivery: Any) -> None:
            if (error := delivery.exception()) is not None:
                failures.append(error)
            else:
                self.acknowledged.append(value)

        def write() -> None:
            options = self.security.client_options(APP)
            with Producer(bootstrap_servers=self.cluster.bootstrap, **options, acks="all") as producer:
                for number in itertools.count():
                    if is_over.wait(0.02):
                        break
                    value = f"{token}-{number}"
                    sent = producer.send(TOPIC, value.encode(), partition=number % PARTITIONS)
                    sent.add_done_callback(partial(told, value))

        token = secrets.token_hex(4)
        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield lambda: len(self.acknowledged)
        finally:
            is_over.set()
            thread.join()
        assert [] == failures
        self.check()

    def check(self) -> None:
        """All that was acknowledged is there once."""
        contents = read_contents(self.cluster.bootstrap, [TOPIC], self.security.librdkafka_options(APP))
        stored = [value for lines in contents.values() for _, value in lines]
        assert len(stored) == len(set(stored))
        assert set(self.acknowledged) <= set(stored)

    def log_of(self, broker: BrokerHandle) -> str:
        assert isinstance(broker, ProcessBroker)
        return broker.log


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    security = ClusterSecurity(folder / "security", APP)
    with secured_cluster(folder / "brokers", security, SETTINGS) as cluster:
        with security.admin(cluster.bootstrap) as admin:
            admin.create_acls(client_acls(APP))
        cluster.create_topic(TOPIC, PARTITIONS)
        yield Secured(cluster, security)


def test_certificate_that_was_replaced_while_its_broker_was_down(secured: Secured) -> None:
    """A broker does not start with one that has expired, and says why; the others go on without it. With another one it
    starts and joins."""
    broker = secured.cluster.brokers[0]
    with secured.written_to() as acknowledged:
        broker.kill()
        secured.security.issue(broker.id, valid=timedelta(seconds=-1))
        with pytest.raises(BrokerDidNotStartError, match="certificate has expired"):
            broker.start()
        before = acknowledged()
        wait_until(lambda: acknowledged() > before + 20, "the others go on")
        keystore = secured.security.issue(broker.id)
        broker.start()
        assert serves(broker, keystore)
        secured.cluster.wait_in_sync()


@pytest.mark.long
def test_certificate_that_expires_while_its_broker_runs(secured: Secured) -> None:
    """Open connections go on, new ones fail, and another certificate is taken without a restart."""
    broker = secured.cluster.brokers[2]
    with secured.written_to():
        # So long that the broker has taken it before, also on a machine that stalls for a while.
        lifetime = timedelta(seconds=12)
        expires_at = time.monotonic() + lifetime.total_seconds()
        issued = secured.security.issue(broker.id, valid=lifetime)
        short = issued.rename(issued.with_name("short.pem"))
        config = {"listener.name.sasl_ssl.ssl.keystore.location": str(short)}
        with secured.security.admin(secured.cluster.bootstrap) as admin:
            admin.alter_configs([ConfigResource(ResourceType.BROKER, str(broker.id), config)])
        assert serves(broker, short)
        time.sleep(max(0.0, expires_at - time.monotonic()))  # the certificate's life, which is what is tested
        context = ssl.create_default_context(cafile=str(secured.security.certificates.file))
        wait_until(lambda: not is_trusted(broker, context), "the certificate has expired")
        fresh = secured.security.issue(broker.id)
        short.write_bytes(fresh.read_bytes())
        wait_until(lambda: is_trusted(broker, context), "the new certificate is in use")
        # The store has the config as well: a restart takes the same file.
        broker.restart()
        assert serves(broker, short)
        secured.cluster.wait_in_sync()


def is_trusted(broker: BrokerHandle, context: ssl.SSLContext) -> bool:
    with socket.create_connection((broker.host, broker.port), 10) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=broker.host):
                return True
        except ssl.SSLCertVerificationError:
            return False


def test_password_of_the_brokers_changes_under_their_feet(secured: Secured) -> None:
    """Connections end when they must log in again, and nothing can be committed; brokers that start with the new
    password replicate again, and no acknowledged record is lost."""
    security, cluster = secured.security, secured.cluster
    with secured.written_to() as acknowledged:
        new = secrets.token_urlsafe(16)
        with security.admin(cluster.bootstrap) as admin:
            set_password(admin, BROKER, new)
        wait_until(
            lambda: all("check the user name and the password" in secured.log_of(each) for each in cluster.brokers),
            "the brokers say that they cannot log in",
        )
        security.passwords[BROKER] = new
        for broker in cluster.brokers:
            # A clean stop would wait for requests that cannot be committed.
            broker.kill()
            broker.settings[JAAS] = login_module(BROKER, new)
            broker.start()
        cluster.wait_in_sync()
        before = acknowledged()
        wait_until(lambda: acknowledged() > before + 20, "records are committed again")


@pytest.mark.long
def test_brokers_change_their_user_without_an_outage(secured: Secured) -> None:
    """The way that docs/security.md describes: a second user with ClusterAction, a rolling restart, then the first one
    is deleted."""
    security, cluster = secured.security, secured.cluster
    password = secrets.token_urlsafe(16)
    with secured.written_to() as acknowledged:
        with security.admin(cluster.bootstrap) as admin:
            set_password(admin, "second", password)
            action = ACLOperation.CLUSTER_ACTION
            admin.create_acls([allowing("second", action, ACLResourceType.CLUSTER, "kafka-cluster")])
        for broker in cluster.brokers:
            broker.stop()
            broker.settings[JAAS] = login_module("second", password)
            broker.start()
            cluster.wait_in_sync()
        with security.admin(cluster.bootstrap) as admin:
            admin.alter_user_scram_credentials([UserScramCredentialDeletion(BROKER, MECHANISM)])
        seen = {broker.id: len(secured.log_of(broker)) for broker in cluster.brokers}
        # Until every connection between brokers has logged in again.
        time.sleep(1.5 * int(SETTINGS["connections.max.reauth.ms"]) / 1000)
        before = acknowledged()
        wait_until(lambda: acknowledged() > before + 20, "records are committed")
        cluster.wait_in_sync()
        for broker in cluster.brokers:
            assert "login with" not in secured.log_of(broker)[seen[broker.id] :]
