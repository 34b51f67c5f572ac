"""The broker did what it was asked, its answer was lost, and it was killed (SIGKILL) before anybody asked again.

A client that asks again then hears what it would have heard at first: an idempotent producer's records are there once,
and a transaction ends once. Covers the clients that wait for a broker to come back; all of them live through the same
two kills.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ottla.coordination.transactions.records import TransactionStatus, decode_key, decode_value
from ottla.records.batch import scan
from ottla.records.decode import decode_records
from tests.compat.clients.broker_under_test import TARGET, Broker, broker_under_test
from tests.compat.clients.catalogue import BY_NAME, RETRIES_END, RETRIES_LONG, ClientKind, having
from tests.compat.clients.foreign_client import ForeignClient, ForeignProducer
from tests.compat.clients.middleman import Middleman
from tests.compat.clients.shapes import KEEP_ALL, expected_reading, small, stored_batches
from tests.compat.clients.transactional import TransactionalProducer, read_isolated, transactional_producer
from tests.waiting import wait_until

# A client that does not linger may send each record in a batch of its own, and no more than five batches without an
# answer: all records of a round must fit into these. Kafka, once killed, at times answers such a retry of Java's older
# client with OUT_OF_ORDER_SEQUENCE_NUMBER, upon which the client writes the records a second time.
ROUND = 1 if TARGET == "kafka" else 5
ROUNDS = 3
ARRIVAL_TIMEOUT_S = 60.0
LOOK_S = 0.02
# By their records' time a broker may see that a producer is long gone, and forget it.
SENT = [replace(record, timestamp=time.time_ns() // 1_000_000) for record in small(ROUND * ROUNDS)]


@dataclass(slots=True, kw_only=True)
class Life:
    """One client; `outcomes` are those of the two calls whose answers were lost."""

    client: ForeignClient
    idempotent: ForeignProducer
    transactional: TransactionalProducer
    topic: str
    acks: list[tuple[int, int]] = field(default_factory=list)
    transaction_acks: list[tuple[int, int]] = field(default_factory=list)
    outcomes: list[Future[None]] = field(default_factory=list)

    @property
    def transaction_topic(self) -> str:
        """Where the transactional producer writes."""
        return f"{self.topic}-in-transactions"

    def send(self) -> None:
        """The next records of the idempotent producer."""
        at = len(self.acks)
        self.acks += self.idempotent.send(self.topic, SENT[at : at + ROUND])

    def run_transaction(self) -> None:
        """A whole one."""
        self.write_in_transaction()
        self.transactional.commit()

    def write_in_transaction(self) -> None:
        """A transaction that is not ended yet."""
        at = len(self.transaction_acks)
        self.transactional.begin()
        self.transaction_acks += self.transactional.send(self.transaction_topic, SENT[at : at + ROUND])


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Life]]:
    """All clients, after both answers were lost and each asked again, and everything went on as usual."""
    folder = tmp_path_factory.mktemp("lost")
    with contextlib.ExitStack() as opened:
        broker, middleman = _begin_broker(folder, opened)
        pool = opened.enter_context(ThreadPoolExecutor(len(having(RETRIES_LONG))))
        lives = {name: _begin_client(BY_NAME[name], middleman.address, folder, opened) for name in having(RETRIES_LONG)}
        for life in lives.values():
            life.send()
            life.run_transaction()

        def lose_answers(chosen: list[Life], step: Callable[[Life], None], arrived: Callable[[Life], bool]) -> None:
            middleman.withhold_answers()
            for life in chosen:
                life.outcomes.append(pool.submit(step, life))
            try:
                wait_until(
                    lambda: all(map(arrived, chosen)),
                    lambda: f"what the clients sent has arrived: {_arrivals(data, chosen)}",
                    ARRIVAL_TIMEOUT_S,
                )
            except AssertionError:
                middleman.cut_off()
                middleman.resume()
                raise
            broker.kill()
            middleman.cut_off()
            broker.start()
            middleman.resume()

        data = broker.log_dir
        # A commit is answered when it is decided; a coordinator that is killed before it knows that the markers are
        # written writes them once more.
        lose_answers(
            list(lives.values()),
            Life.send,
            lambda life: _count(data, life.topic) == 2 * ROUND and _is_completed(data, life),
        )
        ending = [lives[name] for name in having(RETRIES_END)]
        for life in lives.values():
            life.outcomes[0].exception()
        for life in ending:
            life.write_in_transaction()
        lose_answers(
            ending,
            lambda life: life.transactional.commit(),
            lambda life: _markers(data, life) == 2 and _is_completed(data, life),
        )
        for life in ending:
            life.outcomes[1].exception()
        yield lives


def _begin_broker(folder: Path, opened: contextlib.ExitStack) -> tuple[Broker, Middleman]:
    middleman = opened.enter_context(Middleman())
    broker = broker_under_test(folder / "broker", advertised=middleman.address)
    middleman.broker_address = broker.bootstrap
    broker.start()
    opened.callback(broker.stop)
    return broker, middleman


def _begin_client(kind: ClientKind, address: str, folder: Path, opened: contextlib.ExitStack) -> Life:
    client = kind.start(address, folder / f"{kind.name}.log")
    opened.callback(client.close)
    topic = f"lost-{kind.name}"
    life = Life(
        client=client,
        idempotent=opened.enter_context(client.producer(idempotent=True)),
        transactional=opened.enter_context(transactional_producer(client, topic)),
        topic=topic,
    )
    for each in (life.topic, life.transaction_topic):
        client.create_topic(each, configs=KEEP_ALL)
    return life


def _arrivals(data: Path, lives: list[Life]) -> str:
    """What the broker has written for each client."""
    return ", ".join(
        f"{life.client.name}: {_count(data, life.topic)} records, {_markers(data, life)} markers, last transaction "
        f"{'completed' if _is_completed(data, life) else 'not completed'}"
        for life in lives
    )


def _count(data: Path, topic: str) -> int:
    """How many records the broker has written."""
    return sum(batch.count for batch in stored_batches(data, topic))


def _markers(data: Path, life: Life) -> int:
    """How many transactions have ended."""
    return sum(batch.is_control for batch in stored_batches(data, life.transaction_topic))


def _is_completed(data: Path, life: Life) -> bool:
    """Whether the coordinator has written that all markers of the last transaction are there."""
    last: TransactionStatus | None = None
    for segment in sorted(data.glob("__transaction_state-*/*.log")):
        for batch in scan(segment.read_bytes())[0]:
            for record in () if batch.is_control else decode_records(batch):
                if record.key is not None and record.value is not None and decode_key(record.key) == life.topic:
                    last = decode_value(record.value).status
    return last is TransactionStatus.COMPLETE_COMMIT


@pytest.mark.parametrize("name", having(RETRIES_LONG))
def test_an_idempotent_producer_writes_nothing_twice(lives: dict[str, Life], name: str) -> None:
    life = lives[name]
    life.outcomes[0].result()
    life.send()
    assert [(0, offset) for offset in range(ROUND * ROUNDS)] == life.acks
    expected = expected_reading(SENT, life.acks)
    assert expected == life.client.read(life.topic, len(expected))
    assert len(expected) == life.client.find_offset(life.topic, 0, "latest")[0]


@pytest.mark.parametrize("name", having(RETRIES_END))
def test_a_transaction_ends_once(lives: dict[str, Life], name: str) -> None:
    life = lives[name]
    life.outcomes[1].result()
    life.run_transaction()
    # Each transaction is followed by its marker.
    offsets = [at * (ROUND + 1) + index for at in range(ROUNDS) for index in range(ROUND)]
    assert [(0, offset) for offset in offsets] == life.transaction_acks
    expected = expected_reading(SENT, life.transaction_acks)
    assert expected == read_isolated(life.client, life.transaction_topic, len(expected), committed=True)
