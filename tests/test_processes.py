"""The programs that tests start: what they print and how they end; none is left."""

import signal
import sys
from pathlib import Path

import pytest

from tests.leftovers import Leftovers
from tests.processes import Program, run
from tests.waiting import wait_until

ECHO = "for line in __import__('sys').stdin: print(line.strip(), flush=True)"
PARENT = """
import subprocess, sys
print("ready", subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
sys.stdin.read()
"""


def python(program: str, tmp_path: Path) -> Program:
    return Program([sys.executable, "-c", program], tmp_path / "program", has_input=True)


def is_alive(process: Path) -> bool:
    """A zombie is not; it is there until its parent asks for its status."""
    try:
        return ") Z " not in (process / "stat").read_text()
    except OSError:
        return False


def test_lines_are_read_in_turn_and_the_rest_at_the_end(tmp_path: Path) -> None:
    with python(ECHO, tmp_path) as program:
        for word in ("one", "two", "three"):
            program.write(word)
        assert ["one", "two"] == [program.next_line(), program.next_line()]
        program.end_input()
        assert (0, ["three"], "one\ntwo\nthree\n") == (program.wait(), program.remaining_lines(), program.printed())


def test_one_that_is_started_again_continues_the_files(tmp_path: Path) -> None:
    for word in ("first", "second"):
        with python(f"import sys; print('{word}'); print('{word}', file=sys.stderr)", tmp_path) as program:
            assert (word, 0, f"{word}\n") == (program.next_line(), program.wait(), program.printed())
    assert "first\nsecond\n" == program.log == (tmp_path / "program.out").read_text()


def test_one_that_ends_instead_of_printing_fails_with_its_log(tmp_path: Path) -> None:
    with (
        python("raise SystemExit('no port')", tmp_path) as program,
        pytest.raises(AssertionError, match=r"ended with 1 and no further line; .*program\.log:\nno port"),
    ):
        program.wait_ready()


def test_one_that_says_something_else_than_ready_is_killed(tmp_path: Path) -> None:
    with python("import sys; print('hello', flush=True); sys.stdin.read()", tmp_path) as program:
        with pytest.raises(AssertionError, match="hello"):
            program.wait_ready()
        assert not program.is_running


def test_nothing_is_left(tmp_path: Path) -> None:
    before = Leftovers()
    with python(PARENT, tmp_path) as program:
        child = Path("/proc") / program.wait_ready()
        assert child.exists()
    assert -signal.SIGKILL == program.wait()
    wait_until(lambda: not is_alive(child), "the child is killed, too")
    before.check()


def test_a_paused_one_is_stopped_all_the_same(tmp_path: Path) -> None:
    with python(ECHO, tmp_path) as program:
        program.pause()
        assert -signal.SIGTERM == program.stop()


def test_a_run_must_end_with_its_status() -> None:
    assert "in\n" == run([sys.executable, "-c", ECHO], text="in\n").stdout
    with pytest.raises(AssertionError, match=r"ended with 3\n\nwhy"):
        run([sys.executable, "-c", "import sys; print('why', file=sys.stderr); sys.exit(3)"])
