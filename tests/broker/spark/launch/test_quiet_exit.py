"""Processes that Spark hangs up on: they end in silence, and only they, and only because of that."""

import subprocess
import sys
from pathlib import Path

import pytest

DAEMON = """
import os
import traceback
from ottla.spark.launch.quiet_exit import expect_in_daemon

if __name__ == "__main__":
    try:
        expect_in_daemon()
        expect_in_daemon()
        raise {error}("told")
    except BaseException as error:
        assert [] == traceback.extract_stack(limit=0)
        traceback.print_exc()
        os._exit(1)
"""
RUNNER = """
import sys
from ottla.spark.launch.quiet_exit import end_source_runner

if __name__ == "__main__":
    end_source_runner()
    try:
        try:
            raise {error}("told")
        finally:
            end_source_runner()
    except BaseException as error:
        print(type(error).__name__)
"""


def ended(folder: Path, module: str, program: str, unix: str) -> "subprocess.CompletedProcess[str]":
    """A process that runs a module of that name."""
    path = folder.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True)
    for package in (path.parent, *path.parent.relative_to(folder).parents):
        (folder / package / "__init__.py").touch()
    path.write_text(program)
    source = Path(__file__).parents[4] / "src"
    environment = {"PYTHONPATH": f"{folder}:{source}", "PYTHON_UNIX_DOMAIN_ENABLED": unix}
    return subprocess.run(
        [sys.executable, "-m", module], env=environment, cwd=folder, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("module", "unix", "error", "expected"),
    [
        ("pyspark.daemon", "True", "BrokenPipeError", ""),
        ("pyspark.daemon", "True", "ValueError", "ValueError: told"),
        ("pyspark.daemon", "", "BrokenPipeError", "BrokenPipeError: told"),
        ("somebodys.daemon", "True", "BrokenPipeError", "BrokenPipeError: told"),
    ],
)
def test_a_worker_of_the_daemon(tmp_path: Path, module: str, unix: str, error: str, expected: str) -> None:
    """It ends as it did, and tells why only where that is worth a word."""
    done = ended(tmp_path, module, DAEMON.format(error=error), unix)
    assert (expected, 1) == (done.stderr.strip().rpartition("\n")[2], done.returncode)


@pytest.mark.parametrize(
    ("module", "unix", "error", "expected"),
    [
        ("pyspark.sql.streaming.python_streaming_source_runner", "True", "EOFError", ("", True)),
        ("pyspark.sql.streaming.python_streaming_source_runner", "True", "ValueError", ("ValueError", True)),
        ("pyspark.sql.streaming.python_streaming_source_runner", "", "EOFError", ("EOFError", True)),
        ("somebodys.runner", "True", "EOFError", ("EOFError", True)),
    ],
)
def test_a_streams_source(tmp_path: Path, module: str, unix: str, error: str, expected: tuple[str, bool]) -> None:
    done = ended(tmp_path, module, RUNNER.format(error=error), unix)
    assert expected == (done.stdout.strip(), done.returncode == 0)
