"""The schemas that the options of a command choose, and records that are encoded by them."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import typer

from ottla.cli.produce.record_lines import BadLineError, NewRecord
from ottla.cli.registry.schema_files import TYPES, read_schema, schema_type
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.operations.schemas.json_encoder import Encoded, EncoderOptions, SchemaEncoder
from ottla.registry.schemas.schema import PROTOBUF, Schema
from ottla.registry.serde.registry_calls import LATEST, RegisteredSchema
from ottla.registry.serde.registry_client import RegistryClient


class SchemaChoice(NamedTuple):
    """What the options of a command say about the schema of keys or values."""

    schema: str | None
    """A file, an id, or `latest`, which None means too."""
    language: str | None
    """As `schema_type` takes it."""
    message: str | None = None
    """Which message of a Protobuf schema; None is the first."""
    id_place: Literal["prefix", "header"] = "prefix"
    """Where ids are written: `prefix` or `header`."""


def chosen_encoder(registry: RegistryClient, topic: str, choice: SchemaChoice, *, is_key: bool) -> SchemaEncoder:
    """Encodes the keys or the values of one command. Raises an `OttlaError`, or `BadParameter` for a wrong option."""
    schema, language = choice.schema, choice.language
    part = "key" if is_key else "value"
    subject, option = f"{topic}-{part}", f"--{part}-schema"
    if language is not None and language.upper() not in TYPES:
        raise typer.BadParameter(f"{language!r} is not one of avro, json, protobuf", param_hint=f"--{part}-format")
    found = _schema(registry, subject, schema or LATEST, language, option)
    if language is not None and found.schema.type != language.upper():
        raise InvalidRequestError(
            f"{option} {schema or LATEST} is a schema of type {found.schema.type}; omit --{part}-format"
        )
    if choice.message is not None and found.schema.type != PROTOBUF:
        raise InvalidRequestError(
            f"{option} {schema or LATEST} is a schema of type {found.schema.type}; --{part}-message is for Protobuf"
        )
    return SchemaEncoder(registry, topic, found, EncoderOptions(choice.message, choice.id_place), is_key=is_key)


def _schema(registry: RegistryClient, subject: str, schema: str, language: str | None, option: str) -> RegisteredSchema:
    if schema == LATEST:
        try:
            return registry.version(subject)
        except InvalidRequestError as error:
            raise InvalidRequestError(
                f"{option} latest: {error}; register a schema with `ottla registry register {subject} FILE`, or pass"
                f" {option} FILE"
            ) from error
    if schema.isdecimal() and not Path(schema).exists():
        return registry.schema_by_id(int(schema))
    return registry.register(subject, Schema(text=read_schema(schema), type=schema_type(schema, language)))


def record_encoder(key: SchemaEncoder | None, value: SchemaEncoder | None) -> Callable[[NewRecord], NewRecord]:
    """A function that encodes key and value of a record, each if it has a schema. It raises `BadLineError`."""

    def encoded(encoder: SchemaEncoder | None, name: str, data: bytes | None) -> Encoded:
        if encoder is None:
            return Encoded(data, ())
        try:
            return encoder.encode(data)
        except OttlaError as error:
            raise BadLineError(f"its {name} cannot be encoded: {error}") from error

    def encode(record: NewRecord) -> NewRecord:
        key_data, key_headers = encoded(key, "key", record.key)
        value_data, value_headers = encoded(value, "value", record.value)
        headers = (*record.headers, *key_headers, *value_headers)
        return record._replace(key=key_data, value=value_data, headers=headers)

    return encode
