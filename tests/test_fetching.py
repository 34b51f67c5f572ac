"""What fetches from the network, when the network fails: commands are tried again, and half a download is not used.

Programs in a folder of the test stand for apt-get and Maven: they fail as the real ones do when the network breaks off.
"""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests import processes
from tests.compat import kafka_jars

TESTS = Path(__file__).parent


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is searched for programs first. Attempts follow each other at once."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("OTTLA_RETRY_PAUSES", "0 0 0")
    return folder


def write_program(path: Path, script: str) -> None:
    """Each call of the program adds its arguments as a line to `<program>.calls` before the script runs."""
    path.write_text(f'#!/bin/sh\necho "$@" >>"$0.calls"\ncalls=$(wc -l <"$0.calls")\n{script}\n')
    path.chmod(0o755)


def calls_of(path: Path) -> list[str]:
    return path.with_name(f"{path.name}.calls").read_text().splitlines()


def run(script: str, *args: str) -> "subprocess.CompletedProcess[str]":
    return processes.run([TESTS / script, *args], status=None)


@pytest.mark.parametrize(
    ("script", "status", "count"), [("[ $calls -eq 3 ]", 0, 3), ("exit 7", 7, 4), ("exit 130", 130, 1)]
)
def test_a_command_that_fails_is_tried_again(programs: Path, script: str, status: int, count: int) -> None:
    write_program(programs / "fetch", script)
    done = run("retry", "60", "fetch", "two words", "x")
    assert (status, ["two words x"] * count) == (done.returncode, calls_of(programs / "fetch"))
    assert count - 1 == done.stderr.count("next attempt in 0 seconds")


def test_a_command_that_hangs_is_tried_again(programs: Path) -> None:
    write_program(programs / "fetch", "[ $calls -gt 1 ] || exec sleep 3600")
    done = run("retry", "1", "fetch")
    assert (0, 2) == (done.returncode, len(calls_of(programs / "fetch")))
    assert "fetch took longer than 1 seconds" in done.stderr


def test_packages_are_installed_though_the_first_lists_are_incomplete(programs: Path) -> None:
    """As apt-get does: the update says that all is well, or not, and then a package is unknown."""
    write_program(programs / "apt-get", 'case "$*" in *update*) [ $calls -ge 5 ];; *) [ $calls -ge 6 ];; esac')
    done = run("install_packages", "kcat", "maven")
    assert 0 == done.returncode, done.stderr
    words = [
        [word for word in line.split() if word in ("update", "install", "kcat", "maven")]
        for line in calls_of(programs / "apt-get")
    ]
    assert [["update"], ["install", "kcat", "maven"]] * 3 == words
    write_program(programs / "apt-get", "exit 100")
    assert 100 == run("install_packages", "kcat").returncode


def test_half_a_jar_is_fetched_again(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maven itself uses each file that it finds in its repository."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    whole, jar, other = tmp_path / "whole.jar", tmp_path / "kafka.jar", tmp_path / "other.jar"
    for each in (whole, other):
        with zipfile.ZipFile(each, "w") as archive:
            archive.writestr("A.class", os.urandom(10_000))
    write_program(
        programs / "mvn",
        f"""
        [ $calls -gt 1 ] || exit 1
        [ -e {jar} ] || cp {whole} {jar}
        for each; do case $each in -Dmdep.outputFile=*) printf %s {other}:{jar} >"${{each#*=}}";; esac; done""",
    )
    jar.write_bytes(whole.read_bytes()[:5_000])
    assert f"{other}:{jar}" == kafka_jars.maven_class_path("kafka", kafka_jars.POM)
    assert whole.read_bytes() == jar.read_bytes()
    # The class path is kept, but jars that were damaged since then are not used.
    fetched = len(calls_of(programs / "mvn"))
    assert f"{other}:{jar}" == kafka_jars.maven_class_path("kafka", kafka_jars.POM)
    assert fetched == len(calls_of(programs / "mvn"))
    jar.write_bytes(b"")
    kafka_jars.maven_class_path("kafka", kafka_jars.POM)
    assert whole.read_bytes() == jar.read_bytes()
    whole.write_bytes(b"not a jar")
    jar.unlink()
    with pytest.raises(kafka_jars.KafkaUnavailableError, match="not whole"):
        kafka_jars.maven_class_path("kafka", kafka_jars.POM)
