"""The options that commands share, as annotated types, and values that are written in the same way everywhere."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import typer

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        help="Brokers to connect to first; separate several with commas.",
        show_default="OTTLA_BOOTSTRAP, the profile in use, or localhost:9092",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="PROFILE", help="Connection profile to use (see `ottla profile --help`)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AssumeYes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only let the broker validate the request; change nothing.")]
Compression = Annotated[
    str,
    typer.Option("--compression", "-z", metavar="none|gzip|snappy|lz4|zstd", help="Compression codec of batches."),
]
Acks = Annotated[
    str,
    typer.Option(
        "--acks",
        metavar="all|1|0",
        help="Who must have a batch before it counts as sent: all in-sync replicas, the leader (1), or nobody (0).",
    ),
]

_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
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
    """Words out of a known list, repeated or with commas between them, in any case; each as it is known, once."""
    return list(
        dict.fromkeys(parse_choice(part.strip(), known, option) for each in words or () for part in each.split(","))
    )


def parse_choice(word: str, known: Sequence[str], option: str) -> str:
    """One word out of a known list, in any case; as it is known."""
    by_lower = {each.lower(): each for each in known}
    if word.lower() not in by_lower:
        raise typer.BadParameter(f"{word!r} is not one of {', '.join(known)}", param_hint=option)
    return by_lower[word.lower()]


def parse_acks(text: str) -> int:
    """The number of acknowledgements in a Produce request."""
    if text not in _ACKS:
        raise typer.BadParameter(f"{text!r} is not one of all, 1, 0", param_hint="--acks")
    return _ACKS[text]


def parse_size(text: str, option: str) -> int:
    """Bytes, with k, m or g for powers of 1024, as in 16k."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = (_SIZE_UNITS | _SIZE_UNITS_LARGE).get(text[len(digits) :].strip().lower())
    if not digits.isascii() or not digits.isdigit() or unit is None or int(digits) * unit == 0:
        raise typer.BadParameter(
            f"{text!r} is not a valid size; write bytes, or a number with k, m or g", param_hint=option
        )
    return int(digits) * unit
