"""Values with Confluent's framing: a zero byte, four bytes that name a schema, and then the value.

Each value is decoded with the schema it was written with, from the registry (`schema_registry.py`): Avro by
`avro_values.py`, and JSON Schema's by `json_values.py`, which reads what the columns ask for and does not judge the
rest. Protobuf is not read. A block's values are decoded schema by schema, and put back into their order.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.spark.values.avro_schemas import AvroSchema, AvroSchemaError, avro_schema
from ottla.spark.values.avro_values import AvroValues
from ottla.spark.values.json_values import JsonValues
from ottla.spark.values.rejected_rows import BadValueError, BlockRefusedError, ValueRows, sample
from ottla.spark.values.schema_registry import RegisteredSchema, SchemaRegistry, UnknownSchemaError

_FRAME: Final = struct.Struct(">bI")
_SCHEMAS_KEPT_MAX: Final = 1000


class RegistryValues:
    """Decodes framed values to the struct `kind`; with a `reader` schema, Avro values are resolved to it first."""

    def __init__(self, registry: SchemaRegistry, kind: pa.DataType, reader: AvroSchema | None = None) -> None:
        self.type = kind
        self._registry = registry
        self._reader = reader
        self._formats: dict[int, ValueRows | BadValueError] = {}

    def decode_block(self, values: pa.Array) -> pa.StructArray:
        """All values, schema by schema."""
        if len(values) == 0:
            return pa.array([], self.type)
        frames = pc.binary_slice(values, 0, _FRAME.size).dictionary_encode()
        bodies = pc.binary_replace_slice(values, start=0, stop=_FRAME.size, replacement=b"")
        formats = [self._format_of(frame) for frame in frames.dictionary.to_pylist()]
        if len(formats) == 1:
            return formats[0].decode_block(bodies)
        which = frames.indices
        parts = [format.decode_block(bodies.filter(pc.equal(which, index))) for index, format in enumerate(formats)]
        # The parts stand in the order of a stable sort by schema; sorting its places by themselves undoes it.
        places = pc.array_sort_indices(pc.array_sort_indices(which))
        return pa.concat_arrays(parts).take(places)

    def is_plausible(self, value: bytes) -> bool:
        """Whether it has a frame with a schema that is known."""
        try:
            return self._format(value).is_plausible(value[_FRAME.size :])
        except BadValueError:
            return False

    def decode_row(self, value: bytes) -> dict[str, Any] | None:
        """One value."""
        return self._format(value).decode_row(value[_FRAME.size :])

    def _format_of(self, frame: bytes) -> ValueRows:
        try:
            return self._format(frame)
        except BadValueError as error:
            raise BlockRefusedError(str(error)) from error

    def _format(self, value: bytes) -> ValueRows:
        """How to decode what follows a frame; raises `BadValueError`, and what a registry that is away raises."""
        if len(value) < _FRAME.size:
            raise BadValueError(f"{len(value)} bytes are too few for the frame with the schema's id")
        magic, schema_id = _FRAME.unpack_from(value)
        if magic != 0:
            raise BadValueError(f"the value does not begin with a zero byte and a schema's id: {sample(value)}")
        found = self._formats.get(schema_id)
        if found is None:
            found = self._made(schema_id)
            if len(self._formats) >= _SCHEMAS_KEPT_MAX:
                self._formats.clear()
            self._formats[schema_id] = found
        if isinstance(found, BadValueError):
            raise BadValueError(str(found))
        return found

    def _made(self, schema_id: int) -> ValueRows | BadValueError:
        try:
            schema = self._registry.schema(schema_id)
            return _FORMATS[schema.kind](self, schema)
        except UnknownSchemaError as error:
            # Not kept here: it may be registered a moment later, and the registry's client remembers it for a while.
            raise BadValueError(str(error)) from error
        except AvroSchemaError as error:
            return BadValueError(f"schema {schema_id}: {error}")
        except KeyError as error:
            return BadValueError(f"schema {schema_id} is of type {error}, which is not read here")

    def _avro(self, schema: RegisteredSchema) -> ValueRows:
        return AvroValues(avro_schema(schema.text, schema.references), self.type, self._reader)

    def _json(self, schema: RegisteredSchema) -> ValueRows:
        return JsonValues(self.type)


_FORMATS: Final[dict[str, Callable[[RegistryValues, RegisteredSchema], ValueRows]]] = {
    "AVRO": RegistryValues._avro,
    "JSON": RegistryValues._json,
}
