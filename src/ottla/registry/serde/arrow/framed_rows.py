"""Values with schemas of a registry as rows: each is decoded with the schema that it was written with.

The id is in the prefix or in a header (`framing.py`). The values of a block are decoded schema by schema, and put back
into order. Avro values are resolved to the reader's schema by Avro's rules, Protobuf is read by field numbers, and of
JSON the wanted fields are read, without validation of the rest.

A value whose schema is not known, or not one of the reader's subject, is bad. A schema that became a version of the
subject and that the reader cannot read is not the fault of a record: decoding stops with `IncompatibleSchemaError`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.model.errors import InvalidRequestError
from ottla.registry.schemas.avro.avro_schema import AvroSchema
from ottla.registry.schemas.languages import LANGUAGES
from ottla.registry.schemas.parsed_schema import InvalidSchemaError, ParsedSchema
from ottla.registry.schemas.protobuf.protobuf_schema import ProtobufSchema
from ottla.registry.schemas.schema import JSON, Schema
from ottla.registry.serde.arrow.avro_plan import AvroColumns, NoColumnsError
from ottla.registry.serde.arrow.json_fields import JsonSchemaError, json_schema_fields, unreadable_field
from ottla.registry.serde.arrow.json_rows import JsonValues
from ottla.registry.serde.arrow.kernel_rows import Kernel, KernelRows
from ottla.registry.serde.arrow.message_rows import MessageRows, message_columns
from ottla.registry.serde.arrow.row_decoding import BadValueError, BlockRefusedError, ValueRows
from ottla.registry.serde.errors import RegistryAnswerError, ValueNotReadableError
from ottla.registry.serde.framing import KEY_HEADER, PREFIX_BYTES, VALUE_HEADER, SchemaId, read_frame
from ottla.registry.serde.registry_calls import LATEST, RegisteredSchema, Version
from ottla.registry.serde.registry_calls import version as version_call
from ottla.registry.serde.registry_client import RegistryClient
from ottla.registry.serde.schema_ids import check_rules, parsed, schema_to_read_with
from ottla.registry.serde.subject_names import context_prefix

_GUID_FRAME_BYTES: Final = 17
_SCHEMAS_KEPT_MAX: Final = 1000
_UNKNOWN_KEPT_MAX: Final = 10_000
_UNKNOWN_KEPT_SECONDS: Final = 60.0
_NOT_FOUND_CODES: Final = frozenset({40401, 40402, 40403})
"""Subject, version or schema not found. Another 404 comes from a server that is not a registry."""


class IncompatibleSchemaError(InvalidRequestError):
    """Records have a version of the subject that the reader's schema cannot read. Says which one, and what breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSchema:
    """The schema that values are resolved to. Can be pickled."""

    schema: Schema
    references: Mapping[str, str] = field(default_factory=dict)
    subject: str | None = None
    version: int | None = None
    """None for a schema that was given as text."""
    message: str | None = None
    """The full name of the message of a Protobuf schema; None is the first one."""

    def parsed(self) -> ParsedSchema:
        """Raises `ValueNotReadableError` if it is not valid."""
        if self.schema.type not in LANGUAGES:
            raise ValueNotReadableError(f"schemas of type {self.schema.type} are not supported here")
        try:
            return LANGUAGES[self.schema.type].parse(self.schema.text, self.references)
        except InvalidSchemaError as error:
            raise ValueNotReadableError(f"the schema is not valid: {error}") from error

    def __str__(self) -> str:
        return "the schema of the query" if self.version is None else f"version {self.version}"


def registered_reader(
    registry: RegistryClient, subject: str, version: Version = LATEST, message: str | None = None
) -> ReaderSchema | None:
    """A version of a subject, past the client's cache; None if the registry does not have it."""
    try:
        found = registry.ask(version_call(subject, version))
    except RegistryAnswerError as error:
        if error.error_code in _NOT_FOUND_CODES:
            return None
        raise
    references = registry.references_of(found.schema, subject)
    return ReaderSchema(
        schema=found.schema, references=references, subject=subject, version=found.version, message=message
    )


def reader_type(reader: ReaderSchema) -> pa.StructType:
    """The struct of the columns of a schema. Raises `ValueNotReadableError`, `NoColumnsError`, `JsonSchemaError`."""
    if reader.schema.type == JSON:
        return pa.struct(json_schema_fields(reader.schema.text))
    return kernel_of(reader).type


def kernel_of(reader: ReaderSchema) -> Kernel:
    """Decodes values that were written with this schema. Raises `ValueNotReadableError`, `NoColumnsError`."""
    found = reader.parsed()
    if isinstance(found, AvroSchema):
        return AvroColumns(found.root)
    if isinstance(found, ProtobufSchema):
        return message_columns(found, reader.message)
    raise ValueNotReadableError(f"values of type {reader.schema.type} are not decoded by a kernel")


def with_header_frames(values: pa.Array, headers: pa.Array, *, is_key: bool = False) -> pa.Array:
    """The values, with the ids that are in headers put before them: the bytes are as those of a prefix."""
    names = headers.flatten().field("key")
    is_id = pc.equal(names, KEY_HEADER if is_key else VALUE_HEADER)
    if not pc.any(is_id).as_py():
        return values
    rows = pc.list_parent_indices(headers).filter(is_id)
    ids = headers.flatten().field("value").filter(is_id)
    frames: list[bytes] = [b""] * len(values)
    for row, frame in zip(rows.to_pylist(), ids.to_pylist(), strict=True):
        frames[row] = frame or b""
    return pc.binary_join_element_wise(pa.array(frames, pa.binary()), values, b"")


def schema_ids(values: pa.Array) -> pa.Array:
    """The id of each framed value as text, or its GUID; null for values without one."""
    frames = _split(values)[0].dictionary_encode()
    return pa.array([_id_text(each) for each in frames.dictionary.to_pylist()], pa.string()).take(frames.indices)


def _id_text(frame: bytes) -> str | None:
    try:
        return str(read_frame((), frame, is_key=False).schema_id)
    except ValueNotReadableError:
        return None


class FramedRows:
    """Decodes framed values to the struct `kind`, for one reader."""

    def __init__(
        self,
        registry: RegistryClient,
        kind: pa.DataType,
        reader: ReaderSchema | None = None,
        *,
        subject: str | None = None,
        types: frozenset[str] = frozenset(LANGUAGES),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without a `reader`, fields are found by name in the writer's schema. Ids are meant in the context of the
        reader's subject, or of `subject`. `types` are those of accepted schemas.

        Raises `ValueNotReadableError` if the reader's schema is not valid.
        """
        self.type = kind
        self._registry = registry
        self._reader = reader
        self._parsed_reader = None if reader is None else reader.parsed()
        self._context = context_prefix(subject if reader is None or reader.subject is None else reader.subject)
        self._types = types
        self._now = now
        self._formats: dict[bytes, ValueRows | BadValueError] = {}
        self._unknown: dict[bytes, tuple[float, str]] = {}

    def decode_block(self, values: pa.Array) -> pa.StructArray:
        """Decodes all values, schema by schema."""
        if len(values) == 0:
            return pa.array([], self.type)
        prefixes, bodies = _split(values)
        frames = prefixes.dictionary_encode()
        formats = [self._format_of(frame) for frame in frames.dictionary.to_pylist()]
        if len(formats) == 1:
            return formats[0].decode_block(bodies)
        which = frames.indices
        parts = [format.decode_block(bodies.filter(pc.equal(which, index))) for index, format in enumerate(formats)]
        # The parts are in the order of a stable sort by schema; sorting the positions restores the order.
        places = pc.array_sort_indices(pc.array_sort_indices(which))
        return pa.concat_arrays(parts).take(places)

    def is_plausible(self, value: bytes) -> bool:
        """Whether the value has a frame with a known schema."""
        try:
            format, start = self._format(value)
        except BadValueError:
            return False
        return format.is_plausible(value[start:])

    def decode_row(self, value: bytes) -> dict[str, Any] | None:
        """Decodes one value."""
        format, start = self._format(value)
        return format.decode_row(value[start:])

    def _format_of(self, frame: bytes) -> ValueRows:
        try:
            return self._format(frame)[0]
        except BadValueError as error:
            raise BlockRefusedError(str(error)) from error

    def _format(self, value: bytes) -> tuple[ValueRows, int]:
        """The decoder for the bytes after the frame, and where they begin. Raises `BadValueError`, or the registry's
        error if it cannot be asked.
        """
        try:
            found = read_frame((), value, is_key=False)
        except ValueNotReadableError as error:
            raise BadValueError(str(error)) from error
        frame = value[: found.start]
        format = self._formats.get(frame)
        if format is None:
            format = self._made(frame, found.schema_id)
            if len(self._formats) >= _SCHEMAS_KEPT_MAX:
                self._formats.clear()
            self._formats[frame] = format
        if isinstance(format, BadValueError):
            raise BadValueError(str(format))
        return format, found.start

    def _made(self, frame: bytes, schema_id: SchemaId) -> ValueRows | BadValueError:
        written = self._written(frame, schema_id)
        try:
            check_rules(written.schema, is_write=False, ignore_rules=False)
            return self._decoder(written)
        except (ValueNotReadableError, NoColumnsError) as error:
            self._refuse_version(schema_id, written, str(error))
            return BadValueError(f"schema {schema_id}: {error}")

    def _written(self, frame: bytes, schema_id: SchemaId) -> RegisteredSchema:
        """The writer's schema. An id that the registry does not know is asked for again after a while."""
        since, reason = self._unknown.get(frame, (None, ""))
        if since is not None and self._now() - since <= _UNKNOWN_KEPT_SECONDS:
            raise BadValueError(reason)
        try:
            return schema_to_read_with(self._registry, schema_id, self._context)
        except RegistryAnswerError as error:
            if error.error_code not in _NOT_FOUND_CODES:
                raise
            if len(self._unknown) >= _UNKNOWN_KEPT_MAX:
                self._unknown.clear()
            reason = f"the registry has no schema with the id {schema_id}"
            self._unknown[frame] = self._now(), reason
            raise BadValueError(reason) from error

    def _decoder(self, written: RegisteredSchema) -> ValueRows:
        kind = written.schema.type
        if kind not in self._types:
            raise ValueNotReadableError(f"it is of type {kind}, but values are expected in {', '.join(self._types)}")
        if kind == JSON:
            self._check_json(written)
            return JsonValues(self.type)
        writer = parsed(self._registry, written.schema, written.subject)
        reader = self._parsed_reader
        if isinstance(writer, AvroSchema):
            return KernelRows(
                AvroColumns(writer.root, reader.root if isinstance(reader, AvroSchema) else None), self.type
            )
        if isinstance(writer, ProtobufSchema):
            message = None if self._reader is None else self._reader.message
            return MessageRows(writer, self.type, reader if isinstance(reader, ProtobufSchema) else None, message)
        raise ValueNotReadableError(f"it is of type {kind}, which is not supported")

    def _check_json(self, written: RegisteredSchema) -> None:
        """Raises `ValueNotReadableError` if the schema says that a wanted field has another type."""
        try:
            fields = json_schema_fields(written.schema.text)
        except JsonSchemaError:
            return  # each value shows what it has
        problem = unreadable_field(pa.struct(fields), self.type)
        if problem is not None and self._reader is not None:
            raise ValueNotReadableError(problem)

    def _refuse_version(self, schema_id: SchemaId, written: RegisteredSchema, reason: str) -> None:
        reader = self._reader
        if reader is None or reader.subject is None:
            return
        try:
            version = self._registry.look_up(reader.subject, written.schema, deleted=True).version
        except RegistryAnswerError as error:
            if error.error_code in _NOT_FOUND_CODES:
                return
            raise
        raise IncompatibleSchemaError(
            f"records of subject {reader.subject} have schema {schema_id} (version {version}), which {reader} cannot"
            f" read: {reason}. Start the query again to read with the latest version, or choose a version that can read"
            " it"
        )


def _split(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Frames, and the bytes after them."""
    frames = pc.binary_slice(values, 0, PREFIX_BYTES)
    bodies = pc.binary_replace_slice(values, start=0, stop=PREFIX_BYTES, replacement=b"")
    has_guid = pc.equal(pc.binary_slice(values, 0, 1), b"\1")
    if pc.any(has_guid).as_py():
        frames = pc.if_else(has_guid, pc.binary_slice(values, 0, _GUID_FRAME_BYTES), frames)
        rest = pc.binary_replace_slice(values, start=0, stop=_GUID_FRAME_BYTES, replacement=b"")
        bodies = pc.if_else(has_guid, rest, bodies)
    return frames, bodies
