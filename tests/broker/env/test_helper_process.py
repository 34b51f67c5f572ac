"""The helper process, with real children: answers, errors, deaths, and when they end."""

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ottla.env.helper_main import JobError
from ottla.env.helper_process import HelperDiedError, HelperProcess
from ottla.env.inline_helper import InlineHelper
from ottla.env.ports import Helper
from ottla.env.real_disk import RealDisk
from ottla.model.errors import CorruptError, MisuseError
from ottla.model.invariants import InvariantViolation, violated

pytestmark = pytest.mark.both_loops

KILL_YOURSELF = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"

# An exception that pickles but cannot be made again, since its constructor wants more than it remembers.
ONE_WAY = """
from ottla.env import helper_main
class OneWay(Exception):
    def __init__(self, text, number):
        super().__init__(text)
OneWay.__module__ = helper_main.__name__
helper_main.OneWay = OneWay
raise OneWay("boom", 7)
"""


async def wait_ended(pid: int) -> None:
    """Returns once the process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


class TestJobs:
    async def test_answers_come_from_one_other_process(self) -> None:
        helper = HelperProcess()
        assert helper.pid is None
        port: Helper = helper
        assert math.factorial(500) == await port.run(math.factorial, 500)
        child = helper.pid
        assert child != os.getpid()
        assert [child] * 5 == await asyncio.gather(*(helper.run(os.getpid) for _ in range(5)))
        await helper.close()

    async def test_large_arguments_and_answers(self) -> None:
        helper = HelperProcess()
        data = os.urandom(5_000_000)
        assert data * 2 == await helper.run(bytes.join, b"", [data, data])
        await helper.close()

    async def test_works_on_the_same_files(self, tmp_path: Path) -> None:
        helper = HelperProcess()
        disk = RealDisk()
        await disk.in_background(disk.make_dirs, str(tmp_path))
        (tmp_path / "a").write_bytes(b"abc")
        assert b"abc" == await helper.run(disk.read, str(tmp_path / "a"))
        await helper.close()

    async def test_it_gives_way_to_others(self) -> None:
        helper = HelperProcess()
        assert min(19, os.nice(0) + 10) == await helper.run(os.nice, 0)
        await helper.close()

    async def test_an_interrupt_from_the_terminal_is_for_the_parent(self) -> None:
        helper = HelperProcess()
        await helper.run(signal.raise_signal, signal.SIGINT)
        assert 6 == await helper.run(math.factorial, 3)
        await helper.close()

    async def test_what_a_job_prints_goes_to_standard_error(self, capfd: pytest.CaptureFixture[str]) -> None:
        helper = HelperProcess()
        await helper.run(print, "printed by a job", "x" * 10_000)
        assert 8 == await helper.run(os.write, 1, b"raw text")
        assert b"" == await helper.run(os.read, 0, 10)
        assert 6 == await helper.run(math.factorial, 3)
        await helper.close()
        printed = capfd.readouterr()
        assert "" == printed.out
        assert "printed by a job" in printed.err
        assert "raw text" in printed.err


class TestErrors:
    async def test_exceptions_travel(self) -> None:
        helper = HelperProcess()
        with pytest.raises(ValueError, match="factorial") as caught:
            await helper.run(math.factorial, -1)
        assert "in the helper process" in caught.value.__notes__[0]
        with pytest.raises(FileNotFoundError) as missing:
            await helper.run(os.stat, "/nowhere")
        assert "/nowhere" == missing.value.filename
        child = helper.pid
        with pytest.raises(CorruptError, match="bad byte"):
            await helper.run(exec, "from ottla.model.errors import CorruptError\nraise CorruptError('bad byte')")
        with pytest.raises(InvariantViolation, match="broken"):
            await helper.run(violated, "broken")
        assert child == await helper.run(os.getpid)
        await helper.close()

    @pytest.mark.parametrize(
        ("code", "text"),
        [
            ("class Odd(Exception): pass\nraise Odd('boom')", "boom"),
            (ONE_WAY, "boom"),
            ("import sys; sys.exit(3)", "SystemExit"),
            ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ],
    )
    async def test_what_cannot_travel_is_told(self, code: str, text: str) -> None:
        helper = HelperProcess()
        with pytest.raises(JobError, match=text):
            await helper.run(exec, code)
        assert 6 == await helper.run(math.factorial, 3)
        await helper.close()

    async def test_answers_and_arguments_that_do_not_pickle(self) -> None:
        helper = HelperProcess()
        with pytest.raises(TypeError, match="pickle"):
            await helper.run(threading.Lock)
        with pytest.raises(TypeError, match="pickle"):
            await helper.run(len, threading.Lock())
        with pytest.raises((AttributeError, TypeError, ValueError, ImportError), match="lambda"):
            await helper.run(lambda: 1)
        assert 6 == await helper.run(math.factorial, 3)
        await helper.close()

    async def test_a_python_that_is_not_there(self) -> None:
        helper = HelperProcess(python="/nowhere/python")
        with pytest.raises(HelperDiedError, match="/nowhere/python"):
            await helper.run(os.getpid)
        await helper.close()


class TestDeath:
    async def test_a_death_fails_its_job_and_the_next_gets_a_new_child(self) -> None:
        helper = HelperProcess()
        first = await helper.run(os.getpid)
        running, waiting = (
            asyncio.create_task(helper.run(exec, KILL_YOURSELF)),
            asyncio.create_task(helper.run(os.getpid)),
        )
        with pytest.raises(HelperDiedError, match=rf"{first} was ended by SIGKILL while it ran builtins.exec"):
            await running
        assert first != await waiting
        with pytest.raises(HelperDiedError, match="exit code 7"):
            await helper.run(os._exit, 7)
        assert 6 == await helper.run(math.factorial, 3)
        await helper.close()

    async def test_a_death_while_idle_fails_nothing(self) -> None:
        helper = HelperProcess()
        child = await helper.run(os.getpid)
        os.kill(child, signal.SIGKILL)
        await wait_ended(child)
        process = helper._child
        assert process is not None
        assert process.stdout is not None
        assert b"" == await process.stdout.read()
        assert child != await helper.run(os.getpid)
        await helper.close()

    async def test_retires_when_idle_and_returns_when_needed(self) -> None:
        helper = HelperProcess(idle_seconds=0.05)
        first = await helper.run(os.getpid)
        await wait_ended(first)
        assert helper.pid is None
        assert first != await helper.run(os.getpid)
        await helper.close()

    async def test_a_child_in_use_does_not_retire(self) -> None:
        helper = HelperProcess(idle_seconds=1)
        first = await helper.run(os.getpid)
        await helper.run(time.sleep, 1.5)
        assert first == await helper.run(os.getpid)
        await helper.close()

    async def test_a_cancelled_job_takes_its_child_along(self) -> None:
        helper = HelperProcess()
        child = await helper.run(os.getpid)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(helper.run(time.sleep, 600), 0.05)
        await wait_ended(child)
        assert 6 == await helper.run(math.factorial, 3)
        await helper.close()

    async def test_close_ends_child_and_running_job(self) -> None:
        helper = HelperProcess()
        child = await helper.run(os.getpid)
        running = asyncio.create_task(helper.run(time.sleep, 600))
        waiting = asyncio.create_task(helper.run(os.getpid))
        await asyncio.sleep(0)
        await helper.close()
        await wait_ended(child)
        with pytest.raises(HelperDiedError, match="SIGKILL"):
            await running
        with pytest.raises(MisuseError, match="closed"):
            await waiting
        with pytest.raises(MisuseError, match="closed"):
            await helper.run(os.getpid)
        await helper.close()

    @pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
    def test_a_child_ends_with_its_parent(self, busy: bool, tmp_path: Path) -> None:
        # A program as users write them, without a guard around its main part.
        program = tmp_path / "program.py"
        program.write_text(
            "import asyncio, os, time\n"
            "from ottla.env.helper_process import HelperProcess\n"
            "async def main():\n"
            "    helper = HelperProcess()\n"
            "    print(await helper.run(os.getpid), flush=True)\n"
            f"    await {'helper.run(time.sleep, 600)' if busy else 'asyncio.sleep(600)'}\n"
            "asyncio.run(main())\n"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        parent = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, env=environment)
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        parent.kill()
        parent.wait()
        parent.stdout.close()
        asyncio.run(asyncio.wait_for(wait_ended(child), 120))


class TestInline:
    async def test_answers_and_raises_in_place(self) -> None:
        helper: Helper = InlineHelper()
        assert os.getpid() == await helper.run(os.getpid)
        with pytest.raises(ValueError, match="factorial"):
            await helper.run(math.factorial, -1)
        await helper.close()
