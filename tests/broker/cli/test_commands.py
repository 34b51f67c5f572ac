"""Every command against a real Ottla broker, and the ways in which commands end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.cli.command_scenarios import SCENARIOS, Scenario
from tests.unit.cli.command_line import CommandLine
from tests.waiting import PATIENCE_SECONDS

TIMEOUT_S = PATIENCE_SECONDS


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Scenario, ottla: CommandLine, tmp_path: Path) -> None:
    scenario(ottla, tmp_path)


def test_nobody_listens(capfd: pytest.CaptureFixture[str]) -> None:
    done = CommandLine("127.0.0.1:1", capfd)("topics", "list")
    assert (3, "") == (done.status, done.out)
    assert (
        "ottla: cannot reach any broker of 127.0.0.1:1 (127.0.0.1:1: connection refused); "
        "is one running? `ottla serve` starts one\n"
    ) == done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "list", "--bootstrap", "host:none"),
        ("topics", "delete-records", "t", "--yes"),
        ("topics", "create", "t", "--config", "novalue"),
        ("configs", "describe"),
        ("configs", "describe", "--topic", "t", "--broker", "0"),
        ("configs", "describe", "--broker", "one"),
        ("consume", "t", "--from", "yesterday"),
        ("consume", "t", "--print", "colour"),
        ("consume", "t", "--follow", "--until", "end"),
        ("consume", "t", "--isolation", "serializable"),
        ("produce", "t", "--acks", "2"),
        ("produce", "t", "--compression", "rar"),
        ("produce", "t", "--batch-size", "huge"),
        ("produce", "t", "--key-separator", ""),
        ("produce", "t", "--headers", "=1"),
        ("bench", "produce", "--acks", "many"),
        ("bench", "produce", "--records", "0"),
        ("cluster", "fly"),
        ("topics",),
    ],
)
def test_wrong_usage_ends_with_2_and_words(arguments: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    done = CommandLine("127.0.0.1:1", capfd)(*arguments)
    assert 2 == done.status
    assert "Traceback" not in done.err
    assert done.err or done.out.startswith("Usage: ottla")


def test_wrong_usage_is_told_without_decoration(capfd: pytest.CaptureFixture[str]) -> None:
    ottla = CommandLine("127.0.0.1:1", capfd)
    assert "\nError: not a terminal; pass --yes to confirm\n" in ottla("topics", "delete", "t").err
    assert "\nError: pass either topics or --pattern\n" in ottla("consume").err


@pytest.mark.parametrize("command", [("configs", "describe"), ("log", "dirs"), ("transactions", "hanging")])
def test_an_unknown_broker_is_refused_at_once(ottla: CommandLine, command: tuple[str, ...]) -> None:
    done = ottla(*command, "--broker", "7")
    wanted = "broker 7 is not registered in this cluster; registered: 0"
    assert (1, True) == (done.status, wanted in done.err), done


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OTTLA_DEBUG", "1")
    done = CommandLine("127.0.0.1:1", capfd)("topics", "list")
    assert (3, True) == (done.status, "Traceback" in done.err)


def started(broker: str, *arguments: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "OTTLA_BOOTSTRAP": broker}
    return subprocess.Popen(
        [sys.executable, "-m", "ottla", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )


def test_following_prints_at_once_and_an_interrupt_ends_it_with_130(broker: str, ottla: CommandLine) -> None:
    ottla.ok("topics", "create", "followed")
    ottla.ok("produce", "followed", stdin=b"before\n")
    following = started(broker, "consume", "followed", "--follow", "--print", "offset")
    assert following.stdout is not None
    try:
        assert b"0\tbefore\n" == following.stdout.readline()
        ottla.ok("produce", "followed", stdin=b"after\n")
        assert b"1\tafter\n" == following.stdout.readline()
        following.send_signal(signal.SIGINT)
        out, err = following.communicate(timeout=TIMEOUT_S)
        assert (130, b"", b"") == (following.returncode, out, err)
    finally:
        following.kill()
        following.communicate()


def test_a_pipe_that_stays_open_is_sent_as_it_is_written(broker: str, ottla: CommandLine) -> None:
    ottla.ok("topics", "create", "piped")
    following = started(broker, "consume", "piped", "--follow")
    producing = started(broker, "produce", "piped")
    assert following.stdout is not None
    assert producing.stdin is not None
    try:
        for line in (b"one\n", b"two\n"):
            producing.stdin.write(line)
            producing.stdin.flush()
            assert line == following.stdout.readline()
        # Nothing more comes, and nothing ended: an interrupt must end it while it waits.
        producing.send_signal(signal.SIGINT)
        assert 130 == producing.wait(TIMEOUT_S)
    finally:
        for process in (producing, following):
            process.kill()
            process.communicate()


def test_a_reader_that_has_enough_is_no_error(broker: str, ottla: CommandLine) -> None:
    ottla.ok("topics", "create", "cut-short")
    ottla.ok("produce", "cut-short", stdin=b"".join(b"%d\n" % number for number in range(200_000)))
    consuming = started(broker, "consume", "cut-short")
    assert consuming.stdout is not None
    assert consuming.stderr is not None
    assert b"0\n" == consuming.stdout.readline()
    consuming.stdout.close()
    assert (0, b"") == (consuming.wait(TIMEOUT_S), consuming.stderr.read())
    consuming.stderr.close()


def test_a_missing_file_is_named(ottla: CommandLine) -> None:
    ottla.ok("topics", "create", "filed")
    done = ottla("produce", "filed", "/no/such/file")
    assert (1, "ottla: /no/such/file: No such file or directory\n") == (done.status, done.err)


def test_files_before_one_that_cannot_be_read_are_sent(ottla: CommandLine, tmp_path: Path) -> None:
    ottla.ok("topics", "create", "half-filed")
    (tmp_path / "first").write_bytes(b"one\ntwo\n")
    done = ottla("produce", "half-filed", str(tmp_path / "first"), str(tmp_path))
    assert (1, f"ottla: {tmp_path}: Is a directory\n") == (done.status, done.err)
    assert "one\ntwo\n" == ottla.ok("consume", "half-filed").out
