"""The options of commands that use schemas of a registry, as annotated types."""

from enum import StrEnum
from typing import Annotated

import typer

SchemaRegistry = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        metavar="URL",
        help="The schema registry; separate several instances with commas.",
        show_default="OTTLA_REGISTRY, or http://localhost:8081",
    ),
]
Decode = Annotated[
    bool,
    typer.Option(
        "--decode",
        help="Print keys and values as JSON, decoded by the schema whose id they have: Avro, JSON Schema or Protobuf."
        " --schema-registry implies it.",
    ),
]
_SCHEMA_HELP = (
    "Each {part} is JSON and is encoded by this schema: a file, which is registered under the subject TOPIC-{part};"
    " latest, the subject's latest version; or the id of a schema."
)
_FORMAT_HELP = "Language of the schema of each {part}; alone, it means the latest version of TOPIC-{part}."
ValueSchema = Annotated[
    str | None, typer.Option("--value-schema", metavar="FILE|latest|ID", help=_SCHEMA_HELP.format(part="value"))
]
KeySchema = Annotated[
    str | None, typer.Option("--key-schema", metavar="FILE|latest|ID", help=_SCHEMA_HELP.format(part="key"))
]
ValueFormat = Annotated[
    str | None,
    typer.Option("--value-format", metavar="avro|json|protobuf", help=_FORMAT_HELP.format(part="value")),
]
KeyFormat = Annotated[
    str | None, typer.Option("--key-format", metavar="avro|json|protobuf", help=_FORMAT_HELP.format(part="key"))
]
_MESSAGE_HELP = "Which message of a Protobuf schema each {part} is; by default the first of the file."
ValueMessage = Annotated[
    str | None, typer.Option("--value-message", metavar="NAME", help=_MESSAGE_HELP.format(part="value"))
]
KeyMessage = Annotated[str | None, typer.Option("--key-message", metavar="NAME", help=_MESSAGE_HELP.format(part="key"))]


class IdPlace(StrEnum):
    """Where a record has the id of its schema."""

    PREFIX = "prefix"
    HEADER = "header"


SchemaIdPlace = Annotated[
    IdPlace,
    typer.Option(
        "--schema-id",
        metavar="prefix|header",
        help="Where schema ids are written: before the bytes, or as GUIDs in headers (__value_schema_id).",
    ),
]
