"""kill -9 of a single broker, again and again at random moments of a busy run, for each kind of queue.

`test_queue_crashes.py` and its neighbours stop at every step, on copies of the files. Here it is a process that dies,
and clients that go on: nothing early, nothing lost, nothing twice, nothing that was withdrawn.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Final

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.client.producer.blocking_producer import Producer
from ottla.model.dead_letters import DeadLetter, DeadLetterHeaders, Origin, story_headers
from tests.broker_process import BrokerProcess
from tests.chaos.queue_clients import PARTITIONS, TOPICS, QueueClients, check
from tests.processes import OTTLA, Program
from tests.topic_contents import contents
from tests.waiting import wait_until

KILLS: Final = int(os.environ.get("OTTLA_CRASH_KILLS", "8"))
SECONDS: Final = max(15.0, 2.0 * KILLS)
"""No kill comes later: a busy machine starts brokers slowly."""
SEED: Final = int(os.environ.get("OTTLA_CRASH_SEED", "1"))
SETTINGS: Final = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
KINDS: Final = {
    "delayed": ["delayed", "paid"],
    "retry": ["job"],
    "half": ["half", "silent"],
    "expiry": ["offer"],
}
LETTERS: Final = 3_000


pytestmark = pytest.mark.ottla_broker(SETTINGS)


def kill_again_and_again(broker: BrokerProcess, chance: Random, wait_busy: Callable[[], None]) -> int:
    """Returns how often the broker was killed: while it is busy, and sometimes soon after it was started."""
    kills, deadline = 0, time.monotonic() + SECONDS
    while kills < KILLS and time.monotonic() < deadline:
        if chance.random() < 0.7:
            wait_busy()
        time.sleep(chance.random() / 2)  # any moment
        if chance.random() < 0.7:
            wait_written(broker)
            time.sleep(chance.random() / 200)  # any of the steps that follow
        broker.kill()
        broker.start()
        kills += 1
    return kills


def wait_written(broker: BrokerProcess) -> None:
    """Returns as soon as the broker has written to a log: the steps of a delivery follow each other in milliseconds."""
    files = list(broker.data.glob("*-[0-9]/*.log"))
    before = [file.stat().st_size for file in files]
    deadline = time.monotonic() + 1
    while before == [file.stat().st_size for file in files] and time.monotonic() < deadline:
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_keeps_its_promises(broker: BrokerProcess, kind: str) -> None:
    loads = KINDS[kind]
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, 1, topic_configs=dict(TOPICS[name])) for name in TOPICS])
    clients = QueueClients(broker.address, loads)

    def wait_busy() -> None:
        before = {load: clients.acked(load) for load in loads}
        wait_until(
            lambda: all(clients.acked(load) > before[load] for load in loads), "records of each load are written"
        )

    with clients.running():
        kills = kill_again_and_again(broker, Random(f"{SEED}-{kind}"), wait_busy)
    print(f"killed {kills} times")
    check(clients.history, loads)


def test_letters_are_redriven_once(broker: BrokerProcess, tmp_path: Path) -> None:
    """The command is run until nothing is left; it fails if the broker dies meanwhile, and is run again."""
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("orders", "dlq.orders")])
    with Producer(bootstrap_servers=broker.address) as producer:
        for number in range(LETTERS):
            origin = Origin(topic="orders", partition=number % PARTITIONS, offset=number)
            letter = DeadLetter(origin=origin, reason="planted")
            headers = list(story_headers(letter, DeadLetterHeaders.KIP1191))
            producer.send("dlq.orders", b"%d" % number, headers=headers, partition=number % PARTITIONS)
        producer.flush()
    statuses: list[int] = []
    is_over = Event()

    def redrive() -> None:
        command = [*OTTLA, "queues", "dead-letters", "redrive", "dlq.orders", "--yes", "--rate", str(LETTERS / 8)]
        while not is_over.is_set() or statuses[-1:] != [0]:
            with Program([*command, "--bootstrap", broker.address], tmp_path / "redrive") as redriving:
                statuses.append(redriving.wait())

    redriving = Thread(target=redrive)
    redriving.start()
    # Long enough for the command to start and to redrive some.
    kills = kill_again_and_again(broker, Random(f"{SEED}-redrive"), lambda: time.sleep(0.5))
    is_over.set()
    redriving.join()
    print(f"killed {kills} times, exit statuses {statuses}")
    values = Counter(record.value for record in contents(broker.address, "orders"))
    assert Counter(b"%d" % number for number in range(LETTERS)) == values
