"""`ottla users` against a real broker: with a terminal that asks, with files, and command lines that it refuses."""

import os
import pty
import sys
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.unit.cli.command_line import CommandLine

PASSWORD = "correct horse"


pytestmark = pytest.mark.ottla_broker({})
"""A broker without other users."""


def secret_file(folder: Path, text: str = f"{PASSWORD}\n") -> str:
    path = folder / "password"
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def on_terminal(bootstrap: str, *arguments: str, typed: list[bytes]) -> tuple[int, bytes]:
    """Runs `ottla` with a terminal of its own; types a line at each prompt."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["OTTLA_BOOTSTRAP"] = bootstrap
        os.execv(sys.executable, [sys.executable, "-m", "ottla", *arguments])
    shown = b""
    lines = list(typed)
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
        if lines and shown.endswith(b": "):
            os.write(terminal, lines.pop(0) + b"\n")
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown


def test_a_user_is_created_listed_and_deleted(ottla: CommandLine, tmp_path: Path) -> None:
    file = secret_file(tmp_path)
    done = ottla.ok("users", "create", "alice", "--password-file", file)
    assert "user alice: password set for SCRAM-SHA-256, SCRAM-SHA-512\n" == done.out
    assert [
        {"user": "alice", "mechanism": each, "iterations": 8192} for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ] == ottla.ok("users", "list", "--json").json
    again = ottla("users", "create", "alice", "--password-file", file)
    assert (2, True) == (again.status, "--replace" in again.err)
    ottla.ok("users", "create", "alice", "--password-file", file, "--replace", "--iterations", "4096")
    assert {4096} == {each["iterations"] for each in ottla.ok("users", "list", "--json").json}
    unconfirmed = ottla("users", "delete", "alice")
    assert (2, True) == (unconfirmed.status, "--yes" in unconfirmed.err)
    ottla.ok("users", "delete", "alice", "--mechanism", "scram-sha-256", "--yes")
    assert ["SCRAM-SHA-512"] == [each["mechanism"] for each in ottla.ok("users", "list", "--json").json]
    assert {"user": "alice", "deleted": ["SCRAM-SHA-512"]} == ottla.ok("users", "delete", "alice", "-y", "--json").json
    assert [] == ottla.ok("users", "list", "--json").json
    missing = ottla("users", "delete", "alice", "--yes")
    assert (1, True) == (missing.status, "alice" in missing.err)


def test_the_prompt_hides_the_password_and_asks_twice(process: BrokerProcess, ottla: CommandLine) -> None:
    line = PASSWORD.encode()
    status, shown = on_terminal(process.address, "users", "create", "bob", typed=[line, line])
    assert (0, True) == (status, b"user bob: password set" in shown), shown
    assert line not in shown
    status, shown = on_terminal(process.address, "users", "create", "carol", typed=[line, b"another"])
    assert (2, True) == (status, b"differ" in shown), shown
    assert {"bob"} == {each["user"] for each in ottla.ok("users", "list", "--json").json}
    ottla.ok("users", "delete", "bob", "--yes")


def test_a_password_comes_from_stdin(ottla: CommandLine) -> None:
    ottla.ok("users", "create", "dave", "--password-file", "-", "--mechanism", "SCRAM-SHA-256", stdin=b"secret\n")
    ottla.ok("users", "delete", "dave", "--yes")


def test_a_file_that_others_can_read_is_warned_about(ottla: CommandLine, tmp_path: Path) -> None:
    file = secret_file(tmp_path)
    Path(file).chmod(0o644)
    done = ottla("users", "create", "erin", "--password-file", file)
    assert (0, True) == (done.status, "chmod 600" in done.err)
    ottla.ok("users", "delete", "erin", "--yes")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "x"), "--password-file"),
        (("create", "x", "--password-file", "-"), "no password"),
        (("create", "x", "--password-file", "-", "--mechanism", "PLAIN"), "SCRAM-SHA-512"),
        (("create", "x", "--password-file", "-", "--iterations", "1"), "4096"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_ends_with_2_and_words(ottla: CommandLine, arguments: tuple[str, ...], words: str) -> None:
    done = ottla("users", *arguments)
    assert (2, True) == (done.status, words in done.err), done
