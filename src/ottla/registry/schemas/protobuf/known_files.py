"""The files that every schema can import without registering them: well-known types, common types, and Confluent's.

The set is that of Confluent's registry.
"""

from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)

from ottla.registry.schemas.protobuf.descriptor_trees import tree_of
from ottla.registry.schemas.protobuf.parsing import parse_file
from ottla.registry.schemas.protobuf.syntax_tree import File

_OF_RUNTIME: Final[Mapping[str, ModuleType]] = {
    module.DESCRIPTOR.name: module
    for module in (
        any_pb2,
        api_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )
}

_GOOGLE_TYPE: Final = 'syntax = "proto3"; package google.type;'

_TEXTS: Final[Mapping[str, str]] = {
    "confluent/meta.proto": """
        syntax = "proto3"; package confluent;
        import "google/protobuf/descriptor.proto";
        option java_package = "io.confluent.protobuf";
        option java_outer_classname = "MetaProto";
        message Meta {
          string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4;
        }
        message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
        """,
    "confluent/type/decimal.proto": """
        syntax = "proto3"; package confluent.type;
        option java_package = "io.confluent.protobuf.type";
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
        """,
    "confluent/type/variant.proto": """
        syntax = "proto3"; package confluent.type;
        option java_package = "io.confluent.protobuf.type";
        message Variant { bytes metadata = 1; bytes value = 2; }
        """,
    "google/type/calendar_period.proto": _GOOGLE_TYPE
    + """
        enum CalendarPeriod {
          CALENDAR_PERIOD_UNSPECIFIED = 0; DAY = 1; WEEK = 2; FORTNIGHT = 3; MONTH = 4; QUARTER = 5; HALF = 6; YEAR = 7;
        }
        """,
    "google/type/color.proto": _GOOGLE_TYPE
    + """
        import "google/protobuf/wrappers.proto";
        message Color { float red = 1; float green = 2; float blue = 3; google.protobuf.FloatValue alpha = 4; }
        """,
    "google/type/date.proto": _GOOGLE_TYPE + "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "google/type/datetime.proto": _GOOGLE_TYPE
    + """
        import "google/protobuf/duration.proto";
        message DateTime {
          int32 year = 1; int32 month = 2; int32 day = 3;
          int32 hours = 4; int32 minutes = 5; int32 seconds = 6; int32 nanos = 7;
          oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; }
        }
        message TimeZone { string id = 1; string version = 2; }
        """,
    "google/type/dayofweek.proto": _GOOGLE_TYPE
    + """
        enum DayOfWeek {
          DAY_OF_WEEK_UNSPECIFIED = 0; MONDAY = 1; TUESDAY = 2; WEDNESDAY = 3; THURSDAY = 4; FRIDAY = 5; SATURDAY = 6;
          SUNDAY = 7;
        }
        """,
    "google/type/decimal.proto": _GOOGLE_TYPE + "message Decimal { string value = 1; }",
    "google/type/expr.proto": _GOOGLE_TYPE
    + "message Expr { string expression = 1; string title = 2; string description = 3; string location = 4; }",
    "google/type/fraction.proto": _GOOGLE_TYPE + "message Fraction { int64 numerator = 1; int64 denominator = 2; }",
    "google/type/interval.proto": _GOOGLE_TYPE
    + """
        import "google/protobuf/timestamp.proto";
        message Interval { google.protobuf.Timestamp start_time = 1; google.protobuf.Timestamp end_time = 2; }
        """,
    "google/type/latlng.proto": _GOOGLE_TYPE + "message LatLng { double latitude = 1; double longitude = 2; }",
    "google/type/money.proto": _GOOGLE_TYPE
    + "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }",
    "google/type/month.proto": _GOOGLE_TYPE
    + """
        enum Month {
          MONTH_UNSPECIFIED = 0; JANUARY = 1; FEBRUARY = 2; MARCH = 3; APRIL = 4; MAY = 5; JUNE = 6; JULY = 7;
          AUGUST = 8; SEPTEMBER = 9; OCTOBER = 10; NOVEMBER = 11; DECEMBER = 12;
        }
        """,
    "google/type/phone_number.proto": _GOOGLE_TYPE
    + """
        message PhoneNumber {
          message ShortCode { string region_code = 1; string number = 2; }
          oneof kind { string e164_number = 1; ShortCode short_code = 2; }
          string extension = 3;
        }
        """,
    "google/type/postal_address.proto": _GOOGLE_TYPE
    + """
        message PostalAddress {
          int32 revision = 1; string region_code = 2; string language_code = 3; string postal_code = 4;
          string sorting_code = 5; string administrative_area = 6; string locality = 7; string sublocality = 8;
          repeated string address_lines = 9; repeated string recipients = 10; string organization = 11;
        }
        """,
    "google/type/quaternion.proto": _GOOGLE_TYPE
    + "message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }",
    "google/type/timeofday.proto": _GOOGLE_TYPE
    + "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
}

KNOWN_PATHS: Final = frozenset(_OF_RUNTIME) | frozenset(_TEXTS)


@cache
def known_file(path: str) -> File:
    """The tree of a known file. Raises `KeyError` for any other path."""
    module = _OF_RUNTIME.get(path)
    if module is not None:
        return tree_of(module.DESCRIPTOR.serialized_pb)
    return parse_file(_TEXTS[path])
