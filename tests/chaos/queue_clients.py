"""librdkafka's clients of queues: they send, take part and read while brokers are killed, and write a `QueueHistory`.

A half message is early before its commit is sent, and withdrawn if it is rolled back; questions are numbered and each
is asked once.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ottla.model.dead_letters import DELIVERY_COUNT
from ottla.model.queue_names import (
    DELAY_CANCEL,
    DELAY_ID,
    DELIVER_AT_MS,
    DUE_MS,
    HALF_CHECKS,
    HALF_ID,
    HALF_STATE,
    ORIGIN,
    RETRY_ATTEMPT,
    RETRY_REASON,
    TTL_MS,
    dead_letter_topic,
    delayed_topic,
    half_checks_topic,
    half_topic,
    redelivery_topic,
    retry_topic,
)
from tests.chaos.queue_history import Arrived, Parked, QueueHistory
from tests.waiting import wait_until

ORDERS: Final = "orders"
JOBS: Final = "jobs"
PAYMENTS: Final = "payments"
"""All of its half messages are decided, at once or when the broker asks."""
SILENT: Final = "silent"
"""None of its half messages is ever decided."""
OFFERS: Final = "offers"
GROUP: Final = "workers"
PARTITIONS: Final = 3
BACKOFF_MS: Final = 300
JITTER: Final = 0.2
ATTEMPTS_MAX: Final = 2
TICK_MS: Final = 250
"""Due times are rounded to this, so that many records are due in the same millisecond."""
DELAY_MAX_MS: Final = 4_000
TTL_MAX_MS: Final = 2_000
ARRIVE_SECONDS: Final = 60.0
QUIET_SECONDS: Final = 2.0
ACKED_MIN: Final = 10
"""Fewer records of a load prove nothing."""
"""Time for what should not arrive."""
CHECK_AFTER_MS: Final = 1_000
CHECK_INTERVAL_MS: Final = 400
CHECKS_MAX: Final = 2
_HALF: Final = {
    "ottla.half.enable": "true",
    "ottla.half.check.after.ms": str(CHECK_AFTER_MS),
    "ottla.half.check.interval.ms": str(CHECK_INTERVAL_MS),
}
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    ORDERS: {"ottla.delay.enable": "true"},
    JOBS: {
        "ottla.retry.enable": "true",
        "ottla.retry.backoff.ms": str(BACKOFF_MS),
        "ottla.retry.backoff.jitter": str(JITTER),
        "ottla.retry.max.attempts": str(ATTEMPTS_MAX),
    },
    PAYMENTS: {**_HALF, "ottla.half.check.max": "100000"},
    SILENT: {**_HALF, "ottla.half.check.max": str(CHECKS_MAX)},
    OFFERS: {"ottla.ttl.enable": "true", "errors.deadletterqueue.topic.name": dead_letter_topic(OFFERS)},
}
"""The topics that the clients use, each with `PARTITIONS`, and their configs."""
SINKS: Final = (
    ORDERS,
    redelivery_topic(JOBS, GROUP),
    PAYMENTS,
    half_checks_topic(PAYMENTS),
    SILENT,
    half_checks_topic(SILENT),
    *map(dead_letter_topic, TOPICS),
)
NOT_COMMITTED_MS: Final = 1 << 62
Headers = list[tuple[str, str | bytes | None]]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class QueueClients:
    """One thread for each of the `LOADS` that are named, and a reader of everything that arrives."""

    def __init__(self, bootstrap: str, loads: Sequence[str]) -> None:
        self.history = QueueHistory()
        # A broker that was killed is soon back.
        self._options: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
        self._loads = loads
        self._lock = Lock()
        self._is_quiet = Event()
        self._is_over = Event()
        self._failures: list[BaseException] = []
        self._unanswered = 0
        """Records that were sent and are neither acknowledged nor given up."""
        works = [*(LOADS[name] for name in loads), QueueClients._read]
        self._threads = [Thread(target=self._guarded, args=(work,), daemon=True) for work in works]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Until the end of the block everything is sent and read."""
        for thread in self._threads:
            thread.start()
        try:
            yield
            # Where the machine stalls, brokers that are killed are away most of the time.
            wait_until(
                lambda: self._failures or all(self.acked(load) > ACKED_MIN for load in self._loads), "all loads write"
            )
        finally:
            self._is_quiet.set()
            for thread in self._threads[:-1]:
                thread.join(ARRIVE_SECONDS)
            with suppress(AssertionError):  # what did not arrive is in the history
                wait_until(lambda: self._failures or not self._awaits(), seconds=ARRIVE_SECONDS)
            time.sleep(QUIET_SECONDS)  # in which nothing may arrive twice
            self._is_over.set()
            self._threads[-1].join(ARRIVE_SECONDS)
        for failure in self._failures:
            raise failure

    def acked(self, load: str) -> int:
        """How many records of a load were acknowledged so far."""
        with self._lock:
            return sum(each.is_acked and each.name.startswith(load) for each in self.history.parked.values())

    def _awaits(self) -> bool:
        """Whether something must arrive yet, or must once it is acknowledged: the reader itself hands back records."""
        with self._lock:
            return self._unanswered > 0 or bool(self.history.missing())

    def _guarded(self, work: "Callable[[QueueClients], None]") -> None:
        try:
            work(self)
        except BaseException as failure:
            self._failures.append(failure)

    def _producer(self, **more: Any) -> Producer:
        return Producer({**self._options, "enable.idempotence": True, "linger.ms": 5, "retry.backoff.ms": 20, **more})

    def _send(self, producer: Producer, topic: str, parked: Parked, value: str, headers: Headers, place: int) -> None:
        with self._lock:
            self.history.parked[parked.name] = parked
            self._unanswered += 1

        def on_delivery(error: object, _: object) -> None:
            with self._lock:
                self._unanswered -= 1
                if error is None:
                    parked.is_acked = True

        producer.produce(topic, value, headers=headers, partition=place, on_delivery=on_delivery)
        producer.poll(0)

    def delay(self) -> None:
        """Delayed records; one in ten is cancelled as soon as it is acknowledged."""
        chance, producer = random.Random(1), self._producer()
        unwanted: list[tuple[Parked, int]] = []
        number = 0
        while not self._is_quiet.is_set():
            cancels = number % 10 == 0
            place = chance.randrange(PARTITIONS)
            delay_ms = DELAY_MAX_MS if cancels else chance.randrange(DELAY_MAX_MS)
            due_ms = (now_ms() + delay_ms) // TICK_MS * TICK_MS
            name = f"delayed {number}"
            parked = Parked(name=name, sink=ORDERS, due_ms=due_ms)
            headers: Headers = [(DELIVER_AT_MS, str(due_ms)), (DELAY_ID, name)]
            self._send(producer, delayed_topic(ORDERS), parked, name, headers, place)
            if cancels:
                unwanted.append((parked, place))
            for each in [each for each in unwanted if each[0].is_acked]:
                unwanted.remove(each)
                self._cancel(producer, *each)
            number += 1
            time.sleep(0.005)  # a load that the machine can bear
        producer.flush(30)

    def _cancel(self, producer: Producer, parked: Parked, place: int) -> None:
        # It may arrive or not, unless the cancel is acknowledged in time.
        parked.is_acked = False

        def on_delivery(error: object, _: object) -> None:
            parked.is_acked = parked.is_withdrawn = error is None and now_ms() < parked.due_ms

        producer.produce(
            delayed_topic(ORDERS), None, headers=[(DELAY_CANCEL, parked.name)], partition=place, on_delivery=on_delivery
        )

    def transact(self) -> None:
        """Delayed records of transactions, of which one in three is aborted."""
        number = 0
        while not self._is_quiet.is_set():
            producer = self._producer(**{"transactional.id": "scheduler", "transaction.timeout.ms": 20_000})
            try:
                producer.init_transactions(60)
                while not self._is_quiet.is_set():
                    number += 1
                    producer.begin_transaction()
                    due_ms = now_ms() + 500
                    made = [Parked(name=f"paid {number}/{at}", sink=ORDERS, due_ms=due_ms) for at in range(3)]
                    with self._lock:
                        self.history.parked.update((each.name, each) for each in made)
                    for at, each in enumerate(made):
                        header: Headers = [(DELIVER_AT_MS, str(due_ms))]
                        producer.produce(delayed_topic(ORDERS), each.name, headers=header, partition=at)
                    if number % 3 == 0:
                        producer.abort_transaction(60)
                    else:
                        producer.commit_transaction(60)
                    for each in made:
                        each.is_withdrawn = number % 3 == 0
                        each.is_acked = True
                    time.sleep(0.05)  # a load that the machine can bear
            except KafkaException:
                # The next producer ends what this one has begun; what became of it is not known.
                time.sleep(0.5)  # a broker that was killed is back soon

    def hand_back(self) -> None:
        """New records that the group hands back."""
        producer = self._producer()
        number = 0
        while not self._is_quiet.is_set():
            self._retry(producer, f"job {number}", 1, [], number % PARTITIONS)
            number += 1
            time.sleep(0.02)  # a load that the machine can bear
        producer.flush(30)

    def _retry(self, producer: Producer, value: str, attempt: int, headers: Headers, place: int) -> None:
        is_dead = attempt > ATTEMPTS_MAX
        backoff_ms = 0 if is_dead else int((BACKOFF_MS << (attempt - 1)) * (1 - JITTER)) - 1
        sink = dead_letter_topic(JOBS) if is_dead else redelivery_topic(JOBS, GROUP)
        parked = Parked(name=f"{value}#{attempt}", sink=sink, due_ms=now_ms() + backoff_ms)
        self._send(producer, retry_topic(JOBS, GROUP), parked, value, [*headers, (RETRY_REASON, "chaos")], place)

    def halve(self) -> None:
        """Half messages that are committed or rolled back at once, and others that are decided when the broker asks.

        Decisions may go to another partition than that of the half message.
        """
        chance, producer, deciding = random.Random(2), self._producer(), self._producer()
        number = 0
        while not self._is_quiet.is_set():
            made: list[tuple[Parked, int]] = []
            for _ in range(8):
                name, place = f"half {number}", chance.randrange(PARTITIONS)
                parked = Parked(
                    name=name, sink=PAYMENTS, due_ms=NOT_COMMITTED_MS, is_withdrawn=outcome_of(name) == "rollback"
                )
                self._send(producer, half_topic(PAYMENTS), parked, name, half(name, "prepare"), place)
                made.append((parked, place))
                number += 1
            producer.flush(30)
            for parked, home in made:
                # What is not known to be written may be there all the same: the broker asks.
                if parked.is_acked and chance.random() < 0.6:
                    place = chance.randrange(PARTITIONS)
                    self._decide(deciding, parked, outcome_of(parked.name), place)
                    if parked.is_withdrawn and place == home:
                        # Too late: in the same partition, the rollback comes first.
                        deciding.produce(half_topic(PAYMENTS), headers=half(parked.name, "commit"), partition=place)
            deciding.flush(30)

    def _decide(self, producer: Producer, parked: Parked, outcome: str, place: int) -> None:
        if outcome == "commit":
            parked.due_ms = min(parked.due_ms, now_ms())
        producer.produce(half_topic(PAYMENTS), headers=half(parked.name, outcome), partition=place)
        producer.poll(0)

    def stay_silent(self) -> None:
        """Half messages without a decision: asked about as often as the topic says, then dead letters."""
        producer, number = self._producer(), 0
        while not self._is_quiet.is_set():
            name, sent_ms = f"silent {number}", now_ms()
            questions = [
                Parked(name=f"{name}?{checks}", sink=half_checks_topic(SILENT), due_ms=asked_at(sent_ms, checks))
                for checks in range(1, CHECKS_MAX + 1)
            ]
            last_ms = asked_at(sent_ms, CHECKS_MAX + 1)
            parked = Parked(name=name, sink=dead_letter_topic(SILENT), due_ms=last_ms)
            with self._lock:
                self.history.parked.update((each.name, each) for each in questions)
            self._send(producer, half_topic(SILENT), parked, name, half(name, "prepare"), number % PARTITIONS)
            producer.flush(30)
            for each in questions:
                each.is_acked = parked.is_acked
            number += 1
            time.sleep(0.02)  # a load that the machine can bear

    def expire(self) -> None:
        """Records that expire soon and then go to the dead-letter topic."""
        chance, producer, number = random.Random(3), self._producer(), 0
        while not self._is_quiet.is_set():
            ttl_ms, name = chance.randrange(100, TTL_MAX_MS), f"offer {number}"
            parked = Parked(name=name, sink=dead_letter_topic(OFFERS), due_ms=now_ms() + ttl_ms)
            self._send(producer, OFFERS, parked, name, [(TTL_MS, str(ttl_ms))], number % PARTITIONS)
            number += 1
            time.sleep(0.005)  # a load that the machine can bear
        producer.flush(30)

    def _read(self) -> None:
        """Reads what arrives, hands back again what returned, and answers questions."""
        producer = self._producer()
        # A reset would skip records in silence: committed records must not be out of range, whoever leads.
        judge = {"group.id": "judge", "enable.auto.commit": False, "auto.offset.reset": "error"}
        consumer = Consumer({**self._options, **judge})
        consumer.assign([TopicPartition(name, at, OFFSET_BEGINNING) for name in SINKS for at in range(PARTITIONS)])
        seen: set[tuple[str, int, int]] = set()
        while not self._is_over.is_set():
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise KafkaException(error)
                place = (message.topic(), message.partition(), message.offset())
                # librdkafka may read the same offset again after its leader changed.
                if error is None and place not in seen:
                    seen.add(place)
                    self._on_arrived(producer, message)
            producer.poll(0)
        consumer.close()
        producer.flush(30)

    def _on_arrived(self, producer: Producer, message: Any) -> None:
        seen_ms, topic, place = now_ms(), message.topic(), message.partition()
        headers: dict[str, bytes] = dict(message.headers() or ())
        value = message.value().decode()
        count = {redelivery_topic(JOBS, GROUP): RETRY_ATTEMPT, dead_letter_topic(JOBS): DELIVERY_COUNT}.get(topic)
        name = value if count is None else f"{value}#{int(headers[count])}"
        if HALF_CHECKS in headers:
            name = f"{value}?{int(headers[HALF_CHECKS])}"
        # Records of transactions count from their commit, and half messages are due again and again: their ties have no
        # order.
        is_tied = not value.startswith("paid") and HALF_ID not in headers
        due_ms = int(headers.get(DUE_MS, b"-1")) if is_tied else -1
        origin = headers[ORIGIN].decode()
        if topic == redelivery_topic(JOBS, GROUP):
            # Before it has arrived: a job is awaited all the time until it is a dead letter.
            self._retry(producer, value, int(headers[RETRY_ATTEMPT]) + 1, list(message.headers()), place)
        with self._lock:
            self.history.arrived.append(Arrived(name, topic, place, message.offset(), seen_ms, origin, due_ms))
            if topic == half_checks_topic(PAYMENTS):
                asked = self.history.parked[value]
                # How often the broker asks depends on when the answer arrives.
                self.history.parked.setdefault(name, Parked(name=name, sink=topic, due_ms=0))
        if topic == half_checks_topic(PAYMENTS):
            self._decide(producer, asked, outcome_of(value), (place + 1) % PARTITIONS)


def half(name: str, state: str) -> Headers:
    """The headers of a half message, or of a decision about it."""
    return [(HALF_ID, name), (HALF_STATE, state)]


def outcome_of(name: str) -> str:
    """Every third half message is rolled back."""
    return "rollback" if int(name.rpartition(" ")[2]) % 3 == 0 else "commit"


def asked_at(sent_ms: int, checks: int) -> int:
    """Before this time, a half message is not asked about so often; one more time, and it is a dead letter."""
    return sent_ms + CHECK_AFTER_MS + (checks - 1) * CHECK_INTERVAL_MS


LOADS: Final[Mapping[str, Callable[[QueueClients], None]]] = {
    "delayed": QueueClients.delay,
    "paid": QueueClients.transact,
    "job": QueueClients.hand_back,
    "half": QueueClients.halve,
    "silent": QueueClients.stay_silent,
    "offer": QueueClients.expire,
}
"""What clients do, by what the names of their records begin with."""
ARRIVING: Final[Mapping[str, Sequence[str]]] = {
    "delayed": [ORDERS],
    "paid": [ORDERS],
    "job": [redelivery_topic(JOBS, GROUP), dead_letter_topic(JOBS)],
    "half": [PAYMENTS, half_checks_topic(PAYMENTS)],
    "silent": [half_checks_topic(SILENT), dead_letter_topic(SILENT)],
    "offer": [dead_letter_topic(OFFERS)],
}
"""Where records of each load arrive."""


def check(history: QueueHistory, loads: Sequence[str]) -> None:
    """All promises were kept, and there was something to keep them for."""
    acked = [each.name for each in history.parked.values() if each.is_acked]
    print(f"{len(history.parked)} parked, {len(acked)} acknowledged, {len(history.arrived)} arrived")
    assert [] == history.violations()[:20]
    for load in loads:
        assert sum(name.startswith(load) for name in acked) > ACKED_MIN, load
    assert {topic for load in loads for topic in ARRIVING[load]} == {each.topic for each in history.arrived}
