"""Avro and Protobuf values: random schemas and values, damaged bytes, and lengths that lie."""

import json
from contextlib import suppress
from random import Random

import pyarrow as pa

from ottla.registry.schemas.avro.avro_schema import parse
from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.serde.arrow.avro_plan import AvroColumns, NoColumnsError
from ottla.registry.serde.arrow.avro_rows import AvroRows, RowError
from ottla.registry.serde.arrow.protobuf_plan import ProtobufColumns
from ottla.registry.serde.arrow.protobuf_rows import ProtobufRows
from ottla.registry.serde.avro_codec import codec_of
from ottla.registry.serde.avro_values import UnusualValueError
from tests.compat.registry.avro_generation import SchemaSource
from tests.unit.registry.serde.arrow.protobuf_messages import PROTO2, PROTO3, message_class, random_message
from tests.unit.registry.serde.random_avro_values import value_of


def avro(chance: Random) -> None:
    """A value goes through the codec, whole and damaged."""
    with suppress(InvalidSchemaError, RecursionError, UnusualValueError, ValueError, TypeError, ArithmeticError):
        schema = parse(json.dumps(SchemaSource(chance).schema()), {})
        codec = codec_of(schema.root)
        if codec is None:
            return
        data = bytes(chance.randrange(256) for _ in range(chance.randrange(40)))
        for _ in range(5):
            with suppress(ValueError, TypeError, ArithmeticError):
                codec.decode(data, chance.randrange(3))
            data = chance.randbytes(3) + b"\xff\xff\xff\xff\x0f" + data[: chance.randrange(len(data) + 1)]
        good = codec.encode(value_of(schema.root, chance), b"")
        for _ in range(20):
            bad = bytearray(good)
            for _ in range(chance.randrange(1, 4)):
                if bad:
                    bad[chance.randrange(len(bad))] = chance.randrange(256)
            with suppress(ValueError, TypeError, ArithmeticError):
                codec.decode(bytes(bad[: chance.randrange(len(bad) + 1)]), 0)
        codec.decode(good, 0)


def avro_columns(chance: Random) -> None:
    """Values go through the columns and back, whole and damaged together."""
    with suppress(
        InvalidSchemaError, NoColumnsError, RecursionError, UnusualValueError, ValueError, TypeError, ArithmeticError
    ):
        schema = parse(json.dumps(SchemaSource(chance).schema()), {})
        codec = codec_of(schema.root)
        columns = AvroColumns(schema.root)
        if codec is None:
            return
        good = [codec.encode(value_of(schema.root, chance), b"") for _ in range(chance.randrange(1, 5))]
        rows, _ = columns.decode(pa.array(_some_damaged(good, chance), pa.binary()))
        rows.validate(full=True)
        with suppress(RowError):
            AvroRows(schema.root).encode(rows.drop_null())


def protobuf_columns(chance: Random) -> None:
    """Values go through the columns and back, whole and damaged together."""
    kind = message_class(chance.choice((PROTO2, PROTO3)))
    columns, writer = ProtobufColumns(kind.DESCRIPTOR), ProtobufRows(kind.DESCRIPTOR)
    for _ in range(10):
        good = [random_message(kind, chance).SerializeToString() for _ in range(chance.randrange(1, 5))]
        if chance.random() < 0.5:
            good.append(b"".join(good))
        rows, _ = columns.decode(pa.array(_some_damaged(good, chance), pa.binary()), chance.choice((0, 0, 3)))
        rows.validate(full=True)
        with suppress(RowError):
            writer.encode(rows.drop_null())


def _some_damaged(values: list[bytes], chance: Random) -> list[bytes]:
    found = list(values)
    for _ in range(chance.randrange(4)):
        bad = bytearray(chance.choice(values))
        for _ in range(chance.randrange(1, 4)):
            if bad:
                bad[chance.randrange(len(bad))] = chance.choice((0, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        if chance.random() < 0.3:
            bad[chance.randrange(len(bad) + 1) :] = b"\xff\xff\xff\xff\x0f"
        found.insert(chance.randrange(len(found) + 1), bytes(bad))
    return found
