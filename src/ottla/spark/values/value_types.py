"""Spark's types as Arrow's, and back as text: what a value format decodes to, without a Spark session at hand.

Spark's schema comes as the dictionary that its `StructType.jsonValue()` gives. The Arrow types are those that Spark
demands of a Python data source, names and nullability included: they are compared before the first row is taken. The
columns of a record itself, which a schema may ask for beside the decoded fields, are named here, too.
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
"""Fields that stand for the record itself: the connector's column behind each, and its type."""
ERROR_FIELD: Final = "_error"
"""The field that says why a value could not be decoded."""

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
    """The fields of Spark's schema; raises `OptionError` for a type that no value format can give."""
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
    what = spark if isinstance(spark, str) else f"{spark['type']} of such a kind"
    raise OptionError(
        f"the field {path} is of type {what}, which no value format gives; "
        "declare it as STRING and convert it in the query"
    )


def checked_record_fields(fields: Iterable[pa.Field]) -> None:
    """Raises `OptionError` if a field that stands for the record itself is declared with another type than it has."""
    for field in fields:
        wanted = pa.string() if field.name == ERROR_FIELD else RECORD_FIELDS.get(field.name, ("", field.type))[1]
        if not field.type.equals(wanted):
            raise OptionError(f"the field {field.name} is the record's own: it must be declared as {ddl_type(wanted)}")
        if field.name == ERROR_FIELD and not field.nullable:
            raise OptionError(f"the field {ERROR_FIELD} is null for good rows: it must not be declared NOT NULL")


def is_record_field(name: str) -> bool:
    """Whether a field of that name stands for the record itself, or for its error, and not for a part of the value."""
    return name == ERROR_FIELD or name in RECORD_FIELDS


def ddl(fields: Iterable[pa.Field]) -> str:
    """Fields as Spark's schema text: all may be null, as with Spark's own formats."""
    return ", ".join(f"{_quoted(each.name)} {ddl_type(each.type)}" for each in fields)


def ddl_type(kind: pa.DataType) -> str:
    """An Arrow type as Spark's schema text writes it."""
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
