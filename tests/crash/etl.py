"""One worker that moves records from a topic to another inside transactions; run as a process, to be killed.

`python -m tests.crash.etl JSON` with the fields of `Job`. Record by record the output partition is the input partition,
and the value says from which offset it was made, by which transaction; a record in the audit topic says how many
records of each partition the transaction moved. A worker that has nothing to do says so there from time to time, and so
learns whether it still has its id. Everything that has happened is printed, one word a line (`PHASES`), so that whoever
kills can choose the moment. Ends with status `FENCED` when another took its transactional id over, and in peace when it
is terminated.

The client is confluent-kafka. `etl_fleet.py` starts and kills these, `etl_check.py` looks at what they left.
"""

import faulthandler
import json
import os
import random
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NoReturn

FENCED: Final = 3
"""How a worker ends that must not write any more."""
BATCH_MAX: Final = 40
POLL_SECONDS: Final = 0.02
IDLE_SECONDS: Final = 1.0
CALL_SECONDS: Final = 30.0

PHASES: Final = ("ready", "begun", "produced", "offsets", "committed", "aborted")
"""What a worker has just done: taken its id over; begun a transaction; sent its records; sent its offsets;
committed; aborted and gone back to where the group is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a worker is told. `consumer` and `producer` are settings of the client beyond those that all have."""

    bootstrap: str
    group: str
    transactional_id: str
    input: str
    output: str
    audit: str
    consumer: dict[str, Any] = field(default_factory=dict)
    producer: dict[str, Any] = field(default_factory=dict)
    is_new_group: bool = False
    """Whether the group has no offsets before its workers commit some."""
    abort_share: float = 0.0
    """How many of its transactions a worker aborts although nothing is wrong; those that must be come on top."""
    stop_at: str = ""
    """The phase in which the worker stops itself for the first time, to be killed or woken by whoever started it."""

    def command(self) -> list[str]:
        """How to run it."""
        return [sys.executable, "-m", "tests.crash.etl", json.dumps(asdict(self))]


class Worker:
    """Gathers records, moves them in one transaction with the group's offsets, and so on for ever."""

    def __init__(self, job: Job) -> None:
        from confluent_kafka import Consumer, Producer

        self._job = job
        self._stop_at = job.stop_at
        self._is_over = False
        self._gathered: list[Any] = []
        network = {
            "bootstrap.servers": job.bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            # Otherwise the client forgets its only broker whenever that is away, and then waits for the forgotten one
            # to coordinate the group.
            "metadata.recovery.strategy": "none",
        }
        self._producer = Producer(
            {
                **network,
                "transactional.id": job.transactional_id,
                # A worker that a busy machine holds up is not fenced by its own transaction.
                "transaction.timeout.ms": 60_000,
                "linger.ms": 0,
                **job.producer,
            }
        )
        self._consumer = Consumer(
            {
                **network,
                "group.id": job.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                # A group that has offsets from the beginning has lost one that cannot be found.
                "auto.offset.reset": "earliest" if job.is_new_group else "error",
                "max.poll.interval.ms": 5000,
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 20,
                **job.consumer,
            }
        )

    def run(self) -> None:
        """Until killed, fenced or terminated."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        self._insist(lambda: self._producer.init_transactions(CALL_SECONDS))
        self._say("ready")
        # With callbacks a partition comes and goes only while the worker polls, never within a transaction.
        self._consumer.subscribe(
            [self._job.input],
            on_assign=lambda *_: None,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )
        moved_at = time.monotonic()
        while not self._is_over:
            self._gather()
            if self._gathered or time.monotonic() - moved_at > IDLE_SECONDS:
                self._move()
                moved_at = time.monotonic()

    def _on_terminate(self, *_: object) -> None:
        self._is_over = True

    def _say(self, phase: str) -> None:
        """One word for whoever started this."""
        print(phase, flush=True)
        if phase == self._stop_at:
            self._stop_at = ""
            stop_here()

    def _on_revoke(self, _: Any, partitions: list[Any]) -> None:
        """Somebody else reads these from where the group is; so would this worker if it got them back."""
        gone = {each.partition for each in partitions}
        self._gathered = [record for record in self._gathered if record.partition() not in gone]

    def _gather(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        while len(self._gathered) < BATCH_MAX:
            record = self._consumer.poll(POLL_SECONDS)
            if record is None:
                return
            if record.error() is None:
                self._gathered.append(record)
            elif record.error().code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(record.error())

    def _move(self) -> None:
        """All of what was gathered, or, if the transaction must be aborted, nothing of it."""
        from confluent_kafka import KafkaException, TopicPartition

        records, self._gathered = self._gathered, []
        ends = {record.partition(): record.offset() + 1 for record in records}
        offsets = [TopicPartition(self._job.input, partition, end) for partition, end in ends.items()]
        try:
            self._insist(self._producer.begin_transaction)
            self._say("begun")
            self._produce(records)
            self._insist(lambda: self._producer.flush(CALL_SECONDS))
            self._say("produced")
            if offsets:
                member = self._consumer.consumer_group_metadata()
                self._insist(lambda: self._producer.send_offsets_to_transaction(offsets, member, CALL_SECONDS))
                self._say("offsets")
            if random.random() < self._job.abort_share:
                self._abort()
                return
            self._insist(lambda: self._producer.commit_transaction(CALL_SECONDS))
            self._say("committed")
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            print(f"aborts: {error}", file=sys.stderr, flush=True)
            self._abort()

    def _abort(self) -> None:
        self._insist(lambda: self._producer.abort_transaction(CALL_SECONDS))
        self._go_back()
        self._say("aborted")

    def _produce(self, records: list[Any]) -> None:
        name = secrets.token_hex(6)
        counts: Counter[int] = Counter()
        for record in records:
            origin = f"{record.partition()}/{record.offset()}/{name} ".encode()
            self._producer.produce(self._job.output, origin + record.value(), partition=record.partition())
            counts[record.partition()] += 1
        self._producer.produce(self._job.audit, json.dumps({"name": name, "counts": counts}), partition=0)

    def _go_back(self) -> None:
        """What was read but not committed is read again."""
        from confluent_kafka import KafkaException

        while True:
            try:
                places = self._consumer.committed(self._consumer.assignment(), timeout=CALL_SECONDS)
                for place in places:
                    if place.error is not None:
                        raise KafkaException(place.error)
                    if place.offset < 0 and self._job.is_new_group:
                        place.offset, _ = self._consumer.get_watermark_offsets(place, timeout=CALL_SECONDS)
                    self._consumer.seek(place)
                print(f"goes back to {[(place.partition, place.offset) for place in places]}", file=sys.stderr)
                return
            except KafkaException as error:
                # The broker is away, or the partition is; a poll lets it go.
                print(f"cannot go back: {error}", file=sys.stderr, flush=True)
                self._consumer.poll(POLL_SECONDS)

    def _insist(self, call: Callable[[], object]) -> None:
        """Calls again as long as that may help; ends the process when another has the id."""
        from confluent_kafka import KafkaError, KafkaException

        while True:
            try:
                call()
                return
            except KafkaException as error:
                reason = error.args[0]
                if reason.code() == KafkaError._FENCED or reason.code() == KafkaError.PRODUCER_FENCED:
                    print(f"fenced: {error}", file=sys.stderr, flush=True)
                    leave(FENCED)
                if not reason.retriable() or reason.txn_requires_abort():
                    raise
                print(f"again: {error}", file=sys.stderr, flush=True)


def leave(status: int) -> NoReturn:
    """Ends the process without closing the clients: that can take for ever, as long as a group does not let go."""
    os._exit(status)


def stop_here() -> None:
    """Stops this process with all its threads, until it is killed or told to go on."""
    os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    # Aborted from outside it says where it hangs.
    faulthandler.enable()
    Worker(Job(**json.loads(sys.argv[1]))).run()
    leave(0)
