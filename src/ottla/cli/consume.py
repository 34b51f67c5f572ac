"""`ottla consume`: records of a topic to stdout or a file. `consuming.py` does it, `positions.py` reads the places."""

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, TopicName
from ottla.cli.record_formats import Field, OutputFormat, record_format
from ottla.cli.running import CONTEXT, application, examples, run_with_cluster

if TYPE_CHECKING:
    from ottla.cli.positions import Position
    from ottla.client.cluster import Cluster

app = application("Read records of a topic.")


@app.command(
    "consume",
    context_settings=CONTEXT,
    epilog=examples(
        "ottla consume events",
        "ottla consume events --from 1h --print timestamp,key",
        "ottla consume events --last 10 --format json",
        "ottla consume events --follow --from end",
    ),
)
def consume(
    topic: TopicName,
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="beginning, end, an offset, -N for the last N of each partition, a time, or 1h ago.",
        ),
    ] = "beginning",
    last: Annotated[int | None, typer.Option(min=1, help="Only the N youngest records of the topic, by time.")] = None,
    until: Annotated[
        str, typer.Option(metavar="POSITION", help="Where to stop, in the words of --from.  [default: end]")
    ] = "",
    records_max: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after so many records.")] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")] = False,
    output_format: Annotated[OutputFormat, typer.Option("--format", "-F", help="How to print.")] = OutputFormat.TEXT,
    fields: Annotated[
        str,
        typer.Option("--print", metavar="FIELD,…", help="Before the value: key,headers,timestamp,offset,partition."),
    ] = "",
    separator: Annotated[str, typer.Option(help="What stands between fields.  [default: a tab]")] = "\t",
    null_value: Annotated[str, typer.Option(metavar="MARK", help="What is printed for null.")] = "null",
    isolation: Annotated[
        str, typer.Option(help="read_uncommitted, or read_committed to leave out aborted and open transactions.")
    ] = "read_uncommitted",
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write here.")] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Read records of a topic, from its beginning to its present end unless you say otherwise."""
    if follow and (until or last):
        raise typer.BadParameter("--follow does not end: it goes with neither --until nor --last")
    if isolation not in ("read_uncommitted", "read_committed"):
        raise typer.BadParameter(
            f"{isolation!r} is neither read_uncommitted nor read_committed", param_hint="--isolation"
        )
    start, end = _position(f"-{last}" if last else from_, "--from"), _position(until or "end", "--until")
    write = record_format(
        OutputFormat.JSON if as_json else output_format,
        _fields(fields),
        separator.replace("\\t", "\t").encode("utf-8", "surrogateescape"),
        null_value.encode("utf-8", "surrogateescape"),
    )

    async def work(cluster: "Cluster") -> None:
        from ottla.cli.consuming import Consuming

        consuming = Consuming(
            cluster, topic, write=write, is_committed=isolation == "read_committed", records_max=records_max
        )
        ranges = await consuming.ranges(partition, start, None if follow else end)
        await consuming.run(ranges, output=output, last=last, at_once=follow)

    run_with_cluster(bootstrap, work, in_bulk=True)


def _position(text: str, option: str) -> "Position":
    import time

    from ottla.cli.positions import BadPositionError, parse_position

    try:
        return parse_position(text, time.time_ns() // 1_000_000)
    except BadPositionError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _fields(text: str) -> set[Field]:
    found = {part.strip() for part in text.split(",") if part.strip()} - {"value"}
    unknown = sorted(found - {field.value for field in Field})
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(Field)}", param_hint="--print")
    return {Field(part) for part in found}
