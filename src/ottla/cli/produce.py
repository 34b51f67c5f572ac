"""`ottla produce`: lines of files or of a pipe, as records, into a topic. `record_lines.py` says what a line means."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, TopicName, parse_size
from ottla.cli.output import human_bytes, human_count, print_json, say
from ottla.cli.record_lines import InputFormat, LineShape, parse_headers
from ottla.cli.running import CONTEXT, application, examples, run_with_cluster

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

app = application("Write records from a file or a pipe into a topic.")

_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}


@app.command(
    "produce",
    context_settings=CONTEXT,
    epilog=examples(
        "echo hello | ottla produce events",
        "ottla produce users users.txt --key-separator :",
        'echo \'{"key": "k", "value": "v", "headers": {"a": "1"}}\' | ottla produce events --format json',
    ),
)
def produce(
    topic: TopicName,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Files to read, - for stdin. [default: -]")
    ] = None,
    input_format: Annotated[
        InputFormat,
        typer.Option("--format", "-F", help="How a line stands for a record; a JSON line has key, value, headers, …"),
    ] = InputFormat.TEXT,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="What stands between key and value.")
    ] = None,
    header_separator: Annotated[
        str | None, typer.Option(help="What stands after the headers (a=1,b=2) at the beginning of a line.")
    ] = None,
    headers: Annotated[str, typer.Option(metavar="A=1,B=2", help="Headers for every record.")] = "",
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record without its own.")] = None,
    null_value: Annotated[str | None, typer.Option(metavar="MARK", help="What stands for null.")] = None,
    compression: Annotated[str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    acks: Annotated[str, typer.Option(help="Who must have a record: all, 1 (the leader) or 0 (nobody).")] = "all",
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only to this partition.")] = None,
    batch_size: Annotated[str, typer.Option(help="Bytes to gather before sending, as in 64k.")] = "512k",
    timeout_ms: Annotated[int, typer.Option(min=1, help="How long to try to deliver a batch.")] = 30_000,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Write records, one a line, from files or a pipe into a topic."""
    from ottla.cli.producing import Producing
    from ottla.records.layout import Codec

    if compression.upper() not in Codec.__members__:
        raise typer.BadParameter(
            f"{compression!r} is none of none, gzip, snappy, lz4, zstd", param_hint="--compression"
        )
    if acks not in _ACKS:
        raise typer.BadParameter(f"{acks!r} is none of all, 1, 0", param_hint="--acks")
    shape = LineShape(
        format=input_format,
        key_separator=_separator(key_separator, "--key-separator"),
        header_separator=_separator(header_separator, "--header-separator"),
        null_mark=None if null_value is None else _bytes(null_value),
        key=None if key is None else _bytes(key),
        headers=parse_headers(headers),
    )
    batch_bytes = parse_size(batch_size, "--batch-size")

    async def work(cluster: "Cluster") -> None:
        producing = Producing(
            cluster,
            await cluster.topic(topic, auto_create=True),
            shape=shape,
            codec=Codec[compression.upper()],
            partition=partition,
            batch_bytes=batch_bytes,
            acks=_ACKS[acks],
            timeout_ms=timeout_ms,
        )
        await producing.run(files or ["-"])
        totals = producing.totals()
        if as_json:
            print_json({"topic": topic, **totals})
        elif sys.stderr.isatty() or totals["records"] > 1:
            size, seconds = human_bytes(totals["bytes"]), totals["seconds"]
            say(f"{human_count(totals['records'], 'record')}, {size} to {topic} in {seconds:.2f} s")

    run_with_cluster(bootstrap, work, in_bulk=True, request_timeout_ms=timeout_ms)


def _bytes(text: str) -> bytes:
    """As the shell gave it, even where that is not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _separator(text: str | None, option: str) -> bytes | None:
    """With \\t and \\n as people write them."""
    if text is None:
        return None
    if not text:
        raise typer.BadParameter("it must not be empty", param_hint=option)
    return _bytes(text.replace("\\t", "\t").replace("\\n", "\n"))
