"""What the tests of value formats share: decoding without Spark, and Spark's schemas as it writes them."""

from typing import Any

import pyarrow as pa

from ottla.registry.serde.arrow.row_decoding import ValueRows, decode_rows


def decoded(format: ValueRows, values: list[bytes | None]) -> list[Any]:
    """The rows of all values together; for a bad one, its reason as a text."""
    found = decode_rows(format, pa.array(values, pa.binary()))
    found.rows.validate(full=True)
    rows: list[Any] = found.rows.to_pylist()
    assert len(values) == len(rows)
    for each in found.rejected:
        assert rows[each.index] is None
        rows[each.index] = str(each.error)
    return rows


def spark_schema(**fields: Any) -> dict[str, Any]:
    """A schema as Spark's `jsonValue()` has it, of names and types."""
    return {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()],
    }


def array_of(kind: Any) -> dict[str, Any]:
    """Spark's type of arrays."""
    return {"type": "array", "elementType": kind, "containsNull": True}


def map_of(kind: Any) -> dict[str, Any]:
    """Spark's type of maps from texts."""
    return {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}
