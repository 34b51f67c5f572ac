"""The command `ottla`, run as a user runs it."""

import subprocess
import sys

import pytest

from ottla.__main__ import COMMANDS, main
from ottla.version import __version__


def ottla(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ottla", *arguments], capture_output=True, text=True, check=False)


def test_version() -> None:
    done = ottla("--version")
    assert (0, f"ottla {__version__}\n", "") == (done.returncode, done.stdout, done.stderr)


def test_help_lists_every_command_and_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["--help"])
    out = capsys.readouterr().out
    assert list(COMMANDS) == [line.split()[0] for line in out.split("Commands:\n")[1].split("\n\n")[0].splitlines()]
    assert "Examples:\n  ottla serve" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert 0 == ended.value.code
    assert capsys.readouterr().out.startswith(f"Usage: ottla {command} ")


@pytest.mark.parametrize("arguments", [[], ["fly"], ["--fly"]])
def test_a_wrong_command_line_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(arguments)
    assert capsys.readouterr().err.startswith("Usage: ottla")


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], {"typer", "rich", "kio", "uvloop", "msgspec", "asyncio", "ottla.cli"}),
        (["serve", "--help"], {"typer", "rich", "kio", "ottla.client", "ottla.cli.topics.command"}),
        (["topics", "--help"], {"rich", "kio", "uvloop", "asyncio.events", "ottla.client", "ottla.cli.serve.command"}),
    ],
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], unwanted: set[str]) -> None:
    """Start-up time is what imports make it."""
    program = (
        "import sys\n"
        "from ottla.__main__ import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        f"print(sorted({unwanted!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "[]\n" == done.stderr
