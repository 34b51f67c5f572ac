"""The command `ottla`, run as a user runs it."""

import subprocess
import sys

import pytest

from ottla.__main__ import main
from ottla.version import __version__


def ottla(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ottla", *arguments], capture_output=True, text=True, check=False)


def test_version() -> None:
    done = ottla("--version")
    assert (0, f"ottla {__version__}\n", "") == (done.returncode, done.stdout, done.stderr)


def test_serve_says_that_there_is_no_broker_yet() -> None:
    done = ottla("serve")
    assert (0, "") == (done.returncode, done.stderr)
    assert f"ottla {__version__}: there is no broker to start yet." == done.stdout.splitlines()[0]


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert 0 == ended.value.code
    assert "example:\n  ottla serve" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["fly"], ["serve", "--unknown"]])
def test_a_wrong_command_line_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert 2 == ended.value.code
    assert capsys.readouterr().err.startswith("usage: ottla")
