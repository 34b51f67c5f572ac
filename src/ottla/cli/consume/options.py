"""The options of `ottla consume`, as annotated types."""

from typing import Annotated, Final

import typer

from ottla.cli.consume.record_formats import Field

ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")

Topics = Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="Names of topics.", show_default=False)]
Pattern = Annotated[
    str | None,
    typer.Option("--pattern", metavar="REGEX", help="Read all topics whose whole name matches, instead of TOPIC."),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        help="Join this consumer group: begin at its committed offsets, and commit what was printed.",
    ),
]
Share = Annotated[
    str | None,
    typer.Option(
        "--share",
        metavar="GROUP",
        help="Join this share group: read records together with its other members, and accept what was printed.",
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="POSITION",
        help="Where to begin: beginning, end, an offset, -N for N offsets before the end of each partition, a time"
        " such as 2024-05-01T12:00, or a duration such as 1h for one hour ago. With --group: where to begin"
        " without a committed offset, beginning or end.",
        show_default="beginning",
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="POSITION", help="Where to stop, written like --from.", show_default="end"),
]
Last = Annotated[
    int | None,
    typer.Option("--last", metavar="N", min=1, help="Only the last N records of each topic, by timestamp."),
]
RecordsMax = Annotated[int | None, typer.Option("--max", "-n", metavar="N", min=1, help="Stop after N records.")]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition; may be repeated."),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for new records at the end, until interrupted.")]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        "-F",
        metavar="FORMAT",
        help="text, json, hex, base64, raw (values without line ends), or a template: %t topic, %p partition,"
        r" %o offset, %T timestamp, %k key, %s value, %h headers, %K and %S lengths of key and value, \n, \t.",
    ),
]
Fields = Annotated[
    str,
    typer.Option(
        "--print", metavar="FIELD,...", help=f"Fields to print, in this order, before the value: {', '.join(Field)}."
    ),
]
TimeFormatName = Annotated[
    str | None,
    typer.Option(
        "--time-format",
        metavar="epoch|iso|local",
        help="How to print timestamps: milliseconds since 1970, UTC, or local time.",
        show_default="local on a terminal, else epoch",
    ),
]
Separator = Annotated[
    str, typer.Option("--separator", metavar="TEXT", help="Text between fields.", show_default="a tab")
]
NullValue = Annotated[str, typer.Option("--null-value", metavar="TEXT", help="What to print for a null key or value.")]
Isolation = Annotated[
    str,
    typer.Option(
        "--isolation-level",
        "--isolation",
        metavar="|".join(ISOLATION_LEVELS),
        help="Whether to leave out records of open and aborted transactions.",
    ),
]
Raw = Annotated[bool, typer.Option("--raw", help="Print control characters to a terminal as they are, not as escapes.")]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of stdout.")
]
