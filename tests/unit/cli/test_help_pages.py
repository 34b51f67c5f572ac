"""Every help page: one style, plain metavars, an example, and defaults told once."""

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

import pytest
import typer

from ottla.__main__ import COMMANDS, main
from ottla.cli.help_pages import is_argument, metavar_of
from tests.sweeps import sweep

TYPER_COMMANDS: Final = [name for name in COMMANDS if name != "serve"]
WITHOUT_JSON: Final = {
    ("cluster", "reassign", "generate"): "a plan is JSON already",
    ("console",): "a process that runs until it is stopped",
    ("registry", "serve"): "a process that runs until it is stopped",
    ("registry", "export"): "the export is JSON already",
    ("completion", "bash"): "a script",
    ("completion", "zsh"): "a script",
    ("completion", "fish"): "a script",
}


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        if not each.hidden:
            yield from walk(each, (*path, name))


def every_command() -> list[tuple[tuple[str, ...], Any]]:
    apps = {name: typer.main.get_command(import_module(f"ottla.cli.{name}.command").app) for name in TYPER_COMMANDS}
    return [found for name, command in apps.items() for found in walk(command, (name,))]


ALL: Final = every_command()
PAGES: Final = [("serve",), *(path for path, _ in ALL)]
LEAVES: Final = [("serve",), *(path for path, command in ALL if not hasattr(command, "commands"))]


def page_of(path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        main([*path, "--help"])
    assert 0 == ended.value.code
    return capsys.readouterr().out


@sweep("path", PAGES)
def test_a_page_has_one_style(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = page_of(path, capsys, monkeypatch)
    assert page.startswith(f"Usage: ottla {' '.join(path)} ")
    assert [] == re.findall(r"<[\w\[\]| ]+>|\{\w+\}|\bx>=|\(default|\(dynamic\)", page), "Python's types, and ranges"
    assert [] == [line for line in page.splitlines() if line.count("[default:") > 1]
    assert [] == [line for line in page.splitlines() if len(line) > 100 and not line.startswith("  ottla")]
    options = page.partition("Options:\n")[2].partition("\n\n")[0]
    texts = re.findall(r"^  -\S.*?(?:  |$\n {10,})(\S.*)", options, re.MULTILINE)
    assert texts
    assert [] == [text for text in texts if text[0].islower() and text[0] != "-" and not text.startswith("text,")]


@sweep("path", LEAVES)
def test_a_command_has_an_example_that_calls_it(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = page_of(path, capsys, monkeypatch)
    found = re.search(r"^Examples?:\n((?:  .*\n)+)", page, re.MULTILINE)
    assert found is not None
    assert all(f"ottla {' '.join(path)}" in line for line in found[1].splitlines())


@sweep(("path", "command"), ALL)
def test_every_option_with_a_value_names_it(path: tuple[str, ...], command: Any) -> None:
    """What the value is stands in the metavar; TEXT only where any text will do."""
    unnamed = [each.name for each in command.params if metavar_of(each) is not None and not each.metavar]
    assert [] == unnamed


@sweep(("path", "command"), ALL)
def test_a_command_that_connects_takes_a_profile_as_well(path: tuple[str, ...], command: Any) -> None:
    if path[0] == "profile":
        return
    names = {name for each in command.params if not is_argument(each) for name in each.opts}
    assert ("--bootstrap" in names) is ("--profile" in names)


@sweep(("path", "command"), ALL)
def test_a_command_that_prints_data_can_print_json(path: tuple[str, ...], command: Any) -> None:
    if hasattr(command, "commands"):
        return
    names = {name for each in command.params for name in each.opts}
    assert ("--json" in names) is (path not in WITHOUT_JSON)
