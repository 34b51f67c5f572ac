"""The parallel consumer in a process that is killed, or interrupted: nothing is lost, and order per key stays."""

import signal
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.producer.blocking_producer import Producer
from ottla.testing import InProcessBroker
from tests.processes import Program
from tests.waiting import wait_until

RECORDS = 300
KEYS = 7

PROGRAM = """
import sys, time
from ottla.client.parallel.blocking_parallel_consumer import ParallelConsumer

bootstrap, topic = sys.argv[1:]
with ParallelConsumer(
    topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", workers=5,
    auto_commit_interval_ms=20, session_timeout_ms=1500, heartbeat_interval_ms=300,
) as consumer:
    def handle(record):
        time.sleep(0.002)
        sys.stdout.write(f"{record.key.decode()} {record.value.decode()}\\n")
        sys.stdout.flush()
    consumer.run(handle)
"""


@pytest.fixture
def filled_broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path, {"group.min.session.timeout.ms": "500"}) as broker:
        broker.create_topic("t", 2)
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for at in range(RECORDS):
                producer.send("t", b"%d" % at, key=b"%d" % (at % KEYS))
        yield broker


def consuming(broker: InProcessBroker, folder: Path) -> Program:
    """The program at work; each line that it prints is a record that it handled."""
    return Program([sys.executable, "-c", PROGRAM, broker.bootstrap, "t"], folder / "consumer")


def handled(lines: Iterable[str]) -> list[tuple[str, int]]:
    """Keys and values of records, as they were handled."""
    return [(key, int(value)) for key, value in map(str.split, lines)]


def committed(broker: InProcessBroker) -> int:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        return sum(each.offset for each in admin.list_consumer_group_offsets("t").values())


def test_killed_in_the_middle(filled_broker: InProcessBroker, tmp_path: Path) -> None:
    with consuming(filled_broker, tmp_path) as program:
        before = handled(program.next_line() for _ in range(RECORDS // 3))
        wait_until(lambda: committed(filled_broker), "something is committed")
        program.kill()
        before += handled(program.remaining_lines())
    was_committed = committed(filled_broker)
    assert 0 < was_committed <= len(before) + 5
    after: list[tuple[str, int]] = []
    with consuming(filled_broker, tmp_path) as program:
        # A member whose session ends while its machine stalls does some records once more.
        while {value for _, value in before + after} != set(range(RECORDS)):
            after += handled([program.next_line()])
    by_key: dict[str, list[int]] = defaultdict(list)
    for key, value in before + after:
        if value not in by_key[key]:
            by_key[key].append(value)
    assert {str(key): list(range(key, RECORDS, KEYS)) for key in range(KEYS)} == by_key


def test_interrupted_in_the_middle(filled_broker: InProcessBroker, tmp_path: Path) -> None:
    with consuming(filled_broker, tmp_path) as program:
        before = handled(program.next_line() for _ in range(RECORDS // 3))
        status = program.stop(signal.SIGINT)
        before += handled(program.remaining_lines())
    assert (True, -signal.SIGINT) == ("KeyboardInterrupt" in program.log, status), program.log
    # It left the group in order: what it did is committed but for what was ahead of others that were not done.
    assert 0 < committed(filled_broker) <= len(before)
    with Admin(bootstrap_servers=filled_broker.bootstrap) as admin:
        assert () == admin.describe_consumer_groups(["t"])["t"].members
