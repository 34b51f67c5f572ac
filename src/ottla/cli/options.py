"""The options that commands share, as annotated types, and the parsing of their values."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.operations.sizes import BadSizeError
from ottla.operations.sizes import parse_size as size_of

if TYPE_CHECKING:
    from ottla.records.layout import Codec

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        help="Brokers to connect to first; separate several with commas.",
        show_default="OTTLA_BOOTSTRAP, the profile in use, or localhost:9092",
    ),
]
OptionalBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        help="Brokers of a cluster to check as well; separate several with commas.",
        show_default=False,
    ),
]
"""For a command that connects to brokers only if it is told to."""
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="PROFILE", help="Connection profile to use (see `ottla profile --help`)."),
]
ProjectBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        help="Brokers to connect to, instead of those in pipeline.toml; separate several with commas.",
        show_default="OTTLA_BOOTSTRAP, OTTLA_PROFILE, or pipeline.toml",
    ),
]
CommandConfig = Annotated[
    str | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="File with Kafka's client properties, such as security.protocol and sasl.jaas.config.",
        show_default="the profile's command.config",
    ),
]
"""Every command with `--bootstrap` or `--url` has it: `command_config.py` adds it and returns its value."""
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
        help="Replicas that must acknowledge a batch: all in-sync replicas, the leader (1), or none (0).",
    ),
]


class UsageError(typer.BadParameter):
    """Options that do not fit together, or one that is missing; its message is printed as it is."""

    def format_message(self) -> str:
        """The message, without Typer's prefix."""
        return self.message


_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}


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
    """Values out of a known list, repeated or separated by commas, in any case; each as it is known, once."""
    return list(
        dict.fromkeys(parse_choice(part.strip(), known, option) for each in words or () for part in each.split(","))
    )


def parse_choice(word: str, known: Sequence[str], option: str) -> str:
    """One value out of a known list, in any case; as it is known."""
    by_lower = {each.lower(): each for each in known}
    if word.lower() not in by_lower:
        raise typer.BadParameter(f"{word!r} is not one of {', '.join(known)}", param_hint=option)
    return by_lower[word.lower()]


def parse_acks(text: str) -> int:
    """The number of acknowledgements in a Produce request."""
    if text not in _ACKS:
        raise typer.BadParameter(f"{text!r} is not one of all, 1, 0", param_hint="--acks")
    return _ACKS[text]


def parse_codec(text: str) -> "Codec":
    """The codec of `--compression`."""
    from ottla.records.layout import Codec

    return Codec[parse_choice(text, list(Codec.__members__), "--compression")]


def parse_size(text: str, option: str) -> int:
    """Bytes, with k, m or g for powers of 1024, as in 16k."""
    try:
        return size_of(text)
    except BadSizeError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
