"""Spark types as Arrow types, and back as Spark DDL, without a Spark session.

A Spark schema is the dictionary of `StructType.jsonValue()`. The Arrow types are those that Spark requires of a Python
data source, with names and nullability: Spark compares them before the first row. The columns of the record, which a
schema may have besides the decoded fields, are also named here.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from ottla.client.options import OptionError

TIMESTAMP: Final = pa.timestamp("us", "UTC")
_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

RECORD_FIELDS: Final[Mapping[str, tuple[str, pa.DataType]]] = {
    "_key": ("key", pa.binary()),
    "_value": ("value", pa.binary()),
    "_topic": ("topic", pa.string()),
    "_partition": ("partition", pa.int32()),
    "_offset": ("offset", pa.int64()),
    "_timestamp": ("timestamp", TIMESTAMP),
    "_headers": ("headers", pa.list_(pa.field("element", _HEADER))),
}
"""Fields of the record rather than of its value: the column of the connector, and its type."""
SCHEMA_ID_FIELD: Final = "_schema_id"
"""The field with the id of the value's schema as text, or its GUID if a header has it; null without a registry."""
ERROR_FIELD: Final = "_error"
"""The field with the reason why a value could not be decoded."""

_SIMPLE: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_TEXT: Final = re.compile(r"(char|varchar)\(\d+\)|string( collate .*)?")

_DDL: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}


def arrow_fields(schema: Mapping[str, Any]) -> list[pa.Field]:
    """The fields of a Spark schema; raises `OptionError` for a type that no value format supports."""
    return [
        pa.field(each["name"], _arrow_type(each["type"], each["name"]), nullable=each.get("nullable", True))
        for each in schema["fields"]
    ]


def _arrow_type(spark: Any, path: str) -> pa.DataType:
    if isinstance(spark, str):
        if spark in _SIMPLE:
            return _SIMPLE[spark]
        decimal = _DECIMAL.fullmatch(spark)
        if decimal is not None:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if _TEXT.fullmatch(spark):
            return pa.string()
    elif spark["type"] == "struct":
        return pa.struct(
            [
                pa.field(each["name"], _arrow_type(each["type"], f"{path}.{each['name']}"), nullable=each["nullable"])
                for each in spark["fields"]
            ]
        )
    elif spark["type"] == "array":
        element = _arrow_type(spark["elementType"], f"{path}[]")
        return pa.list_(pa.field("element", element, nullable=spark["containsNull"]))
    elif spark["type"] == "map" and spark["keyType"] == "string":
        value = _arrow_type(spark["valueType"], f"{path}{{}}")
        return pa.map_(pa.string(), pa.field("value", value, nullable=spark["valueContainsNull"]))
    what = spark if isinstance(spark, str) else f"{spark['type']} of that kind"
    raise OptionError(
        f"field {path} is of type {what}, which no value format supports; "
        "declare it as STRING and convert it in the query"
    )


def checked_record_fields(fields: Iterable[pa.Field]) -> None:
    """Raises `OptionError` if a field of the record is declared with another type than it has."""
    for field in fields:
        is_text = field.name in (ERROR_FIELD, SCHEMA_ID_FIELD)
        wanted = pa.string() if is_text else RECORD_FIELDS.get(field.name, ("", field.type))[1]
        if not field.type.equals(wanted):
            raise OptionError(f"field {field.name} is a field of the record and must be declared as {ddl_type(wanted)}")
        if field.name == ERROR_FIELD and not field.nullable:
            raise OptionError(f"field {ERROR_FIELD} is null for good rows and must not be declared NOT NULL")


def is_record_field(name: str) -> bool:
    """Whether a field belongs to the record or its error, and not to the value."""
    return name in (ERROR_FIELD, SCHEMA_ID_FIELD) or name in RECORD_FIELDS


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The type that a column of a kernel has in Spark, which has no times of day, and no numbers without a sign."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, spark_type(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", spark_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), spark_type(kind.item_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_duration(kind):
        return pa.int64()
    return _WIDER.get(kind, kind)


_WIDER: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.null(): pa.string(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def ddl(fields: Iterable[pa.Field]) -> str:
    """Fields as Spark DDL: all nullable, as in Spark's own formats."""
    return ", ".join(f"{_quoted(each.name)} {ddl_type(each.type)}" for each in fields)


def ddl_type(kind: pa.DataType) -> str:
    """An Arrow type as Spark DDL."""
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{_quoted(each.name)}: {ddl_type(each.type)}' for each in kind)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{ddl_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<STRING, {ddl_type(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _DDL[kind]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
