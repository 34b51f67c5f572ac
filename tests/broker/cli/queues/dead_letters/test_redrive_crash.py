"""A redrive that is killed at each of its steps, and run again: every letter goes back once."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from ottla.operations.dead_letters import redrive
from tests.broker.cli.queues.dead_letters.test_command import REDRIVE, die, read, story
from tests.unit.cli.command_line import CommandLine

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
    environment = {**os.environ, "OTTLA_BOOTSTRAP": ottla.bootstrap}
    source = str(Path(redrive.__file__).parents[3])
    environment["PYTHONPATH"] = os.pathsep.join([source, environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, method, when, str(calls), *REDRIVE, dead, "--yes"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert -signal.SIGKILL == done.returncode, done.stderr


@pytest.mark.parametrize(("method", "when", "calls"), STEPS)
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


def test_a_second_redrive_fences_the_first(ottla: CommandLine) -> None:
    """Two commands at the same time: the letters still go back once."""
    topic = f"t-{uuid4().hex[:8]}"
    dead = f"dlq.{topic}"
    ottla.ok("topics", "create", topic)
    ottla.ok("topics", "create", dead)
    values = [b"%02d" % at for at in range(LETTERS)]
    die(ottla, dead, [(value, story(topic, at, "")) for at, value in enumerate(values)])
    environment = {**os.environ, "OTTLA_BOOTSTRAP": ottla.bootstrap}
    slow = [sys.executable, "-m", "ottla", *REDRIVE, dead, "--yes", "--rate", "0.5"]
    with subprocess.Popen(slow, env=environment, stderr=subprocess.PIPE, text=True) as first:
        while not read(ottla, topic):
            assert None is first.poll()
        ottla.ok(*REDRIVE, dead, "--yes")
        _, words = first.communicate(timeout=60)
    assert (1, True) == (first.returncode, "fenced" in words.lower() or "another producer" in words), words
    assert values == sorted(each.value for each in read(ottla, topic))
