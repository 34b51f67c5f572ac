"""The columns of the source in Spark's schema language: those of Spark's Kafka connector.

Also checks a schema that the user gives, which may leave columns out. `columns.py` fills the columns.
"""

from collections.abc import Mapping
from typing import Any, Final

from ottla.client.options import OptionError

COLUMN_TYPES: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
_SIMPLE_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}


def source_schema(options: Mapping[str, str]) -> Any:
    """The schema of the source: the connector's columns, or those of the value format."""
    if options.get("valueformat", "").strip():
        from ottla.spark.values.value_format import value_schema

        return value_schema(options)
    with_headers = options.get("includeheaders", "false").strip().lower() == "true"
    return ", ".join(f"{name} {kind}" for name, kind in COLUMN_TYPES.items() if with_headers or name != "headers")


def chosen_columns(schema: Any) -> tuple[str, ...]:
    """The columns of a schema, in its order. Raises `OptionError` for an unknown column or a wrong type."""
    found = []
    for each in schema.fields:
        wanted = _SIMPLE_TYPES.get(each.name)
        if wanted is None:
            raise OptionError(
                f"the source ottla has no column {each.name}; it has {', '.join(_SIMPLE_TYPES)}, and the option "
                "valueFormat makes columns of the value"
            )
        if each.dataType.simpleString() != wanted:
            raise OptionError(f"column {each.name} is {wanted}, not {each.dataType.simpleString()}; cast it afterwards")
        found.append(each.name)
    return tuple(found)
