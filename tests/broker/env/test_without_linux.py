"""The whole product where Linux's own calls and /proc are missing, as on macOS: `without_linux/sitecustomize.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "without_linux"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(HERE)}
OTTLA = [sys.executable, "-P", "-m", "ottla"]


def run(*arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [*OTTLA, *arguments], env=ENVIRONMENT, input=stdin, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def test_brokers_replicate_and_serve(tmp_path: Path) -> None:
    """Three processes: they share the metadata in SQLite without being woken, and write, read and send their logs."""
    options = ["--brokers", "3", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*OTTLA, "serve", *options, "--set", "offsets.topic.num.partitions=1"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as served:
        try:
            assert served.stdout is not None
            word, _, addresses = served.stdout.readline().strip().partition(" ")
            assert "ready" == word
            server = ("--bootstrap", addresses.replace(" ", "").split(",")[0])
            run("topics", "create", "events", "--replication-factor", "3", *server)
            text = "".join(f"{number} {'x' * 2000}\n" for number in range(200))
            run("produce", "events", *server, stdin=text)
            assert text == run("consume", "events", *server)
        finally:
            served.terminate()
            _, errors = served.communicate(timeout=PATIENCE_SECONDS)
        assert (0, "") == (served.returncode, "".join(line for line in errors.splitlines() if "Traceback" in line))


def test_doctor_says_what_it_cannot_see(tmp_path: Path) -> None:
    found = run("doctor", "--data", str(tmp_path))
    unknown = {line.split()[1] for line in found.splitlines() if line.endswith("not reported by this system")}
    assert {"CPU", "vm.max_map_count", "source", "file"} == unknown
