"""`ottla produce`: lines of files or of a pipe as records into a topic. `record_lines.py` parses the lines."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import (
    Acks,
    AsJson,
    Bootstrap,
    Compression,
    Profile,
    TopicName,
    parse_acks,
    parse_choice,
    parse_size,
)
from ottla.cli.output import human_bytes, human_count, print_json, say
from ottla.cli.produce.record_lines import InputFormat, LineShape, parse_headers
from ottla.cli.running import CONTEXT, application, examples, run_with_cluster

if TYPE_CHECKING:
    from ottla.client.network.cluster import Cluster

app = application("Write records from files or a pipe to a topic.")


@app.command(
    "produce",
    context_settings=CONTEXT,
    epilog=examples(
        "echo hello | ottla produce events",
        "ottla produce users --file users.txt --key-separator :",
        'echo \'{"key": "k", "value": "v", "headers": {"a": "1"}}\' | ottla produce events --format json',
    ),
)
def produce(
    topic: TopicName,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Files to read; - for stdin.", show_default="stdin")
    ] = None,
    more_files: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="FILE", help="File to read, like the argument FILE; may be repeated."),
    ] = None,
    input_format: Annotated[
        InputFormat,
        typer.Option(
            "--format",
            "-F",
            metavar="text|json|hex|base64",
            help="What a line is: a value, optionally with key and headers, as text, hex or base64; or a JSON object"
            " with key, value, headers, timestamp and partition.",
        ),
    ] = InputFormat.TEXT,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="Text between key and value; a line must have it."),
    ] = None,
    header_separator: Annotated[
        str | None,
        typer.Option(
            "--header-separator", metavar="TEXT", help="Text after the headers (a=1,b=2) at the beginning of a line."
        ),
    ] = None,
    headers: Annotated[str, typer.Option("--headers", metavar="A=1,B=2", help="Headers of every record.")] = "",
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="TEXT", help="Key of records without their own.")
    ] = None,
    null_value: Annotated[
        str | None, typer.Option("--null-value", metavar="TEXT", help="Key or value that means null.")
    ] = None,
    compression: Compression = "none",
    acks: Acks = "all",
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Write to this partition.")
    ] = None,
    batch_size: Annotated[
        str, typer.Option("--batch-size", metavar="BYTES", help="Size at which a batch is sent, such as 64k.")
    ] = "512k",
    timeout_ms: Annotated[
        int, typer.Option("--timeout-ms", metavar="MS", min=1, help="How long to try to deliver a batch.")
    ] = 30_000,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Write records to a topic, one per line, from files or a pipe.

    On a terminal, a bar shows the progress of files.
    """
    from ottla.cli.produce.sending import Producing
    from ottla.records.layout import Codec

    codec = Codec[parse_choice(compression, list(Codec.__members__), "--compression")]
    acks_number = parse_acks(acks)
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
            codec=codec,
            partition=partition,
            batch_bytes=batch_bytes,
            acks=acks_number,
            timeout_ms=timeout_ms,
        )
        sources = [*(files or ()), *(more_files or ())] or ["-"]
        if "-" in sources and sys.stdin.isatty() and sys.stderr.isatty():
            say("type one record per line; Ctrl-D ends the input")
        await producing.run(sources)
        totals = producing.totals()
        if as_json:
            print_json({"topic": topic, **totals})
        elif sys.stderr.isatty():
            size, seconds = human_bytes(totals["bytes"]), totals["seconds"]
            say(f"sent {human_count(totals['records'], 'record')}, {size} to {topic} in {seconds:.2f} s")

    run_with_cluster(bootstrap, profile, work, in_bulk=True, request_timeout_ms=timeout_ms)


def _bytes(text: str) -> bytes:
    """The bytes that the shell passed, even if they are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _separator(text: str | None, option: str) -> bytes | None:
    """With \\t and \\n for tab and newline."""
    if text is None:
        return None
    if not text:
        raise typer.BadParameter("must not be empty", param_hint=option)
    return _bytes(text.replace("\\t", "\t").replace("\\n", "\n"))
