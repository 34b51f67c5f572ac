"""The options of `ottla groups`, as annotated types."""

from typing import Annotated, Final

import typer

STATES: Final = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)
TYPES: Final = ("classic", "consumer", "share", "streams")

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False)]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state", metavar="STATE,...", help=f"Only groups in these states: {', '.join(STATES)}; may be repeated."
    ),
]
Types = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="|".join(TYPES), help="Only groups of this type; may be repeated."),
]

# reset-offsets

AllTopics = Annotated[bool, typer.Option("--all-topics", help="All topics that the group has offsets for.")]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the first offset of each partition.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="To the end of each partition.")]
ToCurrent = Annotated[bool, typer.Option("--to-current", help="To the committed offset; to the end if there is none.")]
ToOffset = Annotated[int | None, typer.Option("--to-offset", metavar="OFFSET", help="To this offset.", min=0)]
ShiftBy = Annotated[
    int | None, typer.Option("--shift-by", metavar="N", help="Forward by N offsets, or back if negative.")
]
ToDatetime = Annotated[
    str | None,
    typer.Option(
        "--to-datetime",
        metavar="TIME",
        help="To the first record at or after an ISO 8601 time; UTC without a zone.",
    ),
]
ByDuration = Annotated[
    str | None,
    typer.Option("--by-duration", metavar="DURATION", help="To the first record of the last 90m, 2d or PT1H30M."),
]
FromFile = Annotated[
    str | None,
    typer.Option("--from-file", metavar="FILE", help="To the offsets in lines of topic,partition,offset; - for stdin."),
]
FromGroup = Annotated[
    str | None, typer.Option("--from-group", metavar="GROUP", help="To the offsets of another group.")
]
Execute = Annotated[bool, typer.Option("--execute", help="Reset the offsets; without it, the plan is only shown.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the plan (the default).")]
Export = Annotated[bool, typer.Option("--export", help="Print the plan as CSV, for --from-file.")]
