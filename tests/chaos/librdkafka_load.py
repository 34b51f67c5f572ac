"""A program: librdkafka's clients as a load, with everything they are told in a history.

    python -m tests.chaos.librdkafka_load BOOTSTRAP HISTORY NAME PARTITIONS ROLES [PROPERTIES]

Roles, with commas: `writer` (idempotent, acks=all, to `plain`), `mover` (transactions over `moves`), `reader` (of both,
from the start, and their ends), `member` (of the group `members`, of `plain`), `copier` (`plain` to `copies`, offsets
and records in one transaction), `visitor` (a new producer for each record to `plain`). At the first line of its input
those that write end, wait for their answers, and `quiet` is printed; when the input ends, members read on to the end
that there is then. The properties are more options of all clients, such as how they log in. `JavaLoad.java` is its
twin, without the last two roles.
"""

import faulthandler
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.client.properties import read_properties
from tests.chaos.checker import COPIED
from tests.chaos.history import HistoryWriter

WRITING: Final = frozenset({"writer", "mover", "copier", "visitor"})
PAUSE_SECONDS: Final = 0.02
VISIT_SECONDS: Final = 0.3
GIVE_UP_SECONDS: Final = 90.0
OFFSETS_SECONDS: Final = 10.0
STUCK_SECONDS: Final = 15.0
"""Longer than any call may take that was given `OFFSETS_SECONDS`."""
COMMON: Final[dict[str, Any]] = {
    # A client that is to find the next leader soon must not wait a minute for the last one.
    "socket.timeout.ms": 3000,
    "socket.connection.setup.timeout.ms": 2000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 5000,
    "log_level": 0,
}


class StuckError(Exception):
    """A call of the library did not return in the time that it was given, and a half more."""


class Load:
    """One run of the program."""

    def __init__(
        self, bootstrap: str, history: HistoryWriter, name: str, partitions: int, options: Mapping[str, str]
    ) -> None:
        self.common = {
            **COMMON,
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "error_cb": lambda error: self.tell("client", "complained", error=str(error)),
            **options,
        }
        self.history = history
        self.name = name
        self.partitions = partitions
        self.is_quiet = threading.Event()
        self.is_over = threading.Event()
        self.random = random.Random(name)

    def tell(self, role: str, what: str, **more: Any) -> None:
        """Writes an event of one role."""
        self.history.write(f"{self.name}-{role}", what, **more)

    # Roles

    def writer(self) -> None:
        """A record to each partition at every turn, each waited for in the background."""
        producer = Producer(
            {
                **self.common,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "request.timeout.ms": 3000,
                "message.timeout.ms": int(GIVE_UP_SECONDS * 1000),
            }
        )
        number = 0
        while not self.is_quiet.wait(PAUSE_SECONDS):
            number += 1
            for partition in range(self.partitions):
                self._send(producer, "writer", "plain", partition, number)
            producer.poll(0)
        producer.flush(GIVE_UP_SECONDS)

    def visitor(self) -> None:
        """A new producer for each record: connections that are opened all the time."""
        number = 0
        while not self.is_quiet.wait(VISIT_SECONDS):
            number += 1
            producer = Producer({**self.common, "acks": "all", "message.timeout.ms": int(GIVE_UP_SECONDS * 1000)})
            self._send(producer, f"visitor-{number}", "plain", number % self.partitions, number)
            producer.flush(GIVE_UP_SECONDS)

    def mover(self) -> None:
        """One transaction after the other; every fourth is aborted. After what cannot be got over, a new producer."""
        number = 0
        while not self.is_quiet.is_set():
            producer = self._transactional("mover")
            with self._troubled("mover"):
                producer.init_transactions(GIVE_UP_SECONDS)
                while not self.is_quiet.wait(PAUSE_SECONDS):
                    number += 1
                    self._move(producer, number)

    def _move(self, producer: Producer, number: int) -> None:
        transaction = f"{self.name}-transaction-{number}"
        producer.begin_transaction()
        for place in range(self.random.randint(1, 4)):
            partition = self.random.randrange(self.partitions)
            self._send(producer, "mover", "moves", partition, number * 10 + place, transaction)
        self._end("mover", producer, transaction, is_wanted=number % 4 != 0)

    def _end(self, role: str, producer: Producer, transaction: str, *, is_wanted: bool) -> None:
        """Commits or aborts; raises if that cannot be known, after having said so."""
        try:
            if is_wanted:
                try:
                    _patiently(lambda: producer.commit_transaction(10))
                    self.tell(role, "committed", transaction=transaction)
                    return
                except KafkaException as error:
                    if not _error(error).txn_requires_abort():
                        raise
                    self.tell(role, "trouble", error=str(error))
            else:
                # librdkafka that aborts before the response to its AddPartitionsToTxn is there gets INVALID_TXN_STATE
                # from every broker, Kafka's included, and does not recover from that.
                producer.flush(10)
            _patiently(lambda: producer.abort_transaction(10))
            self.tell(role, "aborted", transaction=transaction)
        except KafkaException:
            self.tell(role, "unsure", transaction=transaction)
            raise

    def reader(self) -> None:
        """Everything from the start, and now and then where it ends."""
        consumer = Consumer({**self.common, "group.id": f"{self.name}-reader", **_READING})
        everything = [TopicPartition(topic, at) for topic in ("plain", "moves") for at in range(self.partitions)]
        consumer.assign([TopicPartition(each.topic, each.partition, OFFSET_BEGINNING) for each in everything])
        for each in everything:
            self.tell("reader", "began", at=f"{each.topic}-{each.partition}")
        ask_at = 0.0
        while not self.is_over.is_set():
            self._read("reader", consumer)
            if time.monotonic() > ask_at:
                ask_at = time.monotonic() + 0.5
                self._ask_end(consumer, self.random.choice(everything))
        consumer.close()

    def _ask_end(self, consumer: Consumer, where: TopicPartition) -> None:
        since = time.monotonic()
        try:
            _, end = consumer.get_watermark_offsets(where, timeout=2)
        except KafkaException:
            return
        self.tell("reader", "end", at=f"{where.topic}-{where.partition}", offset=end, since=since)

    def member(self) -> None:
        """One of a group; saves offsets by hand, and after the end reads on until it has everything that is its own."""
        settings = {"group.id": "members", "session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}
        consumer = Consumer({**self.common, **settings, **_READING})

        def begin(_: Consumer, partitions: list[TopicPartition]) -> None:
            since = time.monotonic()
            found = _patiently(lambda: consumer.committed(partitions, timeout=5))
            for each in found:
                at = f"{each.topic}-{each.partition}"
                self.tell("member", "began", at=at, offset=each.offset, group="members", since=since)
            consumer.assign(found)

        consumer.subscribe(["plain"], on_assign=begin)
        while not self.is_over.is_set():
            self._read("member", consumer, group="members")
            self._save(consumer)
        self._read_to_end(consumer)
        consumer.close()

    def _save(self, consumer: Consumer) -> None:
        with self._troubled("member", is_told=False):
            for each in consumer.commit(asynchronous=False) or ():
                if each.error is None:
                    at = f"{each.topic}-{each.partition}"
                    self.tell("member", "saved", at=at, offset=each.offset, group="members")

    def _read_to_end(self, consumer: Consumer) -> None:
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < deadline:
            self._read("member", consumer, group="members")
            with self._troubled("member", is_told=False):
                mine = consumer.assignment()
                ends = {each.partition: consumer.get_watermark_offsets(each, timeout=5)[1] for each in mine}
                if mine and all(each.offset >= ends[each.partition] for each in consumer.position(mine)):
                    self._save(consumer)
                    return

    def copier(self) -> None:
        """Copies each record once. A producer that is stuck is left behind; the next one fences it."""
        number = 0
        while not self.is_quiet.is_set():
            producer = self._transactional("copier")
            consumer = Consumer({**self.common, "group.id": "copiers", "session.timeout.ms": 6000, **_READING})
            consumer.subscribe(["plain"])
            with suppress(StuckError), self._troubled("copier"):
                producer.init_transactions(GIVE_UP_SECONDS)
                while not self.is_quiet.is_set():
                    found = [each for each in consumer.consume(100, 0.2) if each.error() is None]
                    if found:
                        number += 1
                        self._copy(producer, consumer, found, number)
            consumer.close()

    def _copy(self, producer: Producer, consumer: Consumer, found: list[Message], number: int) -> None:
        transaction = f"{self.name}-copy-{number}"
        producer.begin_transaction()
        for each in found:
            value = f"{_text(each)}{COPIED}{transaction}"
            self._give(producer, "copier", "copies", each.partition() or 0, value, transaction)
        try:
            positions = consumer.position(consumer.assignment())
            _patiently(lambda: _send_offsets(producer, positions, consumer.consumer_group_metadata()))
        except StuckError:
            self.tell("copier", "unsure", transaction=transaction)
            raise
        except KafkaException as error:
            self.tell("copier", "trouble", error=str(error))
            self._end("copier", producer, transaction, is_wanted=False)
            raise
        self._end("copier", producer, transaction, is_wanted=True)

    # What roles share

    def _transactional(self, role: str) -> Producer:
        settings = {"transactional.id": f"{self.name}-{role}", "transaction.timeout.ms": 20_000, "linger.ms": 0}
        return Producer({**self.common, **settings, "request.timeout.ms": 3000, "message.timeout.ms": 20_000})

    def _send(
        self, producer: Producer, role: str, topic: str, partition: int, number: int, transaction: str | None = None
    ) -> None:
        self._give(producer, role, topic, partition, f"{self.name}-{role}:{partition}:{number}", transaction)

    def _give(
        self, producer: Producer, role: str, topic: str, partition: int, value: str, transaction: str | None
    ) -> None:
        at = f"{topic}-{partition}"

        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                self.tell(role, "acked", at=at, value=value, offset=-1 if offset is None else offset)
            else:
                self.tell(role, "failed", at=at, value=value, error=str(error))

        belongs = {} if transaction is None else {"transaction": transaction}
        self.tell(role, "sent", at=at, value=value, **belongs)
        while True:
            try:
                producer.produce(topic, value.encode(), partition=partition, on_delivery=told)
                return
            except BufferError:
                producer.poll(0.1)

    def _read(self, role: str, consumer: Consumer, group: str | None = None) -> None:
        found = [each for each in consumer.consume(500, 0.1) if each.error() is None]
        if found:
            records = [(f"{each.topic()}-{each.partition()}", each.offset(), _text(each)) for each in found]
            self.tell(role, "read", records=records, **({} if group is None else {"group": group}))

    @contextmanager
    def _troubled(self, role: str, *, is_told: bool = True) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            if is_told:
                self.tell(role, "trouble", error=str(error))

    # Life

    def run(self, roles: list[str]) -> None:
        """Runs the roles as the program's input says."""
        threads = {role: threading.Thread(target=getattr(self, role), name=role) for role in roles}
        for each in threads.values():
            each.start()
        sys.stdin.readline()
        self.is_quiet.set()
        for role in WRITING & threads.keys():
            threads[role].join()
        self.history.flush()
        print("quiet", flush=True)
        sys.stdin.read()
        self.is_over.set()
        for each in threads.values():
            each.join()


_READING: Final = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}


def _text(message: Message) -> str:
    value = message.value()
    return value.decode() if isinstance(value, bytes) else ""


def _error(exception: KafkaException) -> KafkaError:
    error: KafkaError = exception.args[0]
    return error


def _send_offsets(producer: Producer, positions: list[TopicPartition], group: object) -> None:
    """Librdkafka may not return until some broker's connection changes, whatever timeout it is given, when the group's
    coordinator has left the metadata (its issues 5456 and 5511): so it is called in a thread that may be left behind.
    """
    outcome: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def send() -> None:
        try:
            producer.send_offsets_to_transaction(positions, group, OFFSETS_SECONDS)
            outcome.put(None)
        except KafkaException as error:
            outcome.put(error)

    threading.Thread(target=send, daemon=True).start()
    try:
        error = outcome.get(timeout=STUCK_SECONDS)
    except queue.Empty:
        raise StuckError from None
    if error is not None:
        raise error


def _patiently(call: Callable[[], Any]) -> Any:
    """Again while the library says that trying again may help, as its documentation asks for."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            return call()
        except KafkaException as error:
            if not _error(error).retriable() or time.monotonic() > deadline:
                raise


def main() -> None:
    """See the module's docstring."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    bootstrap, path, name, partitions, roles, *properties = sys.argv[1:]
    options = read_properties(properties[0]) if properties else {}
    with Path(path).open("w") as file:
        history = HistoryWriter(file)
        print("ready", flush=True)
        Load(bootstrap, history, name, int(partitions), options).run(roles.split(","))


if __name__ == "__main__":
    main()
