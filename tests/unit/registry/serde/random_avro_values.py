"""Random values of Avro schemas."""

import datetime
import struct
import uuid
from decimal import Decimal
from random import Random
from typing import Any

from ottla.registry.schemas.avro.avro_types import Array, AvroType, Enumeration, Fixed, Map, Record, Union

AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.UTC)


def value_of(part: AvroType, random: Random, depth: int = 0) -> Any:
    """A random value of a type. Raises `RecursionError` for types without end."""
    if depth > 12:
        raise RecursionError
    logical = part.properties.get("logicalType")
    match part:
        case Record():
            return {each.name: value_of(each.type, random, depth + 1) for each in part.fields}
        case Union():
            if not part.branches:
                raise RecursionError
            nulls = [each for each in part.branches if each.kind == "null"]
            return value_of(random.choice(nulls if nulls and depth > 6 else part.branches), random, depth + 1)
        case Array():
            return [value_of(part.items, random, depth + 1) for _ in range(random.randrange(3 if depth < 5 else 1))]
        case Map():
            return {
                f"k{n}": value_of(part.values, random, depth + 1)
                for n in range(random.randrange(2 if depth < 5 else 1))
            }
        case Enumeration():
            return random.choice(part.symbols)
        case Fixed():
            return (
                random.choice((random.randbytes(part.size), Decimal(1)))
                if logical == "decimal"
                else random.randbytes(part.size)
            )
    match part.kind, logical:
        case "int", "date":
            return AT.date()
        case "int", "time-millis":
            return AT.time()
        case "long", "time-micros":
            return AT.time()
        case "long", "timestamp-millis" | "timestamp-micros":
            return AT
        case "long", "local-timestamp-millis" | "local-timestamp-micros":
            return AT.replace(tzinfo=None)
        case "bytes", "decimal":
            return Decimal(random.randrange(10))
        case "string", "uuid":
            return uuid.UUID(int=random.getrandbits(128))
        case "null", _:
            return None
        case "boolean", _:
            return random.random() < 0.5
        case "int", _:
            return random.choice((0, -1, 2**31 - 1, -(2**31)))
        case "long", _:
            return random.choice((0, 1, -64, 64, 2**63 - 1, -(2**63)))
        case "float", _:
            return struct.unpack("f", struct.pack("f", random.random()))[0]
        case "double", _:
            return random.choice((0.0, -1.5, 1e300, float("inf"), random.random()))
        case "bytes", _:
            return random.randbytes(random.randrange(5))
    return random.choice(("", "a", "ä€😀", "x" * 200))
