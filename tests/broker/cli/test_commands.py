"""Every command against a real Ottla broker, and the ways in which commands end."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.cli.command_scenarios import SCENARIOS, Scenario
from tests.processes import Program
from tests.unit.cli.command_line import CommandLine


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


def test_following_prints_at_once_and_an_interrupt_ends_it_with_130(
    start: Callable[..., Program], ottla: CommandLine
) -> None:
    ottla.ok("topics", "create", "followed")
    ottla.ok("produce", "followed", stdin=b"before\n")
    following = start("consume", "followed", "--follow", "--print", "offset")
    assert "0\tbefore" == following.next_line()
    ottla.ok("produce", "followed", stdin=b"after\n")
    assert "1\tafter" == following.next_line()
    assert (130, [], "") == (following.stop(signal.SIGINT), following.remaining_lines(), following.log)


def test_a_pipe_that_stays_open_is_sent_as_it_is_written(start: Callable[..., Program], ottla: CommandLine) -> None:
    ottla.ok("topics", "create", "piped")
    following = start("consume", "piped", "--follow")
    producing = start("produce", "piped", has_input=True)
    for line in ("one", "two"):
        producing.write(line)
        assert line == following.next_line()
    # Nothing more comes, and nothing ended: an interrupt must end it while it waits.
    assert 130 == producing.stop(signal.SIGINT)


def test_a_reader_that_has_enough_is_no_error(start: Callable[..., Program], ottla: CommandLine) -> None:
    ottla.ok("topics", "create", "cut-short")
    ottla.ok("produce", "cut-short", stdin=b"".join(b"%d\n" % number for number in range(200_000)))
    consuming = start("consume", "cut-short", output=subprocess.PIPE)
    assert consuming.process.stdout is not None
    assert b"0\n" == consuming.process.stdout.readline()
    consuming.process.stdout.close()
    assert (0, "") == (consuming.wait(), consuming.log)


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
