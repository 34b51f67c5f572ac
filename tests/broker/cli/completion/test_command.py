"""Command completion: what is offered for a word, and that bash takes it."""

import shutil
import sys
import time
from pathlib import Path

import pytest

from ottla.__main__ import COMMANDS
from ottla.cli.completion import command
from tests.processes import run
from tests.unit.cli.command_line import CommandLine


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config.toml"))


def offered(ottla: CommandLine, *words: str) -> list[str]:
    return ottla.ok("completion", "words", "--", *words).out.split()


def test_commands_options_and_choices(ottla: CommandLine) -> None:
    assert sorted(COMMANDS) == offered(ottla, "")
    assert ["produce", "profile"] == offered(ottla, "pro")
    assert ["delete", "delete-records", "describe"] == offered(ottla, "topics", "de")
    assert ["--format", "--from"] == [each for each in offered(ottla, "consume", "--f") if each != "--follow"]
    assert ["epoch", "iso", "local"] == offered(ottla, "consume", "--time-format", "")
    assert ["zstd"] == offered(ottla, "produce", "t", "-z", "z")
    assert ["--brokers"] == offered(ottla, "serve", "--brok")
    assert ["execute"] == offered(ottla, "cluster", "reassign", "e")
    assert [] == offered(ottla, "fly", "")
    assert [] == offered(ottla, "produce", "t", "--file", "")


def test_topics_groups_and_profiles(ottla: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "TIMEOUT_SECONDS", 60.0)
    for topic in ("k-events", "k-orders"):
        ottla.ok("topics", "create", topic)
    for group in ("k-billing", "k-$(touch owned)", "k-\x1b"):
        ottla.ok("groups", "reset-offsets", group, "--topic", "k-events", "--to-earliest", "--execute")
    ottla.ok("profile", "create", "prod", "--bootstrap", ottla.bootstrap)
    assert ["k-events", "k-orders"] == offered(ottla, "consume", "k-")
    assert ["k-orders"] == offered(ottla, "consume", "k-events", "--follow", "k-o")
    assert ["k-events"] == offered(ottla, "groups", "reset-offsets", "g", "--topic", "k-e")
    assert [] == offered(ottla, "consume", "__")
    ottla.ok("queues", "create", "k-parked", "--delay")
    assert ["k-parked", "k-parked.delayed"] == offered(ottla, "produce", "k-p")
    assert ["k-billing"] == offered(ottla, "groups", "describe", "k-"), "only names that are safe on a command line"
    assert ["k-billing"] == offered(ottla, "consume", "--group", "k-")
    assert ["prod"] == offered(ottla, "topics", "list", "--profile", "p")
    assert ["k-events"] == offered(ottla, "topics", "describe", "--profile", "prod", "k-e")


def test_a_cluster_that_does_not_answer_costs_a_second_and_nothing_else(
    ottla: CommandLine, capfd: pytest.CaptureFixture[str]
) -> None:
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        done = ottla.ok(
            "completion", "words", "--", "consume", "--bootstrap", f"127.0.0.1:{silent.getsockname()[1]}", "k"
        )
        assert ("", "") == (done.out, done.err)
        assert time.monotonic() - began < 8


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_valid(shell: str, ottla: CommandLine) -> None:
    script = ottla.ok("completion", shell).out
    assert "ottla completion words" in script
    if shutil.which(shell) is not None:
        run([shell, "-n"], text=script)


def test_bash_completes(ottla: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ottla").write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla "$@"\n')
    (folder / "ottla").chmod(0o755)
    script = (
        f"export PATH={folder}:$PATH\n{ottla.ok('completion', 'bash').out}\n"
        'COMP_WORDS=(ottla topics de); COMP_CWORD=2; _ottla_complete; printf "%s\\n" "${COMPREPLY[@]}"\n'
        'COMP_WORDS=(ottla topics ""); COMP_CWORD=2; _ottla_complete; printf "%s\\n" "${#COMPREPLY[@]}"\n'
    )
    assert ["delete", "delete-records", "describe", "6"] == run(["bash"], text=script).stdout.split()
