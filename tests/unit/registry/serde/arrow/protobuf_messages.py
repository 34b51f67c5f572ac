"""Schemas with every kind of Protobuf field, random messages of them, and messages as the rows that columns have."""

import datetime
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ottla.registry.schemas.protobuf.protobuf_schema import parse
from ottla.registry.serde.protobuf_values import MessageClasses, is_map, is_repeated

PROTO3 = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
enum Color { RED = 0; GREEN = 1; BLUE = 7; NEGATIVE = -2; }
message Empty {}
message Line {
  string sku = 1;
  optional int32 count = 2;
  Inner inner = 3;
  repeated Inner inners = 4;
  message Inner { bytes data = 1; map<string, int32> counts = 2; oneof kind { int32 a = 3; Leaf b = 4; } }
  message Leaf { repeated sint64 numbers = 1; string name = 2; }
}
message Order {
  double f_double = 1; float f_float = 2; int64 f_int64 = 3; uint64 f_uint64 = 4; int32 f_int32 = 5;
  fixed64 f_fixed64 = 6; fixed32 f_fixed32 = 7; bool f_bool = 8; string f_string = 9; bytes f_bytes = 10;
  uint32 f_uint32 = 11; Color f_enum = 12; sfixed32 f_sfixed32 = 13; sfixed64 f_sfixed64 = 14; sint32 f_sint32 = 15;
  sint64 f_sint64 = 16;
  repeated double r_double = 17; repeated float r_float = 18; repeated int64 r_int64 = 19 [packed = false];
  repeated uint32 r_uint32 = 20; repeated bool r_bool = 21; repeated string r_string = 22; repeated bytes r_bytes = 23;
  repeated Color r_enum = 24; repeated sint32 r_sint32 = 25; repeated fixed32 r_fixed32 = 26 [packed = false];
  optional int32 o_int32 = 27; optional string o_string = 28; optional Color o_enum = 29; optional bool o_bool = 30;
  Line line = 31; repeated Line lines = 32; Empty empty = 33; repeated Empty empties = 34;
  map<string, Line> m_line = 35; map<int64, string> m_string = 36; map<bool, Color> m_enum = 37;
  map<sint32, double> m_double = 38; map<string, google.protobuf.Timestamp> m_time = 39;
  oneof choice { int32 c_int32 = 40; string c_string = 41; Line c_line = 42; Color c_enum = 43; }
  google.protobuf.Timestamp time = 44; google.protobuf.Duration span = 45;
  repeated google.protobuf.Timestamp times = 46; repeated google.protobuf.Duration spans = 47;
  google.protobuf.Int64Value w_int64 = 48; google.protobuf.StringValue w_string = 49;
  google.protobuf.BoolValue w_bool = 50; google.protobuf.BytesValue w_bytes = 51;
  google.protobuf.DoubleValue w_double = 52;
  repeated google.protobuf.UInt32Value w_uint32s = 53; map<string, google.protobuf.FloatValue> m_float = 54;
  string far = 5000; int32 farthest = 536870911;
}
"""
PROTO2 = """
syntax = "proto2";
package shop;
enum Size { SMALL = 1; LARGE = 3; }
enum Mood { CALM = 0; WILD = 5; }
message Order {
  required int32 id = 1;
  optional string note = 2 [default = "none"];
  optional Size size = 3;
  repeated Size sizes = 4;
  repeated Size packed_sizes = 5 [packed = true];
  map<int32, Mood> by_number = 6;
  repeated int32 numbers = 7;
  optional group Part = 8 { optional int32 a = 1; repeated string b = 2; optional Size c = 3; }
  repeated group Item = 9 { optional bytes data = 1; }
  oneof choice { Size c_size = 10; int64 c_long = 11; }
}
"""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_INTEGERS = {
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SINT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SFIXED64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_FIXED64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SINT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SFIXED32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_FIXED32: (0, 2**32 - 1),
}


def message_class(text: str, name: str = "shop.Order") -> type[Message]:
    return MessageClasses(parse(text, {})).find(name)


def random_message(kind: type[Message], chance: Random, *, map_entries_max: int = 3) -> Message:
    """Each field with some probability; required ones always."""
    message = kind()
    _fill(message, chance, map_entries_max)
    return message


def _fill(message: Any, chance: Random, entries_max: int) -> None:
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        message.seconds, message.nanos = chance.randint(-(10**10), 10**11), chance.randrange(10**6) * 1000
        return
    if name == "google.protobuf.Duration":
        sign = chance.choice((-1, 1))
        message.seconds, message.nanos = sign * chance.randint(0, 10**9), sign * chance.randrange(10**6) * 1000
        return
    for field in message.DESCRIPTOR.fields:
        is_required = field.is_required if hasattr(field, "is_required") else field.label == field.LABEL_REQUIRED
        if not is_required and chance.random() < 0.4:
            continue
        if is_map(field):
            entries = getattr(message, field.name)
            key_field, value_field = (field.message_type.fields_by_name[each] for each in ("key", "value"))
            for _ in range(chance.randint(0, entries_max)):
                key = scalar(key_field, chance)
                if value_field.message_type is None:
                    entries[key] = scalar(value_field, chance)
                else:
                    _fill(entries[key], chance, entries_max)
        elif is_repeated(field):
            elements = getattr(message, field.name)
            for _ in range(chance.randint(0, 3)):
                if field.message_type is None:
                    elements.append(scalar(field, chance))
                else:
                    _fill(elements.add(), chance, entries_max)
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            _fill(inner, chance, entries_max)
        else:
            setattr(message, field.name, scalar(field, chance))


def scalar(field: Any, chance: Random) -> Any:
    """A random value of a field, often its default."""
    if field.type in _INTEGERS:
        low, high = _INTEGERS[field.type]
        return chance.choice((0, 1, low, high, chance.randint(low, high), min(high, chance.randrange(300))))
    if field.type == field.TYPE_BOOL:
        return chance.random() < 0.5
    if field.type == field.TYPE_FLOAT:
        return chance.choice((0.0, -0.0, 1.5, -3.25, float("inf")))
    if field.type == field.TYPE_DOUBLE:
        return chance.choice((0.0, -0.0, chance.random(), 1e300))
    if field.type == field.TYPE_ENUM:
        known = [each.number for each in field.enum_type.values]
        return chance.choice(known if field.enum_type.is_closed else [*known, 99, -77, 2**31 - 1, -(2**31)])
    text = "".join(chance.choice("ab\N{SNOWMAN}\0\N{GRINNING FACE}z") for _ in range(chance.choice((0, 1, 5, 40))))
    return text if field.type == field.TYPE_STRING else text.encode()


def row_of(message: Any) -> Any:
    """What the columns have for a message."""
    return {each.name: _value(message, each) for each in message.DESCRIPTOR.fields}


def _value(message: Any, field: Any) -> Any:
    found = getattr(message, field.name)
    if is_map(field):
        inner = field.message_type.fields_by_name["value"]
        return {key: _plain(inner, found[key]) for key in found}
    if is_repeated(field):
        return [_plain(field, each) for each in found]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(field, found)


def _plain(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name == "google.protobuf.Timestamp":
        return _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if name == "google.protobuf.Duration":
        return datetime.timedelta(seconds=value.seconds, microseconds=value.nanos / 1000)
    if name.startswith("google.protobuf.") and name.endswith("Value"):
        return value.value
    return row_of(value)
