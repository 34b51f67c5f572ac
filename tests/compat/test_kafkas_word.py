"""Transcripts of Kafka's answers: what they do not have, or have otherwise, fails a test; every one is in use."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from ottla.model.error_codes import ErrorCode
from tests.compat.kafkas_word import (
    ROOT,
    TRANSCRIPTS,
    Transcript,
    commit,
    live_modules,
    mode_of,
    readable,
    write_lines,
)

MODULES = [f"test_{number}" for number in range(23)]
COMMITS = [f"{number:040x}" for number in range(500)]


def recorded(folder: Path, **answers: object) -> Path:
    path = folder / "test_module.json"
    path.write_text(json.dumps(answers))
    return path


def asked() -> object:
    raise AssertionError("Kafka was asked")


def test_a_recorded_answer_needs_no_kafka(tmp_path: Path) -> None:
    transcript = Transcript(recorded(tmp_path, test_a=[1, 2], test_b={"one": 3}), "recorded")
    assert [[1, 2], 3] == [transcript.answer("test_a", "", asked), transcript.answer("test_b", "one", asked)]


@pytest.mark.parametrize("mode", ["recorded", "live"])
@pytest.mark.parametrize(("test", "step"), [("test_c", ""), ("test_b", "two")])
def test_a_missing_answer_fails_and_asks_no_kafka(tmp_path: Path, mode: str, test: str, step: str) -> None:
    for transcript in (
        Transcript(recorded(tmp_path, test_b={"one": 3}), mode),
        Transcript(tmp_path / "missing.json", mode),
    ):
        with pytest.raises(pytest.fail.Exception, match="run make compat-record"):
            transcript.answer(test, step, asked)


def test_an_untrue_transcript_fails_when_kafka_runs(tmp_path: Path) -> None:
    transcript = Transcript(recorded(tmp_path, test_a=["NONE", 2]), "live")
    assert ["NONE", 2] == transcript.answer("test_a", "", lambda: (ErrorCode.NONE, 2))
    with pytest.raises(AssertionError, match=r"test_module\.json is not what Kafka answers.* run make compat-record"):
        transcript.answer("test_a", "", lambda: (ErrorCode.NONE, 3))


def test_answers_are_recorded(tmp_path: Path) -> None:
    path = recorded(tmp_path, test_b=1)
    transcript = Transcript(path, "record")
    assert [2] == transcript.answer("test_b", "", lambda: (2,))
    transcript.answer("test_a", "one", lambda: [1]).append("what a test does with an answer")
    transcript.answer("test_a", "two", lambda: None)
    assert '{"test_a": {"one": [1], "two": null}, "test_b": [2]}\n' == path.read_text()
    again = Transcript(path, "recorded")
    again.answer("test_a", "one", asked).append("what a test does with an answer")
    assert [1] == again.answer("test_a", "one", asked)


def test_the_tenth_that_asks_a_running_kafka() -> None:
    chosen = [live_modules(MODULES, each) for each in COMMITS]
    assert chosen == [live_modules(MODULES[::-1], each) for each in COMMITS], "the order of files decides"
    assert {3} == set(map(len, chosen))
    assert set(MODULES) == set().union(*chosen[:100])
    assert {1} == {len(live_modules(MODULES[:5], each)) for each in COMMITS}
    assert set() == live_modules(MODULES, None) == live_modules([], COMMITS[0])


def test_the_commit(tmp_path: Path) -> None:
    empty, filled = tmp_path / "empty", tmp_path / "filled"
    for folder in (empty, filled):
        folder.mkdir()
    assert commit(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert commit(empty) is None, "nothing is committed"
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    assert re.fullmatch("[0-9a-f]{40}", commit(filled) or "")


def test_the_environment_decides_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for mode in ("recorded", "live", "record"):
        monkeypatch.setenv("OTTLA_KAFKA", mode)
        assert mode == mode_of("test_module")
    monkeypatch.setenv("OTTLA_KAFKA", "lively")
    with pytest.raises(ValueError, match="OTTLA_KAFKA=lively: it is one of recorded, live, record"):
        mode_of("test_module")
    monkeypatch.delenv("OTTLA_KAFKA")
    modules = {path.stem for path in TRANSCRIPTS.glob("*.json")}
    assert live_modules(sorted(modules), commit(ROOT)) == {each for each in modules if mode_of(each) == "live"}


@dataclass
class Answer:
    error: ErrorCode
    parts: set[int]


def test_answers_are_readable() -> None:
    answer = {ErrorCode.NONE: Answer(ErrorCode.UNKNOWN_MEMBER_ID, {3, 1}), 1: (b"\0", None, 1.5, timedelta(seconds=1))}
    assert {
        "NONE": {"error": "UNKNOWN_MEMBER_ID", "parts": [1, 3]},
        "1": ["b'\\x00'", None, 1.5, "0:00:01"],
    } == readable(answer)
    assert str(UUID(int=1)) == readable(UUID(int=1))
    with pytest.raises(TypeError, match="cannot be written to a transcript"):
        readable(object())


def test_what_fits_on_a_line_is_on_one() -> None:
    long = {"a": [1, {"b": "é"}], "c": ["x" * 60, "y" * 60], "d": {}}
    assert [
        "{",
        ' "a": [1, {"b": "é"}],',
        ' "c": [',
        f'  "{"x" * 60}",',
        f'  "{"y" * 60}"',
        " ],",
        ' "d": {}',
        "}",
    ] == write_lines(long).splitlines()
    assert long == json.loads(write_lines(long))


def test_every_transcript_is_in_use() -> None:
    """Tests that are gone leave no answers behind."""
    paths = sorted(TRANSCRIPTS.iterdir())
    modules = [f"tests/compat/{path.stem}.py" for path in paths]
    command = [sys.executable, "-m", "pytest", "--collect-only", *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert 0 == done.returncode, done.stdout + done.stderr
    tests = set(done.stdout.splitlines())
    answers = {
        f"{module}::{test}"
        for path, module in zip(paths, modules, strict=True)
        for test in json.loads(path.read_text())
    }
    assert answers
    assert set() == answers - tests
