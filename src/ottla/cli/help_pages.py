"""The page that `--help` prints, in one style for every command.

Typer's own pages show Python's types and repeat defaults. These are made from what every version of Typer has: names
of options, metavars, help texts and defaults. Numbers of a range are not shown: an error message names the range.
"""

import shutil
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

_WIDTH_MAX: Final = 100
_NAMES_WIDTH_MAX: Final = 30
_NOTE_WIDTH_MAX: Final = 30
_NO_BREAK: Final = "\N{NO-BREAK SPACE}"
_TEXT: Final = "TEXT"
"""The metavar of an option that declares none."""

_Entry = tuple[str, str]


def examples(*lines: str) -> str:
    """The end of a command's help page."""
    return "\n".join(["Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)])


class HelpfulCommand(TyperCommand):
    """A command whose help page is in the style of this module."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the page."""
        formatter.write(_page(self, ctx, ()))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the command's name in its usage line."""
        return ["[OPTIONS]", *(usage_of(each) for each in self.params if is_argument(each))]


class HelpfulGroup(TyperGroup):
    """A command with commands of its own, whose help page is in the style of this module."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the page."""
        shown = {name: each for name, each in self.commands.items() if not each.hidden}
        formatter.write(_page(self, ctx, [(name, first_sentence(each.help or "")) for name, each in shown.items()]))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the command's name in its usage line."""
        return ["COMMAND [OPTIONS]"]


def is_argument(parameter: Any) -> bool:
    """Whether it is a word of its own rather than an option."""
    return bool(parameter.param_type_name == "argument")


def metavar_of(parameter: Any) -> str | None:
    """What stands for the value; None for a flag."""
    if getattr(parameter, "is_flag", False):
        return None
    return str(parameter.metavar or (parameter.name.upper() if is_argument(parameter) else _TEXT))


def usage_of(argument: Any) -> str:
    """An argument as the usage line shows it: TOPIC, [GROUP], [FILE]..."""
    name = metavar_of(argument)
    return f"{name if argument.required else f'[{name}]'}{'...' if argument.nargs != 1 else ''}"


def first_sentence(text: str) -> str:
    """The first sentence of a help text, without its full stop."""
    return " ".join(text.split()).partition(". ")[0].removesuffix(".")


def _page(command: Any, ctx: Any, commands: "list[_Entry] | tuple[()]") -> str:
    width = min(shutil.get_terminal_size().columns, _WIDTH_MAX)
    parts = [f"Usage: {ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}\n"]
    paragraphs = (" ".join(each.split()) for each in (command.help or "").split("\n\n"))
    parts += [textwrap.fill(each, width, break_on_hyphens=False) + "\n" for each in paragraphs]
    parameters = [each for each in command.get_params(ctx) if not getattr(each, "hidden", False)]
    sections = {
        "Arguments": [(usage_of(each), _words(each)) for each in parameters if is_argument(each)],
        "Commands": list(commands),
        "Options": [(_names(each), _words(each)) for each in parameters if not is_argument(each)],
    }
    for heading, entries in sections.items():
        if entries:
            parts.append("\n".join([f"{heading}:", *_listed(entries, width)]) + "\n")
    if commands:
        parts.append(f"`{ctx.command_path} COMMAND --help` explains each command.\n")
    if command.epilog:
        parts.append(command.epilog + "\n")
    return "\n".join(parts)


def _names(option: Any) -> str:
    names = sorted(option.opts, key=lambda name: name.startswith("--"))
    text = ", ".join([*names, *option.secondary_opts])
    metavar = metavar_of(option)
    return text if metavar is None else f"{text} {metavar}"


def _words(parameter: Any) -> str:
    help_text = (parameter.help or "").strip()
    if parameter.name == "help":
        help_text = "Show this page."
    default = _default(parameter)
    if default:
        return f"{help_text} {_kept_together(f'[default: {default}]')}"
    return f"{help_text} [required]" if parameter.required and not is_argument(parameter) else help_text


def _kept_together(note: str) -> str:
    """A short note is not broken into lines."""
    return note.replace(" ", _NO_BREAK) if len(note) <= _NOTE_WIDTH_MAX else note


def _default(parameter: Any) -> str:
    shown, default = parameter.show_default if hasattr(parameter, "show_default") else False, parameter.default
    if isinstance(shown, str):
        return shown
    if not shown or default is None or isinstance(default, bool | list | tuple) or callable(default) or default == "":
        return ""
    return str(getattr(default, "value", default))


def _listed(entries: list[_Entry], width: int) -> Iterator[str]:
    """Names with their texts in a second column; a long name has a line of its own."""
    column = 2 + min(max(len(names) for names, _ in entries), _NAMES_WIDTH_MAX) + 2
    for names, text in entries:
        lines = textwrap.wrap(text, max(width - column, 30), break_on_hyphens=False) or [""]
        lines = [line.replace(_NO_BREAK, " ") for line in lines]
        if len(names) > column - 4:
            yield f"  {names}"
        else:
            yield f"  {names.ljust(column - 2)}{lines.pop(0)}".rstrip()
        for line in lines:
            yield " " * column + line
