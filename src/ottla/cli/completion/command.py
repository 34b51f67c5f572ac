"""`ottla completion`: scripts for bash, zsh and fish, and the candidates that these scripts ask for.

A script runs `ottla completion words WORD...` with the words before the cursor and prints what it offers. Commands,
options and choices come from the commands themselves; topics, groups and profiles from the cluster and the user's file.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from ottla.cli.command_runner import application, examples
from ottla.cli.help_pages import is_argument, metavar_of

app = application(
    "Print a script for command completion. It completes commands, options, choices, topics, groups and profiles."
)

TIMEOUT_SECONDS: Final = 1.0
"""Topics and groups are offered only if the cluster answers within this time."""
_SAFE: Final = re.compile(r"[A-Za-z0-9._:/@+-]+")
"""Names that need no quoting. A group id may hold any character, and the shell inserts what is offered."""


class Shell(StrEnum):
    """A shell with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


_SCRIPTS: Final = {
    Shell.BASH: """\
_ottla_complete() {
    local IFS=$'\\n'
    COMPREPLY=($(ottla completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _ottla_complete ottla
""",
    Shell.ZSH: """\
#compdef ottla
_ottla_complete() {
    local -a found
    found=("${(@f)$(ottla completion words -- "${words[@]:1:$((CURRENT - 1))}" 2>/dev/null)}")
    found=(${found:#})
    if (( $#found )); then compadd -a found; else _files; fi
}
compdef _ottla_complete ottla
""",
    Shell.FISH: """\
function __ottla_complete
    set -l words (commandline -opc) (commandline -ct)
    ottla completion words -- $words[2..-1] 2>/dev/null
end
complete -c ottla -a '(__ottla_complete)'
""",
}


def _script_command(shell: Shell, words: str) -> None:
    def show() -> None:
        sys.stdout.write(_SCRIPTS[shell])

    show.__doc__ = words
    example = {
        Shell.BASH: "echo 'source <(ottla completion bash)' >> ~/.bashrc",
        Shell.ZSH: "echo 'source <(ottla completion zsh)' >> ~/.zshrc   # after compinit",
        Shell.FISH: "ottla completion fish > ~/.config/fish/completions/ottla.fish",
    }
    app.command(shell.value, epilog=examples(example[shell]))(show)


for _shell in Shell:
    _script_command(_shell, f"Print the script for {_shell.value}.")


@app.command("words", hidden=True)
def words(
    given: Annotated[
        list[str] | None, typer.Argument(metavar="WORD", help="Words after `ottla`, the last one incomplete.")
    ] = None,
) -> None:
    """Print the candidates for the last word, one per line."""
    *before, current = given or [""]
    for candidate in sorted(set(candidates(before, current))):
        print(candidate)


def candidates(before: Sequence[str], current: str) -> Iterable[str]:
    """What may complete the last word of a command line."""
    from ottla.__main__ import COMMANDS

    if not before:
        return _matching(COMMANDS, current)
    if before[0] not in COMMANDS:
        return ()
    if before[0] == "serve":
        return _of_serve(current)
    return _of_command(typer.main.get_command(import_module(f"ottla.cli.{before[0]}.command").app), before[1:], current)


def _of_serve(current: str) -> Iterable[str]:
    from ottla.cli.serve.options import parser

    return _matching(
        [name for action in parser()._actions for name in action.option_strings if name.startswith("--")], current
    )


def _of_command(command: Any, before: Sequence[str], current: str) -> Iterable[str]:
    rest = list(before)
    while hasattr(command, "commands"):
        if not rest:
            return _matching([name for name, each in command.commands.items() if not each.hidden], current)
        word = rest.pop(0)
        if word not in command.commands:
            return ()
        command = command.commands[word]
    options = {name: each for each in command.params if not is_argument(each) for name in each.opts}
    places = [each for each in command.params if is_argument(each)]
    waiting, filled = None, 0
    for word in rest:
        if waiting is not None:
            waiting = None
        elif word in options:
            waiting = options[word] if metavar_of(options[word]) is not None else None
        elif not word.startswith("-"):
            filled += 1
    if waiting is not None:
        return _values(waiting, rest, current)
    if current.startswith("-"):
        return _matching([*(name for name in options if name.startswith("--")), "--help"], current)
    if not places:
        return ()
    return _values(places[min(filled, len(places) - 1)], rest, current)


def _values(parameter: Any, given: Sequence[str], current: str) -> Iterable[str]:
    """Values of an option or an argument, by its metavar."""
    metavar = metavar_of(parameter) or ""
    if "|" in metavar:
        return _matching(metavar.split("|"), current)
    if metavar == "PROFILE":
        return _matching(_profiles(), current)
    if metavar.startswith("TOPIC") or metavar == "GROUP":
        return _matching(_of_cluster(given, is_group=metavar == "GROUP"), current)
    return ()


def _matching(names: Iterable[str], current: str) -> list[str]:
    return [name for name in names if name.startswith(current) and _SAFE.fullmatch(name)]


def _profiles() -> list[str]:
    import os

    from ottla.cli.profile.store import config_file, read_profiles
    from ottla.model.errors import OttlaError

    try:
        return list(read_profiles(config_file(os.environ)).profiles)
    except (OttlaError, OSError):
        return []


def _of_cluster(given: Sequence[str], *, is_group: bool) -> list[str]:
    """Topics or groups of the cluster that the command line names; nothing if it does not answer quickly."""
    import asyncio
    from dataclasses import replace

    from ottla.cli.profile.store import chosen_connection
    from ottla.client.admin.group_requests import list_groups
    from ottla.client.network.cluster import Cluster
    from ottla.model.errors import OttlaError
    from ottla.transport.addresses import parse_bootstrap

    async def ask() -> list[str]:
        connection = chosen_connection(_given(given, "--bootstrap"), _given(given, "--profile"))
        if (properties := _given(given, "--command-config")) is not None:
            connection = replace(connection, command_config=properties)
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            Cluster(
                parse_bootstrap(connection.bootstrap), client_id=connection.client_id, security=connection.security
            ) as cluster,
        ):
            if is_group:
                return [each.group_id for each in await list_groups(cluster)]
            # Companions of queues are internal too, but people produce to them.
            topics = (await cluster.refresh()).topics
            return [name for name, topic in topics.items() if not (topic.is_internal and name.startswith("__"))]

    try:
        return asyncio.run(ask())
    except (OttlaError, OSError):
        # TimeoutError is an OSError. Completion cannot print messages.
        return []


def _given(words: Sequence[str], option: str) -> str | None:
    places = [at for at, word in enumerate(words[:-1]) if word == option]
    return words[places[-1] + 1] if places else None
