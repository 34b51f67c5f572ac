"""The options of `ottla produce`, as annotated types."""

from typing import Annotated

import typer

from ottla.cli.produce.record_lines import InputFormat

Files = Annotated[
    list[str] | None, typer.Argument(metavar="FILE", help="Files to read; - for stdin.", show_default="stdin")
]
MoreFiles = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="FILE", help="File to read, like the argument FILE; may be repeated."),
]
Format = Annotated[
    InputFormat,
    typer.Option(
        "--format",
        "-F",
        metavar="text|json|hex|base64",
        help="What a line is: a value, optionally with key and headers, as text, hex or base64; or a JSON object"
        " with key, value, headers, timestamp and partition.",
    ),
]
KeySeparator = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", metavar="TEXT", help="Text between key and value; every line must have it."),
]
HeaderSeparator = Annotated[
    str | None,
    typer.Option(
        "--header-separator",
        metavar="TEXT",
        help="Text that ends the headers at the beginning of a line; the headers are written as in --headers.",
    ),
]
Headers = Annotated[
    str,
    typer.Option(
        "--headers",
        metavar="NAME=VALUE,...",
        help="Headers of every record; NAME= has an empty value, NAME alone a null value.",
    ),
]
Key = Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="Key for records that have none.")]
NullValue = Annotated[str | None, typer.Option("--null-value", metavar="TEXT", help="Key or value that means null.")]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Write to this partition.")
]
BatchSize = Annotated[
    str, typer.Option("--batch-size", metavar="BYTES", help="Size at which a batch is sent, such as 64k.")
]
TimeoutMs = Annotated[
    int, typer.Option("--timeout-ms", metavar="MS", min=1, help="How long to try to deliver a batch.")
]
