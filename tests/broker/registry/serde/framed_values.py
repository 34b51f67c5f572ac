"""Values as fastavro writes them, for tests of what reads them."""

import io
from typing import Any

import fastavro


def avro_bytes(schema: Any, row: Any) -> bytes:
    """A row as Avro, without an id or the header of a file."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()
