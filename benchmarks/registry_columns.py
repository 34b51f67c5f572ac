"""Arrow columns of values with schemas, against fastavro and Protobuf's own runtime record by record.

Measured is one core: orders with an id, two texts, one of them optional, two numbers, a time and a list of texts, with
the schema's id before each. Decoding begins with the values as `poll_arrow` has them, frames included, and ends with
typed columns; the rivals make a dict or a message of each record, which is what a program has to build columns from.
Encoding begins with columns and ends with the values that `send_table` writes; the rivals begin with dicts or messages.
"""

import io
import json
from typing import Any

import fastavro
import pyarrow as pa

from benchmarks.measure import Goal, Result, interleaved, report
from ottla.records.arrow import HEADERS
from ottla.registry.schemas.avro import avro_schema
from ottla.registry.schemas.protobuf import protobuf_schema
from ottla.registry.serde.arrow.avro_rows import AvroRows
from ottla.registry.serde.arrow.column_decoders import WrittenMessage, avro_decoder, protobuf_decoder
from ottla.registry.serde.arrow.column_readers import ColumnReaders
from ottla.registry.serde.arrow.protobuf_rows import ProtobufRows
from ottla.registry.serde.framing import id_prefix
from ottla.registry.serde.protobuf_values import MessageClasses

RECORDS = 20_000
TOPIC = "orders"
AVRO_GOALS = [Goal(rival="ottla columns", at_least=10.0)]
PROTOBUF_GOALS = [Goal(rival="ottla columns", at_least=10.0)]
_PREFIX = id_prefix(7)
_AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "count", "type": "int"},
        {"name": "at", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
_PROTO = """
syntax = "proto3";
message Order {
  int64 id = 1; string customer = 2; double amount = 3; int32 count = 4; int64 at = 5; repeated string tags = 6;
  optional string note = 7;
}
"""


def run(quick: bool = False) -> list[Result]:
    """Decoding and encoding, Avro and Protobuf."""
    return [*avro_columns(quick), *protobuf_columns(quick)]


def _orders() -> list[dict[str, Any]]:
    return [
        {
            "id": 10_000 + number,
            "customer": f"customer {number % 977}",
            "amount": number / 8,
            "count": number % 100,
            "at": 1_700_000_000_000 + number,
            "tags": ["new", "paper"][: number % 3],
            "note": None if number % 3 else "leave it at the door",
        }
        for number in range(RECORDS)
    ]


def avro_columns(quick: bool = False) -> list[Result]:
    """Against fastavro."""
    parsed = fastavro.parse_schema(_AVRO)
    schema = avro_schema.parse(json.dumps(_AVRO), {})
    orders = _orders()
    framed = [_PREFIX + _avro_value(parsed, each) for each in orders]
    readers = ColumnReaders(
        has_indexes=False,
        find_schema=lambda *_: schema,
        find_age=lambda *_: (0, 0),
        find_reader=lambda *_: None,
        make_decoder=avro_decoder,
    )
    values, headers = pa.array(framed, pa.binary()), pa.array([[]] * RECORDS, HEADERS)
    readers._prepare(TOPIC, False, [(7, ())])  # type: ignore[list-item]
    rows = readers.deserialize_column(TOPIC, values, headers, False).values
    if rows.to_pylist() != orders or AvroRows(schema.root).encode(rows, _PREFIX).to_pylist() != framed:
        raise ValueError("the columns are not what fastavro reads and writes")

    def read_columns() -> float:
        return len(readers.deserialize_column(TOPIC, values, headers, False).values)

    def read_records() -> float:
        for data in framed:
            source = io.BytesIO(data)
            source.seek(len(_PREFIX))
            fastavro.schemaless_reader(source, parsed, None)
        return RECORDS

    def write_columns() -> float:
        return len(AvroRows(schema.root).encode(rows, _PREFIX))

    def write_records() -> float:
        for order in orders:
            _avro_value(parsed, order)
        return RECORDS

    return [
        interleaved(
            {"ottla columns": read_columns, "fastavro": read_records},
            title="read Avro",
            unit="records",
            baseline="fastavro",
            goals=AVRO_GOALS,
            quick=quick,
        ),
        interleaved(
            {"ottla columns": write_columns, "fastavro": write_records},
            title="write Avro",
            unit="records",
            baseline="fastavro",
            goals=AVRO_GOALS,
            quick=quick,
        ),
    ]


def _avro_value(parsed: Any, order: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, order)
    return out.getvalue()


def protobuf_columns(quick: bool = False) -> list[Result]:
    """Against Protobuf's runtime, whose messages are written in C; a second rival makes dicts of the messages too."""
    schema = protobuf_schema.parse(_PROTO, {})
    kind: Any = MessageClasses(schema).find("Order")
    written = WrittenMessage(schema, kind.DESCRIPTOR)
    orders = _orders()
    messages = [kind(**each) for each in orders]
    prefix = _PREFIX + b"\0"
    framed = [prefix + each.SerializeToString() for each in messages]
    readers = ColumnReaders(
        has_indexes=True,
        find_schema=lambda *_: written,
        find_age=lambda *_: (0, 0),
        find_reader=lambda *_: None,
        make_decoder=protobuf_decoder,
    )
    values, headers = pa.array(framed, pa.binary()), pa.array([[]] * RECORDS, HEADERS)
    readers._prepare(TOPIC, False, [(7, (0,))])  # type: ignore[list-item]
    rows = readers.deserialize_column(TOPIC, values, headers, False).values
    if rows.to_pylist() != orders or ProtobufRows(kind.DESCRIPTOR).encode(rows, prefix).to_pylist() != framed:
        raise ValueError("the columns are not what the runtime reads and writes")
    names = [each.name for each in kind.DESCRIPTOR.fields]

    def read_columns() -> float:
        return len(readers.deserialize_column(TOPIC, values, headers, False).values)

    def read_messages() -> float:
        for data in framed:
            kind.FromString(data[6:])
        return RECORDS

    def read_dicts() -> float:
        for data in framed:
            message = kind.FromString(data[6:])
            {name: getattr(message, name) for name in names}
        return RECORDS

    def write_columns() -> float:
        return len(ProtobufRows(kind.DESCRIPTOR).encode(rows, prefix))

    def write_messages() -> float:
        for message in messages:
            prefix + message.SerializeToString()
        return RECORDS

    def write_dicts() -> float:
        for order in orders:
            prefix + kind(**order).SerializeToString()
        return RECORDS

    return [
        interleaved(
            {"ottla columns": read_columns, "protobuf messages": read_messages, "protobuf dicts": read_dicts},
            title="read Protobuf",
            unit="records",
            baseline="protobuf dicts",
            goals=PROTOBUF_GOALS,
            quick=quick,
        ),
        interleaved(
            {"ottla columns": write_columns, "protobuf messages": write_messages, "protobuf dicts": write_dicts},
            title="write Protobuf",
            unit="records",
            baseline="protobuf dicts",
            goals=PROTOBUF_GOALS,
            quick=quick,
        ),
    ]


if __name__ == "__main__":
    report(run())
