"""The options that every command shares, as annotated types, and values that are written in the same way everywhere."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import typer

BOOTSTRAP_DEFAULT: Final = "localhost:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap", envvar="OTTLA_BOOTSTRAP", metavar="HOST:PORT[,…]", help="Where brokers of the cluster listen."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
AssumeYes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask back.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Let the broker check it, and change nothing.")]

_SIZE_UNITS: Final = {"": 1, "b": 1, "k": 1024, "kb": 1024, "kib": 1024, "m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20}
_SIZE_UNITS_LARGE: Final = {"g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30}


def parse_pairs(pairs: Iterable[str], option: str) -> dict[str, str]:
    """`key=value` words as a dictionary; a value may contain `=`."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise typer.BadParameter(f"{pair!r} is not key=value", param_hint=option)
        found[key] = value
    return found


def parse_choices(words: Iterable[str] | None, known: Sequence[str], option: str) -> list[str]:
    """Words of a known few, repeated or with commas between them, in any case; each as it is known, once."""
    by_lower = {each.lower(): each for each in known}
    found: list[str] = []
    for word in (part.strip() for each in words or () for part in each.split(",")):
        if word.lower() not in by_lower:
            raise typer.BadParameter(f"{word!r} is none of {', '.join(known)}", param_hint=option)
        found.append(by_lower[word.lower()])
    return list(dict.fromkeys(found))


def parse_size(text: str, option: str) -> int:
    """Bytes, with k, m or g for powers of 1024, as in 16k."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = (_SIZE_UNITS | _SIZE_UNITS_LARGE).get(text[len(digits) :].strip().lower())
    if not digits.isascii() or not digits.isdigit() or unit is None or int(digits) * unit == 0:
        raise typer.BadParameter(f"{text!r} is no size; write bytes, or a number with k, m or g", param_hint=option)
    return int(digits) * unit
