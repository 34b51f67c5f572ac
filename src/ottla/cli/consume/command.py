"""`ottla consume`: records of topics to stdout or a file.

`by_position.py` reads positions, `in_group.py` and `in_share_group.py` read in a group, `record_formats.py` makes the
lines.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import typer

from ottla.cli.command_runner import CONTEXT, application, examples, run_with_cluster
from ottla.cli.consume import options
from ottla.cli.consume.record_formats import BadTemplateError, Field, LineStyle, OutputFormat, TimeFormat, record_format
from ottla.cli.options import AsJson, Bootstrap, Profile, UsageError, parse_choice
from ottla.cli.output import human_bytes, human_count, say
from ottla.cli.profile.store import chosen_connection
from ottla.cli.schemas.options import Decode, SchemaRegistry

if TYPE_CHECKING:
    from ottla.cli.consume.record_formats import Format
    from ottla.cli.consume.record_sink import Decode as DecodeRecords
    from ottla.cli.consume.record_sink import RecordSink
    from ottla.client.network.cluster import Cluster
    from ottla.operations.positions import Position

app = application("Read records of topics.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selection:
    """Which records to read, from which topics, and whether in a group."""

    topics: list[str]
    pattern: str | None
    group: str | None
    share: str | None
    start: "Position"
    end: "Position"
    begins_at_end: bool
    last: int | None
    partitions: list[int] | None
    follow: bool
    isolation_level: Literal["read_committed", "read_uncommitted"]
    client_options: Callable[[], Mapping[str, Any]]
    """The security options of a client of its own."""


@app.command(
    "consume",
    context_settings=CONTEXT,
    epilog=examples(
        "ottla consume events",
        "ottla consume events --last 10 --print timestamp,key",
        "ottla consume events --from 1h --follow",
        "ottla consume orders payments --format json",
        "ottla consume orders --schema-registry http://localhost:8081",
        "ottla consume --pattern 'orders-.*' --group billing",
        "ottla consume jobs --share workers --follow",
        r"ottla consume events --format '%t %p %o %k %s\n'",
    ),
)
def consume(
    topics: options.Topics = None,
    pattern: options.Pattern = None,
    group: options.Group = None,
    share: options.Share = None,
    from_: options.From = None,
    until: options.Until = None,
    last: options.Last = None,
    records_max: options.RecordsMax = None,
    partition: options.Partitions = None,
    follow: options.Follow = False,
    output_format: options.Format = OutputFormat.TEXT.value,
    fields: options.Fields = "",
    time_format: options.TimeFormatName = None,
    separator: options.Separator = "\t",
    null_value: options.NullValue = "null",
    isolation: options.Isolation = options.ISOLATION_LEVELS[0],
    raw: options.Raw = False,
    output: options.Output = None,
    decode: Decode = False,
    schema_registry: SchemaRegistry = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Read records of topics, by default from the beginning to the current end.

    Records of one partition are printed in order; partitions are merged as they arrive.
    """
    if follow and until:
        raise UsageError("--follow cannot be combined with --until")
    _check_topics(topics, pattern)
    if group is not None:
        _check_group(from_, has_bounds=bool(last or until or partition))
    if share is not None:
        _check_share(has_others=bool(group or from_ or last or until or partition or pattern))
    selection = _Selection(
        topics=topics or [],
        pattern=pattern,
        group=group,
        share=share,
        start=_position(from_ or "beginning", "--from"),
        end=_position(until or "end", "--until"),
        begins_at_end=from_ == "end",
        last=last,
        partitions=partition,
        follow=follow,
        isolation_level=_isolation(isolation),
        client_options=lambda: chosen_connection(bootstrap, profile).options,
    )
    is_terminal = output is None and sys.stdout.isatty()
    chosen_format = OutputFormat.JSON if as_json else output_format
    style = LineStyle(
        fields=_fields(fields),
        separator=separator.replace("\\t", "\t").encode("utf-8", "surrogateescape"),
        null_mark=null_value.encode("utf-8", "surrogateescape"),
        time_format=_time_format(time_format, chosen_format, is_terminal=is_terminal),
        is_escaped=is_terminal and not raw,
    )
    write = _format(chosen_format, style)

    async def work(cluster: "Cluster") -> None:
        if not decode and schema_registry is None:
            await _consume(cluster, selection, output, write, records_max)
            return
        from ottla.cli.schemas.connection import open_registry

        with open_registry(schema_registry, bootstrap, profile) as registry:
            from ottla.cli.schemas.decoding import SchemaDecoder

            decoder = SchemaDecoder(registry)
            try:
                await _consume(cluster, selection, output, write, records_max, decoder.decode)
            finally:
                decoder.report()

    run_with_cluster(bootstrap, profile, work, in_bulk=True)


async def _consume(
    cluster: "Cluster",
    selection: _Selection,
    output: str | None,
    write: "Format",
    records_max: int | None,
    decode: "DecodeRecords | None" = None,
) -> None:
    from ottla.cli.consume.record_sink import RecordSink

    names = await _topics(cluster, selection.topics, selection.pattern)
    with RecordSink(output, write, records_max=records_max, decode=decode) as sink, _explaining_corruption():
        if selection.share is not None:
            await _read_in_share_group(cluster, selection.share, selection, sink, records_max)
        elif selection.group is None:
            await _read_positions(cluster, names, selection, sink)
        else:
            await _read_in_group(cluster, selection.group, selection, sink)
    if output is not None:
        say(f"wrote {human_count(sink.records, 'record')}, {human_bytes(sink.bytes)} to {output}")
    elif sink.records == 0 and sys.stderr.isatty():
        say(f"no records found in {', '.join(names)}")


async def _read_positions(cluster: "Cluster", names: list[str], selection: _Selection, sink: "RecordSink") -> None:
    from ottla.cli.consume.by_position import Consuming
    from ottla.client.consumer.options import ISOLATION_LEVELS

    consuming = Consuming(cluster, isolation_level=ISOLATION_LEVELS[selection.isolation_level])
    bounds = await consuming.bounds(names, selection.partitions, selection.start, selection.end)
    if selection.last is not None:
        await consuming.run_last(bounds, sink, last=selection.last, follow=selection.follow)
    else:
        await consuming.run(bounds, sink, follow=selection.follow)


async def _read_in_group(cluster: "Cluster", group: str, selection: _Selection, sink: "RecordSink") -> None:
    from ottla.cli.consume.in_group import GroupConsuming

    member = GroupConsuming(
        cluster,
        group,
        topics=selection.topics,
        pattern=selection.pattern,
        auto_offset_reset="latest" if selection.begins_at_end else "earliest",
        isolation_level=selection.isolation_level,
        client_options=selection.client_options(),
    )
    await member.run(sink, follow=selection.follow)


async def _read_in_share_group(
    cluster: "Cluster", group: str, selection: _Selection, sink: "RecordSink", records_max: int | None
) -> None:
    from ottla.cli.consume.in_share_group import ShareGroupConsuming

    member = ShareGroupConsuming(
        cluster, group, topics=selection.topics, records_max=records_max, client_options=selection.client_options()
    )
    await member.run(sink, follow=selection.follow)


@contextmanager
def _explaining_corruption() -> Iterator[None]:
    """Says how to continue after a corrupt batch."""
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


# Options


def _check_topics(topics: list[str] | None, pattern: str | None) -> None:
    if bool(topics) is (pattern is not None):
        raise UsageError("pass either topics or --pattern")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise typer.BadParameter(f"not a valid regular expression: {error}", param_hint="--pattern") from None


def _check_group(from_: str | None, *, has_bounds: bool) -> None:
    if has_bounds:
        raise UsageError("--group cannot be combined with --last, --until or --partition")
    if from_ not in (None, "beginning", "end"):
        raise typer.BadParameter("with --group, only beginning or end", param_hint="--from")


def _check_share(*, has_others: bool) -> None:
    if has_others:
        raise UsageError(
            "--share cannot be combined with --group, --from, --until, --last, --partition or --pattern; the share"
            " group has its own position, which `ottla groups reset-offsets` sets"
        )


def _isolation(text: str) -> Literal["read_committed", "read_uncommitted"]:
    level = parse_choice(text, options.ISOLATION_LEVELS, "--isolation-level")
    return "read_committed" if level == "read_committed" else "read_uncommitted"


async def _topics(cluster: "Cluster", named: list[str], pattern: str | None) -> list[str]:
    """The topics to read, each once. Raises what the broker says about one that does not exist."""
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

    from ottla.operations.positions import BadPositionError, parse_position

    try:
        return parse_position(text, time.time_ns() // 1_000_000)
    except BadPositionError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _time_format(text: str | None, output_format: str, *, is_terminal: bool) -> TimeFormat:
    if output_format == OutputFormat.JSON and text not in (None, TimeFormat.EPOCH):
        raise typer.BadParameter("timestamps in JSON are always epoch", param_hint="--time-format")
    default = TimeFormat.LOCAL if is_terminal else TimeFormat.EPOCH
    return TimeFormat(parse_choice(text or default, list(TimeFormat), "--time-format"))


def _format(output_format: str, style: LineStyle) -> "Format":
    try:
        return record_format(output_format, style)
    except BadTemplateError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from None


def _fields(text: str) -> tuple[Field, ...]:
    words = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(dict.fromkeys(Field(parse_choice(word, list(Field), "--print")) for word in words))
