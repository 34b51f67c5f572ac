"""Processes that Spark hangs up on: they end in silence, and only they, and only because of that."""

import subprocess
import sys
from pathlib import Path

import pytest

DAEMON = """
import sys

def worker(*arguments):
    raise {error}("told")

if __name__ == "__main__":
    from ottla.spark.hang_ups import expect_in_daemon
    expect_in_daemon()
    expect_in_daemon()
    print(worker(1, True))
"""
RUNNER = """
import sys
from ottla.spark.hang_ups import end_source_runner

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


def run(folder: Path, module: str, program: str, unix: str) -> tuple[str, bool]:
    """What a module of that name says, and whether it says it well."""
    path = folder.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True)
    for package in (path.parent, *path.parent.relative_to(folder).parents):
        (folder / package / "__init__.py").touch()
    path.write_text(program)
    source = Path(__file__).parents[3] / "src"
    environment = {"PYTHONPATH": f"{folder}:{source}", "PYTHON_UNIX_DOMAIN_ENABLED": unix}
    done = subprocess.run(
        [sys.executable, "-m", module], env=environment, cwd=folder, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip(), done.returncode == 0


@pytest.mark.parametrize(
    ("module", "unix", "error", "expected"),
    [
        ("pyspark.daemon", "True", "BrokenPipeError", ("1", True)),
        ("pyspark.daemon", "True", "ValueError", ("", False)),
        ("pyspark.daemon", "", "BrokenPipeError", ("", False)),
        ("somebodys.daemon", "True", "BrokenPipeError", ("", False)),
    ],
)
def test_a_worker_of_the_daemon(tmp_path: Path, module: str, unix: str, error: str, expected: tuple[str, bool]) -> None:
    assert expected == run(tmp_path, module, DAEMON.format(error=error), unix)


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
    assert expected == run(tmp_path, module, RUNNER.format(error=error), unix)
