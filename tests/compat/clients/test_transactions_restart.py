"""The broker is killed (SIGKILL) in the middle: transactions that were open end as their producers say, and only once.

All clients live through the same kills, since a broker takes longer to come back than a client to notice; what
happened to each is asserted on its own.
"""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.compat.clients.broker_under_test import Broker, broker_under_test
from tests.compat.clients.catalogue import KINDS, NAMES, RETRIES_END, ClientKind, having
from tests.compat.clients.foreign_client import ForeignClient, Sent
from tests.compat.clients.shapes import FIRST_TIMESTAMP, KEEP_ALL, expected_reading, small
from tests.compat.clients.transactional import TransactionalProducer, read_isolated, transactional_producer

KEPT, DROPPED = 0, 1
"""The partition of the producer that commits, and that of the one that aborts."""
PART = 5


@dataclass(slots=True, kw_only=True)
class Life:
    """One client through all kills; `failure` is the first thing that went wrong, and ends it."""

    topic: str
    client: ForeignClient
    keeping: TransactionalProducer
    dropping: TransactionalProducer
    sent: list[Sent] = field(default_factory=list)
    acks: list[tuple[int, int]] = field(default_factory=list)
    failure: BaseException | None = None

    def attempt(self, *steps: Callable[[], None]) -> None:
        """The steps until one fails."""
        for step in steps:
            if self.failure is None:
                try:
                    step()
                except Exception as error:
                    self.failure = error

    def begin(self) -> None:
        """Both transactions."""
        self.keeping.begin()
        self.dropping.begin()

    def send(self) -> None:
        """Some records in each of the transactions."""
        first = len(self.sent)
        kept = [
            Sent(value=b"kept-%d" % number, timestamp=FIRST_TIMESTAMP + number, partition=KEPT)
            for number in range(first, first + PART)
        ]
        self.acks += self.keeping.send(self.topic, kept)
        self.sent += kept
        self.dropping.send(self.topic, small(PART, partition=DROPPED))

    def end(self) -> None:
        """One transaction one way, one the other."""
        self.keeping.commit()
        self.dropping.abort()


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Life]]:
    """All clients after two kills: between their calls, and for some during the end of a transaction."""
    folder = tmp_path_factory.mktemp("killed")
    broker = broker_under_test(folder / "broker")
    with broker, contextlib.ExitStack() as opened, ThreadPoolExecutor(len(KINDS)) as pool:
        lives = {kind.name: _begin(kind, broker, folder, opened) for kind in KINDS}
        for life in lives.values():
            life.attempt(life.begin, life.send)
        broker.kill()
        broker.start()
        for life in lives.values():
            life.attempt(life.send, life.end, life.begin, life.send, life.end)

        patient = [lives[name] for name in having(RETRIES_END)]
        for life in patient:
            life.attempt(life.begin, life.send)
        broker.kill()
        ending = [pool.submit(life.attempt, life.end) for life in patient]
        broker.start()
        wait(ending)

        yield lives


def _begin(kind: ClientKind, broker: Broker, folder: Path, opened: contextlib.ExitStack) -> Life:
    client = kind.start(broker.bootstrap, folder / f"{kind.name}.log")
    opened.callback(client.close)
    topic = f"killed-{kind.name}"
    life = Life(
        topic=topic,
        client=client,
        keeping=opened.enter_context(transactional_producer(client, f"{topic}-kept")),
        dropping=opened.enter_context(transactional_producer(client, f"{topic}-dropped")),
    )
    client.create_topic(topic, partitions=2, configs=KEEP_ALL)
    return life


@pytest.mark.parametrize("name", NAMES)
def test_transactions_end_as_their_producers_say(lives: dict[str, Life], name: str) -> None:
    life = lives[name]
    assert life.failure is None
    assert (4 if name in having(RETRIES_END) else 3) * PART == len(life.sent)
    # A last record behind those that were aborted shows that none of them comes before it.
    with transactional_producer(life.client, f"{life.topic}-last") as producer:
        producer.begin()
        last = [Sent(value=b"last", timestamp=FIRST_TIMESTAMP, partition=DROPPED)]
        acks = producer.send(life.topic, last)
        producer.commit()
    expected = expected_reading([*life.sent, *last], [*life.acks, *acks])
    assert expected == read_isolated(life.client, life.topic, len(expected), committed=True, partitions=2)
