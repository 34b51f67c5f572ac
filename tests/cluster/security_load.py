"""Clients at work while a test changes a secured cluster, and the verdict that none of them noticed it."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from ottla.testing import BrokerCluster, ProcessBroker
from tests.chaos.arena import PARTITIONS, LoadProcess, read_contents
from tests.chaos.checker import check
from tests.chaos.history import Event, read_events
from tests.cluster.cluster_security import ClusterSecurity

APP: Final = "app"
"""The user of the clients."""
TOPICS: Final = ("plain", "moves")
LATE: Final = "the session has expired, and the client did not re-authenticate"
BROKEN: Final = "connection to leader"
BROKEN_MAX: Final = 5
"""How many connections may break then: some, not most of them."""
ALARMING: Final = ("ERROR", "Traceback", "ISR shrunk", "lost its registration", BROKEN)
"""Words in the log of a broker that tell of a connection to another that broke, a replica out of sync, or a bug."""
PATIENT: Final = {"socket.timeout.ms": "15000", "socket.connection.setup.timeout.ms": "15000"}
"""Options of librdkafka's clients: nothing is cut off here, and a broker that is slow for a moment is no error."""
NOTICED: Final = frozenset({"trouble", "complained"})
"""Events of a client that saw an error, also of one that it got over by itself."""


@contextmanager
def unnoticed(folder: Path, cluster: BrokerCluster, security: ClusterSecurity) -> Iterator[None]:
    """Clients of librdkafka and Ottla write and read, with open and with new connections, as `APP`.

    In the end no promise may be broken, no client may have seen an error, and replication must have gone on.
    """
    folder.mkdir()
    seen = {broker.id: len(_log(broker)) for broker in cluster.brokers}
    with ExitStack() as stack:
        loads = [
            _start(stack, folder, cluster, name, module, roles, options)
            for name, module, roles, options in (
                (
                    "rd",
                    "tests.chaos.librdkafka_load",
                    "writer,mover,reader,member,visitor",
                    {**security.librdkafka_options(APP), **PATIENT},
                ),
                ("ottla", "tests.cluster.ottla_load", "writer,reader,visitor", security.java_options(APP)),
            )
        ]
        yield
        for load in loads:
            load.write("quiet")
        for load in loads:
            load.wait_said("quiet")
        for load in loads:
            load.end()
    cluster.wait_in_sync()
    events = read_events(load.history for load in loads)
    contents = read_contents(cluster.bootstrap, TOPICS, security.librdkafka_options(APP))
    assert [] == check(events, contents)
    for load in loads:
        assert _count(events, load.name, "acked") > 0, f"{load.name} wrote nothing"
        assert _count(events, load.name, "read") > 0, f"{load.name} read nothing"
    logs = [_log(broker)[seen[broker.id] :] for broker in cluster.brokers]
    # If the machine stalls just then, a client or a broker is too late to log in again, and connections break.
    broken_max = BROKEN_MAX if any(LATE in log for log in logs) else 0
    alarming = [line for log in logs for line in log.splitlines() if any(word in line for word in ALARMING)]
    noticed = [event for event in events if event.what in NOTICED]
    assert [] == [line for line in alarming if BROKEN not in line]
    assert [] == [event for event in noticed if event.what == "trouble"]
    assert len(alarming) <= broken_max, alarming
    assert len(noticed) <= broken_max, noticed


def _start(
    stack: ExitStack,
    folder: Path,
    cluster: BrokerCluster,
    name: str,
    module: str,
    roles: str,
    options: Mapping[str, str],
) -> LoadProcess:
    properties, history = folder / f"{name}.properties", folder / f"{name}.history"
    properties.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
    words = (cluster.bootstrap, str(history), name, str(PARTITIONS), roles, str(properties))
    load = stack.enter_context(LoadProcess([sys.executable, "-m", module, *words], None, history))
    load.wait_said("ready")
    return load


def _count(events: list[Event], name: str, what: str) -> int:
    return sum(event.what == what and event.who.startswith(f"{name}-") for event in events)


def _log(broker: object) -> str:
    return broker.log if isinstance(broker, ProcessBroker) else ""
