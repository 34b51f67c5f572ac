"""Users, ACLs, quotas and certificates change while clients of librdkafka and Ottla work: they do not notice.

Three brokers as processes, everything over SASL_SSL with SCRAM; connections log in again every few seconds, those
between brokers as well.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as RdProducer

from ottla import Consumer, Producer
from ottla.client.admin.acls import ACL, ACLOperation, ACLResourceType
from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.user_requests import UserScramCredentialDeletion, UserScramCredentialUpsertion
from ottla.client.admin.values import ConfigResource
from ottla.model.error_codes import ErrorCode
from ottla.protocol.answer_errors import AnswerError
from ottla.security.quota_entity import QuotaEntity
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.testing import BrokerCluster, BrokerHandle
from tests.chaos.arena import PARTITIONS, read_contents
from tests.cluster.cluster_security import (
    BROKER,
    MECHANISM,
    OTHER_MECHANISM,
    ClusterSecurity,
    allowing,
    client_acls,
    exactly,
    secured_cluster,
    serves,
    set_password,
)
from tests.cluster.security_load import APP, TOPICS, unnoticed
from tests.waiting import wait_until

GUEST: Final = "guest"
"""A user whose permissions change; it logs in once, with another mechanism than the others."""
GUARDED: Final = "guarded"
SOON_SECONDS: Final = 30.0
"""How soon a change holds on every broker; a broker applies it within milliseconds, unless the machine is busy."""
SESSION_SECONDS: Final = 8.0
SETTINGS: Final = {
    "connections.max.reauth.ms": f"{SESSION_SECONDS * 1000:.0f}",
    # What a guest may do changes on connections that stay as they are, without another login.
    "listener.name.sasl_ssl.scram-sha-256.connections.max.reauth.ms": "0",
    # Only a broker that hangs for long may fall out of the ISR, or out of the cluster.
    "replica.lag.time.max.ms": "30000",
    "broker.session.timeout.ms": "30000",
}


class Secured:
    """The cluster that the tests share."""

    def __init__(self, cluster: BrokerCluster, security: ClusterSecurity) -> None:
        self.cluster = cluster
        self.security = security

    def log_in(self, user: str, broker: BrokerHandle) -> bool:
        """Whether a user with the password that it has here can log in at a broker."""
        try:
            with Admin(bootstrap_servers=broker.bootstrap, **self.security.client_options(user)) as admin:
                admin.describe_cluster()
        except AuthenticationError:
            return False
        return True


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    security = ClusterSecurity(folder / "security", APP, GUEST)
    with secured_cluster(folder / "brokers", security, SETTINGS) as cluster:
        with security.admin(cluster.bootstrap) as admin:
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(GUEST, OTHER_MECHANISM, security.passwords[GUEST])]
            )
            admin.create_acls([*client_acls(APP), allowing(GUEST, ACLOperation.ALL, ACLResourceType.GROUP)])
        for topic in (*TOPICS, GUARDED):
            cluster.create_topic(topic, PARTITIONS)
        yield Secured(cluster, security)


def test_users_acls_quotas_and_certificates_change_under_load(secured: Secured, tmp_path: Path) -> None:
    """Certificates are rotated twice: by other files, and by a dynamic config that names other files."""
    began = time.monotonic()
    with unnoticed(tmp_path / "load", secured.cluster, secured.security):
        with secured.security.admin(secured.cluster.bootstrap) as admin:
            for keystore_of in (secured.security.issue, lambda number: _name_another(secured, admin, number)):
                keystores = {broker: keystore_of(broker.id) for broker in secured.cluster.brokers}
                for turn in range(2):
                    _change_users(secured, admin, turn)
                    _change_acls(admin, turn)
                    _change_quotas(admin, turn)
                for broker, keystore in keystores.items():
                    wait_until(partial(serves, broker, keystore), "the new certificate is in use")
            admin.alter_user_scram_credentials([UserScramCredentialDeletion("other", MECHANISM)])
        for broker in secured.cluster.brokers:
            wait_until(partial(_is_refused, secured, "other", broker), "a deleted user is refused")
        # Every connection that is still open has logged in again by then.
        time.sleep(max(0.0, began + 2 * SESSION_SECONDS - time.monotonic()))


def _is_refused(secured: Secured, user: str, broker: BrokerHandle) -> bool:
    return not secured.log_in(user, broker)


def _name_another(secured: Secured, admin: Admin, number: int) -> Path:
    issued = secured.security.issue(number)
    keystore = issued.rename(issued.with_name(f"moved-{number}.pem"))
    config = {"listener.name.sasl_ssl.ssl.keystore.location": str(keystore)}
    admin.alter_configs([ConfigResource(ResourceType.BROKER, str(number), config)])
    return keystore


def _change_users(secured: Secured, admin: Admin, turn: int) -> None:
    """Another user is created or gets another password; those of the clients and the brokers get another salt."""
    passwords = secured.security.passwords
    passwords["other"] = secrets.token_urlsafe(16)
    set_password(admin, "other", passwords["other"])
    for broker in secured.cluster.brokers:
        wait_until(partial(secured.log_in, "other", broker), "the new password is accepted")
    admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(user, MECHANISM, passwords[user], 4096 + turn) for user in (APP, BROKER)]
    )


def _change_acls(admin: Admin, turn: int) -> None:
    """Of others, and of the clients: an ACL that allows what another one allows, too."""
    others = [allowing(f"other-{number}", ACLOperation.READ, ACLResourceType.TOPIC, "plain") for number in range(20)]
    own = [allowing(APP, ACLOperation.WRITE, ACLResourceType.TOPIC, topic) for topic in TOPICS]
    admin.create_acls([*others, *own])
    admin.delete_acls([exactly(each) for each in ((*others, *own) if turn % 2 else own[:1])])


def _change_quotas(admin: Admin, turn: int) -> None:
    """A limit that slows the clients down for a moment, and others that do not concern them."""
    app, other = QuotaEntity(user=APP), QuotaEntity(user="other", client_id="")
    admin.alter_client_quotas(
        {
            app: {"producer_byte_rate": 30_000.0 + turn, "consumer_byte_rate": 1e9, "request_percentage": 200.0},
            other: {"producer_byte_rate": 1.0},
        }
    )
    time.sleep(0.3)  # the clients are slowed down for this long
    admin.alter_client_quotas(
        {
            app: {"producer_byte_rate": None, "consumer_byte_rate": None, "request_percentage": None},
            other: {"producer_byte_rate": None},
        }
    )


# Permissions of a client that runs


class Writer:
    """A producer that stays open."""

    def __init__(self, secured: Secured) -> None:
        self.accepted: list[str] = []
        self._number = 0

    def write(self, partition: int) -> bool:
        """Whether a record was accepted; it may only be denied otherwise."""
        self._number += 1
        value = f"{type(self).__name__}:{self._number}"
        is_accepted = self._send(partition, value)
        if is_accepted:
            self.accepted.append(value)
        return is_accepted

    def _send(self, partition: int, value: str) -> bool:
        raise NotImplementedError


def _answers(writer: Writer, partition: int, is_allowed: bool) -> bool:
    return writer.write(partition) is is_allowed


class OttlaWriter(Writer):
    def __init__(self, secured: Secured) -> None:
        super().__init__(secured)
        options = secured.security.client_options(GUEST, OTHER_MECHANISM)
        self._producer = Producer(bootstrap_servers=secured.cluster.bootstrap, **options, acks="all")

    def _send(self, partition: int, value: str) -> bool:
        try:
            self._producer.send(GUARDED, value.encode(), partition=partition).result(SOON_SECONDS)
        except AnswerError as error:
            if error.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return False
        return True

    def close(self) -> None:
        self._producer.close()


class RdWriter(Writer):
    def __init__(self, secured: Secured) -> None:
        super().__init__(secured)
        options = {
            "bootstrap.servers": secured.cluster.bootstrap,
            **secured.security.librdkafka_options(GUEST, OTHER_MECHANISM),
        }
        self._producer = RdProducer(
            {
                **options,
                "enable.idempotence": True,
                "topic.metadata.refresh.interval.ms": 500,
                "message.timeout.ms": int(SOON_SECONDS * 1000),
            }
        )

    def _send(self, partition: int, value: str) -> bool:
        outcome: list[KafkaError | None] = []
        try:
            self._producer.produce(
                GUARDED, value.encode(), partition=partition, on_delivery=lambda error, _: outcome.append(error)
            )
        except KafkaException as raised:
            outcome.append(raised.args[0])
        assert 0 == self._producer.flush(SOON_SECONDS)
        error = outcome[0]
        assert error is None or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, error
        return error is None

    def close(self) -> None:
        self._producer.flush(SOON_SECONDS)


@pytest.mark.parametrize("kind", [OttlaWriter, RdWriter])
def test_a_producer_is_denied_and_allowed_while_it_runs(secured: Secured, kind: type[OttlaWriter | RdWriter]) -> None:
    """At every leader, soon after the change, and from then on without exception."""
    acls = [allowing(GUEST, ACLOperation.WRITE, ACLResourceType.TOPIC, GUARDED)]
    # With Write on some topic it keeps the permission to be idempotent.
    rest = allowing(GUEST, ACLOperation.WRITE, ACLResourceType.TOPIC, "plain")
    with secured.security.admin(secured.cluster.bootstrap) as admin:
        admin.create_acls([*acls, rest])
        writer = kind(secured)
        for _ in range(2):
            for is_allowed in (True, False):
                change(admin, acls, is_allowed)
                for partition in range(PARTITIONS):
                    wait_until(partial(_answers, writer, partition, is_allowed), f"allowed is {is_allowed}")
                assert {is_allowed} == {writer.write(number % PARTITIONS) for number in range(12)}
        change(admin, acls, is_allowed=True)
        wait_until(lambda: writer.write(0), "it is allowed again")
        writer.close()
    contents = read_contents(secured.cluster.bootstrap, [GUARDED], secured.security.librdkafka_options(APP))
    stored = [value for lines in contents.values() for _, value in lines if value.startswith(kind.__name__)]
    assert sorted(writer.accepted) == sorted(stored)


@pytest.mark.parametrize("library", ["ottla", "librdkafka"])
def test_a_consumer_is_denied_and_allowed_while_it_runs(secured: Secured, library: str) -> None:
    """It reads nothing that was written while it was denied, until it is allowed again; then all of it.

    It may read again what it read before: it could not commit while it was denied.
    """
    acls = [allowing(GUEST, ACLOperation.READ, ACLResourceType.TOPIC, GUARDED)]
    options = secured.security.client_options()
    with (
        secured.security.admin(secured.cluster.bootstrap) as admin,
        Producer(bootstrap_servers=secured.cluster.bootstrap, **options, acks="all") as producer,
    ):
        change(admin, acls, is_allowed=True)
        poll, close = ottla_reader(secured) if library == "ottla" else librdkafka_reader(secured)
        found: set[str] = set()
        written: list[str] = []

        def read() -> bool:
            """Whether it is denied."""
            values, is_denied = poll()
            found.update(each for each in values if each.startswith(f"{library}-read"))
            return is_denied

        def write(what: str) -> None:
            for number in range(6):
                value = f"{library}-read-{what}-{number}"
                producer.send(GUARDED, value.encode(), partition=number % PARTITIONS).result(SOON_SECONDS)
                written.append(value)

        try:
            write("allowed")
            wait_until(lambda: not read() and found == set(written), "it has read everything")
            change(admin, acls, is_allowed=False)
            # Fetches that wait at a leader may still be answered; what is denied once stays denied.
            wait_until(read, "it is denied")
            write("denied")
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline:
                read()
            assert not [each for each in found if each.startswith(f"{library}-read-denied")]
            change(admin, acls, is_allowed=True)
            wait_until(lambda: not read() and found == set(written), "it has read the rest")
        finally:
            close()


def change(admin: Admin, acls: list[ACL], is_allowed: bool) -> None:
    if is_allowed:
        admin.create_acls(acls)
    else:
        admin.delete_acls([exactly(each) for each in acls])


Reader = tuple[Callable[[], tuple[list[str], bool]], Callable[[], None]]
"""Polls once: values, and whether it was denied; and how to close it."""


def ottla_reader(secured: Secured) -> Reader:
    consumer = Consumer(
        GUARDED,
        bootstrap_servers=secured.cluster.bootstrap,
        **secured.security.client_options(GUEST, OTHER_MECHANISM),
        group_id="guests-ottla",
        auto_offset_reset="earliest",
    )

    def poll() -> tuple[list[str], bool]:
        try:
            found = consumer.poll(timeout_ms=200)
        except AnswerError as error:
            if error.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return [], True
        return [bytes(each.value).decode() for lines in found.values() for each in lines if each.value], False

    return poll, consumer.close


def librdkafka_reader(secured: Secured) -> Reader:
    consumer = RdConsumer(
        {
            "bootstrap.servers": secured.cluster.bootstrap,
            **secured.security.librdkafka_options(GUEST, OTHER_MECHANISM),
            "group.id": "guests-librdkafka",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.subscribe([GUARDED])

    def poll() -> tuple[list[str], bool]:
        found = consumer.consume(100, 0.2)
        codes = {error.code() for each in found if (error := each.error()) is not None}
        assert codes <= {KafkaError.TOPIC_AUTHORIZATION_FAILED}, codes
        values = [each.value() for each in found if each.error() is None]
        return [each.decode() for each in values if isinstance(each, bytes)], bool(codes)

    return poll, consumer.close
