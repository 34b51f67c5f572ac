"""Schemas in files: their language, and the body of a request."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import typer

from ottla.model.errors import MisuseError

TYPES: Final = ("AVRO", "JSON", "PROTOBUF")
_BY_SUFFIX: Final = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}


def read_schema(file: str) -> str:
    """The text of a file, or of standard input for `-`."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise MisuseError(f"{file} is not UTF-8: {error}") from None


def schema_type(file: str, given: str | None) -> str:
    """The language of a schema: as given, else by the name of its file."""
    if given is not None:
        if given.upper() not in TYPES:
            raise typer.BadParameter(f"{given!r} is not one of avro, json, protobuf", param_hint="--type")
        return given.upper()
    found = _BY_SUFFIX.get(Path(file).suffix.lower())
    if found is None:
        raise typer.BadParameter(f"unknown language of {file}; pass avro, json or protobuf", param_hint="--type")
    return found


def request_body(file: str, given_type: str | None, references: Sequence[str]) -> dict[str, Any]:
    """The body that registers, looks up or checks the schema in a file."""
    body: dict[str, Any] = {"schemaType": schema_type(file, given_type)}
    if references:
        body["references"] = [_reference(each) for each in references]
    return {**body, "schema": read_schema(file)}


def _reference(text: str) -> dict[str, Any]:
    name, _, target = text.partition("=")
    subject, _, version = target.rpartition(":")
    if not name or not subject or not version.isdigit():
        raise typer.BadParameter(f"{text!r} is not NAME=SUBJECT:VERSION", param_hint="--reference")
    return {"name": name, "subject": subject, "version": int(version)}
