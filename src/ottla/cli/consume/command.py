"""`ottla consume`: records of topics to stdout or a file.

`consuming.py` reads positions, `group_consuming.py` reads in a group, `record_formats.py` makes the lines.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ottla.cli.consume.record_formats import BadTemplateError, Field, LineStyle, OutputFormat, TimeFormat, record_format
from ottla.cli.options import AsJson, Bootstrap, Profile, parse_choice
from ottla.cli.output import human_bytes, human_count, say
from ottla.cli.running import CONTEXT, application, examples, run_with_cluster

if TYPE_CHECKING:
    from ottla.cli.consume.positions import Position
    from ottla.cli.consume.record_formats import Format
    from ottla.client.network.cluster import Cluster

app = application("Read records of topics.")

_ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")
_FIELDS: Final = ", ".join(Field)


@app.command(
    "consume",
    context_settings=CONTEXT,
    epilog=examples(
        "ottla consume events",
        "ottla consume events --last 10 --print timestamp,key",
        "ottla consume events --from 1h --follow",
        "ottla consume orders payments --format json",
        "ottla consume --pattern 'orders-.*' --group billing",
        r"ottla consume events --format '%t %p %o %k %s\n'",
    ),
)
def consume(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Names of topics.", show_default=False)
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="REGEX", help="Read all topics whose whole name matches, instead of TOPIC."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Join this consumer group: begin where it stopped, and commit what was printed.",
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Where to begin: beginning, end, an offset, -N for N offsets before the end of each partition, a time"
            " such as 2024-05-01T12:00, or a duration such as 1h for one hour ago. With --group: where to begin"
            " without a committed offset, beginning or end.",
            show_default="beginning",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="POSITION", help="Where to stop, written like --from.", show_default="end"),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option("--last", metavar="N", min=1, help="Only the last N records of each topic, by timestamp."),
    ] = None,
    records_max: Annotated[
        int | None, typer.Option("--max", "-n", metavar="N", min=1, help="Stop after N records.")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition; may be repeated."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new records at the end, until interrupted.")
    ] = False,
    output_format: Annotated[
        str,
        typer.Option(
            "--format",
            "-F",
            metavar="FORMAT",
            help="text, json, hex, base64, raw (values without line ends), or a template: %t topic, %p partition,"
            r" %o offset, %T timestamp, %k key, %s value, %h headers, %K and %S lengths of key and value, \n, \t.",
        ),
    ] = OutputFormat.TEXT.value,
    fields: Annotated[
        str,
        typer.Option(
            "--print", metavar="FIELD,...", help=f"Fields to print, in this order, before the value: {_FIELDS}."
        ),
    ] = "",
    time_format: Annotated[
        str | None,
        typer.Option(
            "--time-format",
            metavar="epoch|iso|local",
            help="How to print timestamps: milliseconds since 1970, UTC, or local time.",
            show_default="local on a terminal, else epoch",
        ),
    ] = None,
    separator: Annotated[
        str, typer.Option("--separator", metavar="TEXT", help="Text between fields.", show_default="a tab")
    ] = "\t",
    null_value: Annotated[
        str, typer.Option("--null-value", metavar="TEXT", help="What to print for a null key or value.")
    ] = "null",
    isolation: Annotated[
        str,
        typer.Option(
            "--isolation-level",
            "--isolation",
            metavar="|".join(_ISOLATION_LEVELS),
            help="Whether to leave out records of open and aborted transactions.",
        ),
    ] = _ISOLATION_LEVELS[0],
    raw: Annotated[
        bool, typer.Option("--raw", help="Print control characters to a terminal as they are, not as escapes.")
    ] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of stdout.")
    ] = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Read records of topics, by default from the beginning to the present end.

    Records of one partition are printed in order; partitions are merged as they arrive.
    """
    if bool(topics) is (pattern is not None):
        raise typer.BadParameter("pass either topics or --pattern")
    if pattern is not None:
        _check_pattern(pattern)
    if follow and until:
        raise typer.BadParameter("--follow has no end; leave out --until")
    if group is not None and (last or until or partition):
        raise typer.BadParameter("--group cannot be combined with --last, --until or --partition")
    if group is not None and from_ not in (None, "beginning", "end"):
        raise typer.BadParameter("with --group, only beginning or end", param_hint="--from")
    level = parse_choice(isolation, _ISOLATION_LEVELS, "--isolation-level")
    start, end = _position(from_ or "beginning", "--from"), _position(until or "end", "--until")
    write = _format(
        OutputFormat.JSON if as_json else output_format,
        fields,
        time_format,
        separator,
        null_value,
        is_terminal=output is None and sys.stdout.isatty(),
        raw=raw,
    )

    async def work(cluster: "Cluster") -> None:
        from ottla.cli.consume.by_position import Consuming
        from ottla.cli.consume.in_group import GroupConsuming
        from ottla.cli.consume.record_sink import RecordSink
        from ottla.client.consumer.options import ISOLATION_LEVELS

        names = await _topics(cluster, topics or [], pattern)
        if group is None:
            consuming = Consuming(cluster, isolation_level=ISOLATION_LEVELS[level])
            bounds = await consuming.bounds(names, partition, start, end)
        with RecordSink(output, write, records_max=records_max) as sink, _explaining_corruption():
            if group is not None:
                member = GroupConsuming(
                    cluster,
                    group,
                    topics=topics or [],
                    pattern=pattern,
                    auto_offset_reset="latest" if from_ == "end" else "earliest",
                    isolation_level=_isolation(level),
                )
                await member.run(sink, follow=follow)
            elif last is not None:
                await consuming.run_last(bounds, sink, last=last, follow=follow)
            else:
                await consuming.run(bounds, sink, follow=follow)
        if output is None and sink.records == 0 and sys.stderr.isatty():
            say(f"no records found in {', '.join(names)}")
        if output is not None:
            say(f"wrote {human_count(sink.records, 'record')}, {human_bytes(sink.bytes)} to {output}")

    run_with_cluster(bootstrap, profile, work, in_bulk=True)


@contextmanager
def _explaining_corruption() -> Iterator[None]:
    """Says how to go on behind a corrupt batch."""
    from ottla.client.errors import CorruptLogError

    try:
        yield
    except CorruptLogError as error:
        topic, partition = error.partition
        advice = (
            "`ottla cluster health` shows the next readable offset; to skip the batch: ottla consume"
            f" {topic} --partition {partition} --from OFFSET"
        )
        raise CorruptLogError(error.partition, error.offset, advice) from error


def _isolation(level: str) -> Literal["read_committed", "read_uncommitted"]:
    return "read_committed" if level == "read_committed" else "read_uncommitted"


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise typer.BadParameter(f"not a valid regular expression: {error}", param_hint="--pattern") from None


async def _topics(cluster: "Cluster", named: list[str], pattern: str | None) -> list[str]:
    """The topics that are meant, each once. Raises what the broker says about one that does not exist."""
    from ottla.model.errors import InvalidRequestError

    if pattern is None:
        for name in named:
            await cluster.topic(name)
        return list(dict.fromkeys(named))
    view = await cluster.refresh()
    found = [name for name in sorted(view.topics) if re.fullmatch(pattern, name) and not view.topics[name].is_internal]
    if not found:
        raise InvalidRequestError(f"no topic matches {pattern!r}; `ottla topics list` shows all topics")
    return found


def _position(text: str, option: str) -> "Position":
    import time

    from ottla.cli.consume.positions import BadPositionError, parse_position

    try:
        return parse_position(text, time.time_ns() // 1_000_000)
    except BadPositionError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _format(
    output_format: str,
    fields: str,
    time_format: str | None,
    separator: str,
    null_value: str,
    *,
    is_terminal: bool,
    raw: bool,
) -> "Format":
    if output_format == OutputFormat.JSON and time_format not in (None, TimeFormat.EPOCH):
        raise typer.BadParameter("timestamps in JSON are always epoch", param_hint="--time-format")
    default = TimeFormat.LOCAL if is_terminal else TimeFormat.EPOCH
    chosen = parse_choice(time_format or default, list(TimeFormat), "--time-format")
    style = LineStyle(
        fields=_fields(fields),
        separator=separator.replace("\\t", "\t").encode("utf-8", "surrogateescape"),
        null_mark=null_value.encode("utf-8", "surrogateescape"),
        time_format=TimeFormat(chosen),
        is_escaped=is_terminal and not raw,
    )
    try:
        return record_format(output_format, style)
    except BadTemplateError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from None


def _fields(text: str) -> tuple[Field, ...]:
    words = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(dict.fromkeys(Field(parse_choice(word, list(Field), "--print")) for word in words))
