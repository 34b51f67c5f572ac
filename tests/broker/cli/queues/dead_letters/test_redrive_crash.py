"""A redrive that is killed at each of its steps, and run again: every letter goes back once."""

import signal
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from ottla.operations.dead_letters import redrive
from tests.broker.cli.queues.dead_letters.test_command import REDRIVE, die, read, story
from tests.processes import OTTLA, Program, run
from tests.unit.cli.command_line import CommandLine
from tests.waiting import wait_until

LETTERS = 20
KILLED = """
import os, signal, sys
from ottla.__main__ import main
from ottla.operations.dead_letters import redrive
from ottla.client.producer.async_producer import AsyncProducer

redrive.TRANSACTION_LETTERS_MAX = 5
method, when, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
real, counted = getattr(AsyncProducer, method), 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def counting(self, *arguments, **named):
    global counted
    counted += 1
    if counted == calls and when == "before":
        die()
    answer = real(self, *arguments, **named)
    if counted < calls or not hasattr(answer, "__await__"):
        return answer

    async def then_die():
        await answer
        die()

    return then_die()

setattr(AsyncProducer, method, counting)
main(sys.argv[4:])
"""
QUICK = {("send", "after", 8), ("commit_transaction", "before", 2), ("commit_transaction", "after", 2)}
STEPS = [
    ("init_transactions", "after", 1),
    ("send", "before", 1),
    ("send", "after", 8),
    ("flush", "after", 2),
    ("send_offsets_to_transaction", "before", 2),
    ("send_offsets_to_transaction", "after", 2),
    ("commit_transaction", "before", 2),
    ("commit_transaction", "after", 2),
    ("commit_transaction", "after", 4),
]


def killed_redrive(ottla: CommandLine, dead: str, method: str, when: str, calls: int) -> None:
    """Runs the command in a process of its own, which kills itself at the given call of its producer."""
    command = [sys.executable, "-c", KILLED, method, when, str(calls), *REDRIVE, dead, "--yes"]
    run([*command, "--bootstrap", ottla.bootstrap], status=-signal.SIGKILL)


@pytest.mark.parametrize(
    ("method", "when", "calls"),
    [pytest.param(*step, marks=() if step in QUICK else pytest.mark.slow) for step in STEPS],
)
def test_killed_and_run_again(
    method: str, when: str, calls: int, ottla: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    dead = f"dlq.{topic}"
    ottla.ok("topics", "create", topic, "-p", "2")
    ottla.ok("topics", "create", dead, "-p", "2")
    values = [b"%02d" % at for at in range(LETTERS)]
    die(ottla, dead, [(value, story(topic, at, "", partition=at % 2)) for at, value in enumerate(values)])
    killed_redrive(ottla, dead, method, when, calls)
    monkeypatch.setattr(redrive, "TRANSACTION_LETTERS_MAX", 5)
    ottla.ok(*REDRIVE, dead, "--yes")
    assert values == sorted(each.value for each in read(ottla, topic))
    assert "no letters to redrive\n" == ottla.ok(*REDRIVE, dead, "--yes").err


def test_a_second_redrive_fences_the_first(ottla: CommandLine, tmp_path: Path) -> None:
    """Two commands at the same time: the letters still go back once."""
    topic = f"t-{uuid4().hex[:8]}"
    dead = f"dlq.{topic}"
    ottla.ok("topics", "create", topic)
    ottla.ok("topics", "create", dead)
    values = [b"%02d" % at for at in range(LETTERS)]
    die(ottla, dead, [(value, story(topic, at, "")) for at, value in enumerate(values)])
    slow = [*OTTLA, *REDRIVE, dead, "--yes", "--rate", "0.5", "--bootstrap", ottla.bootstrap]
    with Program(slow, tmp_path / "first") as first:
        wait_until(lambda: read(ottla, topic))
        assert first.is_running
        ottla.ok(*REDRIVE, dead, "--yes")
        status = first.wait()
    assert (1, True) == (status, "fenced" in first.log.lower() or "another producer" in first.log), first.log
    assert values == sorted(each.value for each in read(ottla, topic))
