"""The options that the commands of `ottla registry` share."""

from typing import Annotated

import typer

Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The registry.", show_default="OTTLA_REGISTRY, or http://localhost:8081"),
]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Name of the subject.", show_default=False)]
Version = Annotated[str, typer.Option("--version", "-v", metavar="N|latest", help="Version of the subject.")]
SchemaType = Annotated[
    str | None,
    typer.Option(
        "--type",
        "-t",
        metavar="avro|json|protobuf",
        help="Language of the schema.",
        show_default="from the file name: .avsc, .json, .proto",
    ),
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        "-r",
        metavar="NAME=SUBJECT:VERSION",
        help="A schema that this one refers to; may be repeated.",
    ),
]
SchemaFile = Annotated[
    str, typer.Argument(metavar="FILE", help="File with the schema; - reads standard input.", show_default=False)
]
