"""What `benchmarks.security` measures, and with what load."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.kafka_race import librdkafka_load
from benchmarks.kafka_race.arena import Arena, Figures, measured
from benchmarks.kafka_race.arena import topic as new_topic
from benchmarks.kafka_race.raw_load import Work
from benchmarks.kafka_race.scoreboard import Measure, Sample
from benchmarks.kafka_race.throughput import throughput
from benchmarks.security_race import login_load
from benchmarks.security_race.brokers import MECHANISM, PASSWORD, USER, Ports

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

RECORD_BYTES: Final = 1024
ACLS: Final = 10_000
ACLS_AT_ONCE: Final = 1_000
ADMIN_TIMEOUT_S: Final = 120.0
OPEN, PLAINTEXT, TLS = "plaintext, no authorizer", "plaintext", "TLS"
PAUSING: Final = "plaintext, default pause"
"""With librdkafka's own pause when its queue is full: a broker is slow here if it is faster than the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """A rival, and how to reach it."""

    arena: Arena
    open: Arena
    """The same broker without an authorizer, with one listener."""
    ports: Ports
    authority: str
    """The file of the authority's certificate."""
    client_bytes: int
    connect_s: float
    small_requests: int

    def reached_by(self, way: str) -> tuple[Arena, str, Mapping[str, str]]:
        """The broker, its address for librdkafka, and the client's security options."""
        if way == TLS:
            security = {"security.protocol": "SSL", "ssl.ca.location": self.authority}
            return self.arena, f"localhost:{self.ports.tls}", security
        arena = self.open if way == OPEN else self.arena
        return arena, arena.broker.address.bootstrap, {}


Case = Callable[[Secured, str], Figures]
"""Gets the rival and the name of a new topic with one partition."""


def moves(secured: Secured, topic: str) -> Figures:
    """Produce and consume, in plaintext without and with an authorizer, and over TLS, by librdkafka."""
    with new_topic(secured.open.broker, topic, 1):
        return _moves(secured, topic)


def _moves(secured: Secured, topic: str) -> Figures:
    figures: Figures = {}
    records = secured.client_bytes // RECORD_BYTES
    for way in (OPEN, PLAINTEXT, TLS):
        arena, servers, security = secured.reached_by(way)
        produce = partial(
            librdkafka_load.produce,
            servers,
            topic,
            records=records,
            record_bytes=RECORD_BYTES,
            acks="1",
            security=security,
        )
        consume = partial(librdkafka_load.consume, servers, topic, partitions=1, records=records, security=security)
        loads = {f"produce librdkafka {way}": produce, f"consume librdkafka {way}": consume}
        if way == PLAINTEXT:
            loads[f"consume librdkafka {PAUSING}"] = partial(consume, pause_ms=librdkafka_load.DEFAULT_PAUSE_MS)
        for name, load in loads.items():
            figures |= throughput(name, *measured(arena, load), judged_cpu=False)
    return {_without_goal(measure): sample for measure, sample in figures.items()}


def handshakes(secured: Secured, topic: str) -> Figures:
    """TLS handshakes, each with one small request."""
    load = partial(login_load.handshakes, secured.ports.tls, authority=secured.authority, seconds=secured.connect_s)
    return _connections("TLS handshakes", *measured(secured.arena, load))


def logins(secured: Secured, topic: str) -> Figures:
    """SCRAM logins without TLS."""
    load = partial(
        login_load.logins,
        secured.ports.sasl,
        mechanism=MECHANISM,
        user=USER,
        password=PASSWORD,
        seconds=secured.connect_s,
    )
    return _connections(f"{MECHANISM} logins", *measured(secured.arena, load))


def small_requests(secured: Secured, topic: str) -> Figures:
    """Small Produce requests by the load in C, without an authorizer, without ACLs, and with many."""
    with new_topic(secured.open.broker, topic, 1):
        figures = _small(secured, secured.open, topic, "small requests, no authorizer")
    figures |= _small(secured, secured.arena, topic, "small requests, no ACLs")
    with many_acls(secured.arena, topic):
        return figures | _small(secured, secured.arena, topic, f"small requests, {ACLS:,} ACLs")


CASES: Final[Mapping[str, Case]] = {
    "produce and consume": moves,
    "TLS handshakes": handshakes,
    "SCRAM logins": logins,
    "small requests": small_requests,
}
COMPARED: Final = (
    (f"produce librdkafka {TLS}", f"produce librdkafka {PLAINTEXT}", "MB/s"),
    (f"consume librdkafka {TLS}", f"consume librdkafka {PLAINTEXT}", "MB/s"),
    (f"produce librdkafka {PLAINTEXT}", f"produce librdkafka {OPEN}", "MB/s"),
    (f"consume librdkafka {PLAINTEXT}", f"consume librdkafka {OPEN}", "MB/s"),
    (f"consume librdkafka {PAUSING}", f"consume librdkafka {PLAINTEXT}", "MB/s"),
    (f"small requests, {ACLS:,} ACLs", "small requests, no ACLs", "requests/s"),
    ("small requests, no ACLs", "small requests, no authorizer", "requests/s"),
)
"""What each rival reaches with security, and without; and with the client's pause, and without."""


def _small(secured: Secured, arena: Arena, topic: str, name: str) -> Figures:
    load = partial(
        arena.raw.produce,
        arena.broker.address.port,
        topic,
        connections=4,
        in_flight=5,
        acks=1,
        requests=secured.small_requests,
    )
    return _requests(name, *measured(arena, load), quantity="requests/s")


def _connections(name: str, work: Work, cpu_s: float) -> Figures:
    return _requests(name, work, cpu_s, quantity="connections/s")


def _requests(name: str, work: Work, cpu_s: float, *, quantity: str) -> Figures:
    rate = Measure(case=name, quantity=quantity, more_is_better=True)
    cost = Measure(case=name, quantity="broker CPU µs each", more_is_better=False)
    return {
        rate: Sample(value=work.requests / work.seconds, client_cores=work.client_cores),
        cost: Sample(value=max(cpu_s, 0.01) * 1e6 / work.requests),
    }


def _without_goal(measure: Measure) -> Measure:
    """Goals of `vs_kafka` are for its own loads."""
    return Measure(case=measure.case, quantity=measure.quantity, more_is_better=measure.more_is_better)


@contextmanager
def many_acls(arena: Arena, topic: str) -> Iterator[None]:
    """ACLs of other users on other topics, a tenth of them on prefixes, and one that allows the load what it does."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    def acl(principal: str, name: str, kind: ResourcePatternType) -> AclBinding:
        allow, write = AclPermissionType.ALLOW, AclOperation.WRITE
        return AclBinding(ResourceType.TOPIC, name, kind, principal, "*", write, allow)

    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    acls = [
        acl(f"User:user-{number}", f"other-{number}", literal if number % 10 else prefixed)
        for number in range(ACLS - 1)
    ]
    acls.append(acl("User:ANONYMOUS", topic, literal))
    admin = AdminClient({"bootstrap.servers": arena.broker.address.bootstrap, "log_level": 0})
    try:
        for first in range(0, len(acls), ACLS_AT_ONCE):
            made = admin.create_acls(acls[first : first + ACLS_AT_ONCE], request_timeout=ADMIN_TIMEOUT_S)
            for outcome in made.values():
                outcome.result(ADMIN_TIMEOUT_S)
        yield
    finally:
        _delete_all(admin)


def _delete_all(admin: "AdminClient") -> None:
    from confluent_kafka.admin import (
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    everything = AclBindingFilter(
        ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for outcome in admin.delete_acls([everything], request_timeout=ADMIN_TIMEOUT_S).values():
        outcome.result(ADMIN_TIMEOUT_S)
