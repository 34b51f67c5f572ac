"""The parallel consumer in a process that is killed, or interrupted: nothing is lost, and order per key stays."""

import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.producer.blocking_producer import Producer
from ottla.testing import InProcessBroker

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
def running(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path, {"group.min.session.timeout.ms": "500"}) as broker:
        broker.create_topic("t", 2)
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for at in range(RECORDS):
                producer.send("t", b"%d" % at, key=b"%d" % (at % KEYS))
        yield broker


@contextmanager
def consuming(running: InProcessBroker) -> Iterator["subprocess.Popen[str]"]:
    """The program at work; each line that it prints is a record that it handled."""
    command = [sys.executable, "-c", PROGRAM, running.bootstrap, "t"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: "subprocess.Popen[str]", count: int) -> list[tuple[str, int]]:
    """So many records, as they were handled."""
    assert process.stdout is not None
    found: list[tuple[str, int]] = []
    while len(found) < count:
        words = process.stdout.readline().split()
        assert 2 == len(words), process.communicate()[1]
        found.append((words[0], int(words[1])))
    return found


def committed(running: InProcessBroker) -> int:
    with Admin(bootstrap_servers=running.bootstrap) as admin:
        return sum(each.offset for each in admin.list_consumer_group_offsets("t").values())


def test_killed_in_the_middle(running: InProcessBroker) -> None:
    with consuming(running) as process:
        before = lines(process, RECORDS // 3)
        assert any(committed(running) for _ in range(1000)), "nothing is ever committed"
        process.kill()
        assert process.stdout is not None
        before += [(key, int(value)) for key, value in map(str.split, process.stdout.read().splitlines())]
    was_committed = committed(running)
    assert 0 < was_committed <= len(before) + 5
    after: list[tuple[str, int]] = []
    with consuming(running) as process:
        # A member whose session ends while its machine stalls does some records once more.
        while {value for _, value in before + after} != set(range(RECORDS)):
            after += lines(process, 1)
    by_key: dict[str, list[int]] = defaultdict(list)
    for key, value in before + after:
        if value not in by_key[key]:
            by_key[key].append(value)
    assert {str(key): list(range(key, RECORDS, KEYS)) for key in range(KEYS)} == by_key


def test_interrupted_in_the_middle(running: InProcessBroker) -> None:
    with consuming(running) as process:
        before = lines(process, RECORDS // 3)
        process.send_signal(signal.SIGINT)
        # To its end by the same reader: `communicate` would pass over lines that are read already but not handed out.
        assert process.stdout is not None
        assert process.stderr is not None
        before += [(key, int(value)) for key, value in map(str.split, process.stdout)]
        complaint = process.stderr.read()
        process.wait(60)
    assert (True, -signal.SIGINT) == ("KeyboardInterrupt" in complaint, process.returncode), complaint
    # It left the group in order: what it did is committed but for what was ahead of others that were not done.
    assert 0 < committed(running) <= len(before)
    with Admin(bootstrap_servers=running.bootstrap) as admin:
        assert () == admin.describe_consumer_groups(["t"])["t"].members
