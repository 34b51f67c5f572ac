"""Prints the findings of `ottla doctor`: by area, with what to change below each line that needs a change."""

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from ottla.cli.doctor.findings import Finding, Level, count_of
from ottla.cli.output import human_count, print_json, printable

_STYLES: Final = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}
_LEVEL_WIDTH: Final = max(map(len, Level)) + 2


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings for a program."""
    return {
        "problems": count_of(findings, Level.PROBLEM),
        "warnings": count_of(findings, Level.WARNING),
        "findings": [
            {
                "area": each.area,
                "subject": each.subject,
                "level": each.level.value,
                "found": each.found,
                "change": each.change,
            }
            for each in findings
        ],
    }


def summary(findings: Sequence[Finding]) -> str:
    """One line: how many problems and warnings there are."""
    problems, warnings = count_of(findings, Level.PROBLEM), count_of(findings, Level.WARNING)
    if problems == warnings == 0:
        return "no problems found"
    return f"{human_count(problems, 'problem')}, {human_count(warnings, 'warning')}"


def lines(findings: Sequence[Finding]) -> Iterator[tuple[Level | None, str]]:
    """The report, line by line. A line that begins with the word of its level has the level beside it."""
    for area, group in groupby(findings, key=lambda each: each.area):
        of_area = list(group)
        yield None, area
        width = max(len(each.subject) for each in of_area) + 2
        for each in of_area:
            yield each.level, f"  {each.level.value.ljust(_LEVEL_WIDTH)}{each.subject.ljust(width)}{each.found}"
            if each.change is not None:
                yield None, f"  {' ' * _LEVEL_WIDTH}→ {each.change}"
        yield None, ""
    yield None, summary(findings)


def print_findings(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Prints to stdout; on a terminal with colours."""
    if as_json:
        print_json(document(findings))
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        console = Console(highlight=False)
        for level, line in lines(findings):
            text = Text(printable(line))
            if level is not None:
                text.stylize(_STYLES[level], 2, 2 + len(level.value))
            console.print(text, soft_wrap=True)
    else:
        for _, line in lines(findings):
            print(printable(line))
