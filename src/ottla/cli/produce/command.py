"""`ottla produce`: lines of files or of a pipe as records into a topic. `record_lines.py` parses the lines."""

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import typer

from ottla.cli.command_runner import CONTEXT, application, examples, run_with_cluster
from ottla.cli.options import (
    Acks,
    AsJson,
    Bootstrap,
    Compression,
    Profile,
    TopicName,
    UsageError,
    parse_acks,
    parse_codec,
    parse_size,
)
from ottla.cli.output import human_bytes, human_count, print_json, say
from ottla.cli.produce import options
from ottla.cli.produce.record_lines import BadLineError, Headers, InputFormat, LineShape, parse_headers
from ottla.cli.schemas.options import (
    IdPlace,
    KeyFormat,
    KeyMessage,
    KeySchema,
    SchemaIdPlace,
    SchemaRegistry,
    ValueFormat,
    ValueMessage,
    ValueSchema,
)

if TYPE_CHECKING:
    from ottla.cli.produce.sending import Encode
    from ottla.client.network.cluster import Cluster

app = application("Write records from files or a pipe to a topic.")


@app.command(
    "produce",
    context_settings=CONTEXT,
    epilog=examples(
        "echo hello | ottla produce events",
        "ottla produce users --file users.txt --key-separator :",
        'echo \'{"key": "k", "value": "v", "headers": {"a": "1"}}\' | ottla produce events --format json',
        "echo '{\"id\": 1}' | ottla produce orders --value-schema order.avsc",
        "echo '7|{\"id\": 7}' | ottla produce orders --value-schema latest --key-separator '|'",
    ),
)
def produce(
    topic: TopicName,
    files: options.Files = None,
    more_files: options.MoreFiles = None,
    input_format: options.Format = InputFormat.TEXT,
    key_separator: options.KeySeparator = None,
    header_separator: options.HeaderSeparator = None,
    headers: options.Headers = "",
    key: options.Key = None,
    null_value: options.NullValue = None,
    compression: Compression = "none",
    acks: Acks = "all",
    partition: options.Partition = None,
    batch_size: options.BatchSize = "512k",
    timeout_ms: options.TimeoutMs = 30_000,
    value_schema: ValueSchema = None,
    key_schema: KeySchema = None,
    value_format: ValueFormat = None,
    key_format: KeyFormat = None,
    value_message: ValueMessage = None,
    key_message: KeyMessage = None,
    schema_id: SchemaIdPlace = IdPlace.PREFIX,
    schema_registry: SchemaRegistry = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Write records to a topic, one per line, from files or a pipe.

    On a terminal, a bar shows the progress of files.
    """
    settings: dict[str, Any] = {
        "codec": parse_codec(compression),
        "acks": parse_acks(acks),
        "batch_bytes": parse_size(batch_size, "--batch-size"),
        "partition": partition,
        "timeout_ms": timeout_ms,
    }
    has_key_schema = bool(key_schema or key_format or key_message)
    shape = LineShape(
        format=input_format,
        key_separator=_separator(key_separator, "--key-separator"),
        header_separator=_separator(header_separator, "--header-separator"),
        null_mark=None if null_value is None else _bytes(null_value),
        key=None if key is None else _bytes(key),
        headers=_headers(headers),
        is_json_key=has_key_schema,
        is_json_value=bool(value_schema or value_format or value_message or (schema_registry and not has_key_schema)),
    )
    id_place: _IdPlace = "header" if schema_id is IdPlace.HEADER else "prefix"
    schemas = _Schemas(
        key=(key_schema, key_format, key_message, id_place),
        value=(value_schema, value_format, value_message, id_place),
        registry=schema_registry,
        connection=(bootstrap, profile),
    )
    if shape.is_json_key and key_separator is None and key is None and input_format is not InputFormat.JSON:
        raise UsageError("--key-schema needs keys: pass --key-separator, --key, or --format json")
    if (shape.is_json_key or shape.is_json_value) and input_format not in (InputFormat.TEXT, InputFormat.JSON):
        raise UsageError("with a schema, --format is text or json: keys and values are JSON")
    sources = [*(files or ()), *(more_files or ())] or ["-"]

    async def work(cluster: "Cluster") -> None:
        from ottla.cli.produce.sending import Producing

        view = await cluster.topic(topic, auto_create=True)
        encode = None
        if shape.is_json_key or shape.is_json_value:
            encode = await asyncio.to_thread(_encoder, topic, shape, schemas)
        producing = Producing(cluster, view, shape=shape, encode=encode, **settings)
        if "-" in sources and sys.stdin.isatty() and sys.stderr.isatty():
            say("type one record per line; Ctrl-D ends the input")
        await producing.run(sources)
        _print_totals(topic, producing.totals(), as_json=as_json)

    run_with_cluster(bootstrap, profile, work, in_bulk=True, request_timeout_ms=timeout_ms)


_IdPlace = Literal["prefix", "header"]


class _Schemas(NamedTuple):
    """What was asked for: schema, format, message and place of the id, of keys and values."""

    key: tuple[str | None, str | None, str | None, _IdPlace]
    value: tuple[str | None, str | None, str | None, _IdPlace]
    registry: str | None
    connection: tuple[str | None, str | None]
    """`--bootstrap` and `--profile`, which say how to log in."""


def _encoder(topic: str, shape: LineShape, schemas: _Schemas) -> "Encode":
    """Encodes records by their schemas; asks the registry for them."""
    from ottla.cli.schemas.connection import open_registry

    with open_registry(schemas.registry, *schemas.connection) as registry:
        from ottla.cli.schemas.encoding import SchemaChoice, chosen_encoder, record_encoder

        key, value = (
            chosen_encoder(registry, topic, SchemaChoice(*choice), is_key=is_key) if is_used else None
            for is_key, is_used, choice in (
                (True, shape.is_json_key, schemas.key),
                (False, shape.is_json_value, schemas.value),
            )
        )
        return record_encoder(key, value)


def _print_totals(topic: str, totals: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({"topic": topic, **totals})
    elif sys.stderr.isatty():
        size, seconds = human_bytes(totals["bytes"]), totals["seconds"]
        say(f"sent {human_count(totals['records'], 'record')}, {size} to {topic} in {seconds:.2f} s")


def _headers(text: str) -> Headers:
    try:
        return parse_headers(text)
    except BadLineError as error:
        raise typer.BadParameter(str(error), param_hint="--headers") from None


def _bytes(text: str) -> bytes:
    """The bytes that the shell passed, even if they are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _separator(text: str | None, option: str) -> bytes | None:
    """A separator, with \\t and \\n for tab and newline."""
    if text is None:
        return None
    if not text:
        raise typer.BadParameter("must not be empty", param_hint=option)
    return _bytes(text.replace("\\t", "\t").replace("\\n", "\n"))
