"""The broker goes away and comes back, asked to (SIGTERM) and not (SIGKILL); clients that are open carry on.

Every client has an idempotent producer and a consumer open all the time. They all live through the same restarts,
since a broker takes longer to come back than a client to notice; what happened to each is asserted on its own.
"""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.compat.clients.broker_under_test import Broker, broker_under_test
from tests.compat.clients.catalogue import KINDS, NAMES, RETRIES_LONG, ClientKind, having
from tests.compat.clients.foreign_client import EARLIEST, ForeignClient, ForeignConsumer, ForeignProducer, Read
from tests.compat.clients.shapes import KEEP_ALL, expected_reading, small

ROUND = 50
SENT = small(5 * ROUND)


@dataclass(slots=True, kw_only=True)
class Life:
    """One client through all restarts; `failure` is the first thing that went wrong, and ends it."""

    topic: str
    client: ForeignClient
    producer: ForeignProducer
    consumer: ForeignConsumer
    acks: list[tuple[int, int]] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)
    failure: BaseException | None = None

    def send(self) -> None:
        """The next round of records."""
        at = len(self.acks)
        self._try(lambda: self.acks.extend(self.producer.send(self.topic, SENT[at : at + ROUND])))

    def poll(self) -> None:
        """Everything that was acknowledged and not read yet."""
        self._try(lambda: self.read.extend(self.consumer.poll(len(self.acks) - len(self.read))))

    def _try(self, step: Callable[[], None]) -> None:
        if self.failure is None:
            try:
                step()
            except Exception as error:
                self.failure = error


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Life]]:
    """All clients after two restarts between their calls, and one during a call for those that wait for a broker."""
    folder = tmp_path_factory.mktemp("restarted")
    broker = broker_under_test(folder / "broker")
    with broker, contextlib.ExitStack() as open_clients:
        lives = {kind.name: _begin(kind, broker, folder, open_clients) for kind in KINDS}
        for end in (broker.stop, broker.kill):
            for life in lives.values():
                life.send()
                life.poll()
            end()
            broker.start()
            for life in lives.values():
                life.send()
                life.poll()
        patient = [lives[name] for name in having(RETRIES_LONG)]
        broker.kill()
        with ThreadPoolExecutor(len(patient)) as pool:
            for life in patient:
                pool.submit(life.send)
            broker.start()
        for life in patient:
            life.poll()
        yield lives


def _begin(kind: ClientKind, broker: Broker, folder: Path, held: contextlib.ExitStack) -> Life:
    client = kind.start(broker.bootstrap, folder / f"{kind.name}.log")
    held.callback(client.close)
    topic = f"of-{kind.name}"
    client.create_topic(topic, configs=KEEP_ALL)
    producer = held.enter_context(client.producer(idempotent=True))
    consumer = held.enter_context(client.consumer(topic, {0: EARLIEST}))
    return Life(topic=topic, client=client, producer=producer, consumer=consumer)


@pytest.mark.parametrize("name", NAMES)
def test_a_client_carries_on_after_restarts(lives: dict[str, Life], name: str) -> None:
    life = lives[name]
    assert life.failure is None
    count = (5 if name in having(RETRIES_LONG) else 4) * ROUND
    assert [(0, offset) for offset in range(count)] == life.acks


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_or_doubled(lives: dict[str, Life], name: str) -> None:
    """By the consumer that was open all the time, and by one that reads the topic anew."""
    life = lives[name]
    expected = expected_reading(SENT[: len(life.acks)], life.acks)
    assert expected == life.read
    assert expected == life.client.read(life.topic, len(expected))
    assert len(expected) == life.client.find_offset(life.topic, 0, "latest")[0]
