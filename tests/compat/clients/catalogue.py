"""Which foreign clients there are, how each is started, and what each can do.

A test that needs an ability runs for the clients that have it (`having`); what a client cannot do at all is no gap in
the broker. The abilities are facts about the libraries at their default settings.
"""

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.compat.clients import client_builds
from tests.compat.clients.foreign_client import ForeignClient
from tests.compat.kafka_jars import KAFKA_VERSION, NEWEST_CLIENTS_VERSION, SHORT_LIVED_JVM, java_command

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""All clients speak all of them; the position is the number in a batch's attributes."""

RESET: Final = "moves to where auto.offset.reset says when its offset is gone"
MAX_TIMESTAMP: Final = "finds the record with the largest timestamp"
OFFSET_TIMESTAMP: Final = "tells the timestamp of the record that it found by time"
LOG_DIRS: Final = "describes log dirs"
CLUSTER_ID: Final = "tells the cluster's id"
AUTO_CREATE: Final = "asks for topics to be created by writing to them"
NULL_HEADERS: Final = "writes headers without a value"
RETRIES_LONG: Final = "keeps a record for as long as a broker needs to come back"
SENDS_OFFSETS: Final = "adds a group's offsets to a transaction without being a member of the group"
RETRIES_END: Final = "keeps the end of a transaction for as long as a broker needs to come back"
TRANSACTION_V2: Final = "speaks the second version of transactions, with an epoch for each"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKind:
    """One library."""

    name: str
    command: Callable[[], list[str]]
    abilities: frozenset[str]

    def start(self, bootstrap: str, log: Path) -> ForeignClient:
        """The running program."""
        return ForeignClient(self.name, self.command(), bootstrap=bootstrap, log=log)


def _python(program: str) -> list[str]:
    return [sys.executable, "-m", f"tests.compat.clients.programs.{program}"]


def _java(version: str) -> list[str]:
    classes = str(client_builds.java_classes(version))
    return java_command("ClientProgram", version=version, jvm_options=SHORT_LIVED_JVM, extra_path=classes)


def _go(name: str) -> list[str]:
    return [str(client_builds.go_program(name))]


def _node() -> list[str]:
    settings = [f"NODE_PATH={client_builds.node_modules()}", "KAFKAJS_NO_PARTITIONER_WARNING=1"]
    return ["env", *settings, "node", os.fspath(client_builds.HERE / "node" / "kafkajs_program.js")]


ALL_ABILITIES: Final = frozenset(
    {
        RESET,
        MAX_TIMESTAMP,
        OFFSET_TIMESTAMP,
        LOG_DIRS,
        CLUSTER_ID,
        AUTO_CREATE,
        NULL_HEADERS,
        RETRIES_LONG,
        SENDS_OFFSETS,
        RETRIES_END,
        TRANSACTION_V2,
    }
)

KINDS: Final = (
    ClientKind(
        name="confluent-kafka",
        command=functools.partial(_python, "confluent_program"),
        abilities=ALL_ABILITIES - {LOG_DIRS, TRANSACTION_V2},
    ),
    ClientKind(
        name="kafka-python",
        command=functools.partial(_python, "kafka_python_program"),
        abilities=ALL_ABILITIES - {NULL_HEADERS, RETRIES_END, TRANSACTION_V2},
    ),
    ClientKind(
        name="aiokafka",
        command=functools.partial(_python, "aiokafka_program"),
        abilities=ALL_ABILITIES - {LOG_DIRS, MAX_TIMESTAMP, TRANSACTION_V2},
    ),
    *(
        ClientKind(
            name=f"java-{version}",
            command=functools.partial(_java, version),
            abilities=ALL_ABILITIES - ({TRANSACTION_V2} if version.startswith("3.") else set()),
        )
        for version in client_builds.JAVA_VERSIONS
    ),
    ClientKind(
        name="franz-go",
        command=functools.partial(_go, "franz"),
        abilities=ALL_ABILITIES - {AUTO_CREATE, SENDS_OFFSETS, RETRIES_END},
    ),
    ClientKind(
        name="sarama",
        command=functools.partial(_go, "sarama"),
        abilities=frozenset({LOG_DIRS, AUTO_CREATE, NULL_HEADERS, SENDS_OFFSETS}),
    ),
    ClientKind(
        name="kafkajs",
        command=_node,
        abilities=frozenset({CLUSTER_ID, AUTO_CREATE, SENDS_OFFSETS}),
    ),
)
NEWEST_JAVA: Final = ClientKind(
    name=f"java-{NEWEST_CLIENTS_VERSION}",
    command=functools.partial(_java, NEWEST_CLIENTS_VERSION),
    abilities=ALL_ABILITIES,
)
"""Has a module of its own, `test_newest_java.py`: what it does differently from the version before."""
NAMES: Final = tuple(kind.name for kind in KINDS)
BY_NAME: Final = {kind.name: kind for kind in (*KINDS, NEWEST_JAVA)}
JAVA: Final = f"java-{KAFKA_VERSION}"


def having(ability: str) -> list[str]:
    """The names of the clients with this ability."""
    return [kind.name for kind in KINDS if ability in kind.abilities]
