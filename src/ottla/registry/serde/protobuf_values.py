"""Protobuf messages: their classes, made of schemas, and their values as dicts.

In dicts, enums are names; Timestamp, Duration, Date and Decimal are datetime, timedelta, date and Decimal; wrappers are
their value or None; Struct, Value and ListValue are what JSON has. Fields that are not set are None, if the schema
can tell that they are not.
"""

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import Message

from ottla.registry.schemas.protobuf.protobuf_schema import ProtobufSchema
from ottla.registry.serde.errors import ValueNotReadableError, ValueNotSerializableError

_FILE_NAME: Final = "default"
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_TYPE_ENUM: Final = 14
_TYPE_BYTES: Final = 12


class MessageClasses:
    """The classes of the messages of a schema, in a pool of their own."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        try:
            for file in schema.import_descriptors():
                self._pool.AddSerializedFile(file.SerializeToString())
            self._pool.AddSerializedFile(schema.file_descriptor(_FILE_NAME).SerializeToString())
        except TypeError as error:
            raise ValueNotReadableError(f"the Protobuf runtime refuses the schema: {error}") from error

    def find(self, full_name: str) -> type[Message]:
        """The class of a message. Raises `ValueNotReadableError`."""
        try:
            found: type[Message] = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(full_name))
        except KeyError as error:
            raise ValueNotReadableError(f"the schema has no message {full_name}") from error
        return found


# Dicts to messages


def fill(message: Any, values: Mapping[str, Any]) -> None:
    """Sets the fields of a message. Raises `ValueNotSerializableError`."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in values.items():
        field = fields.get(name)
        if field is None:
            raise ValueNotSerializableError(f"message {message.DESCRIPTOR.full_name} has no field {name}")
        if value is None:
            continue
        try:
            _set(message, field, value)
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ValueNotSerializableError(f"field {field.full_name}: {error}") from error


def _set(message: Any, field: Any, value: Any) -> None:
    if is_map(field):
        container = getattr(message, field.name)
        value_field = field.message_type.fields_by_name["value"]
        for key, item in value.items():
            if value_field.message_type is None:
                container[key] = _scalar(value_field, item)
            else:
                _set_message(container[key], item)
    elif is_repeated(field):
        container = getattr(message, field.name)
        for item in value:
            if field.message_type is None:
                container.append(_scalar(field, item))
            else:
                _set_message(container.add(), item)
    elif field.message_type is not None:
        target = getattr(message, field.name)
        target.SetInParent()
        _set_message(target, value)
    else:
        setattr(message, field.name, _scalar(field, value))


def _scalar(field: Any, value: Any) -> Any:
    if field.type == _TYPE_ENUM and isinstance(value, str):
        known = field.enum_type.values_by_name.get(value)
        if known is None:
            raise ValueError(f"enum {field.enum_type.full_name} has no value {value}")
        return known.number
    if field.type == _TYPE_BYTES and isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value


def _set_message(target: Any, value: Any) -> None:
    if isinstance(value, Message):
        if value.DESCRIPTOR.full_name != target.DESCRIPTOR.full_name:
            raise TypeError(f"expected {target.DESCRIPTOR.full_name}, not {value.DESCRIPTOR.full_name}")
        target.MergeFromString(value.SerializePartialToString())
        return
    setter = _SETTERS.get(target.DESCRIPTOR.full_name)
    if setter is not None and not (isinstance(value, Mapping) and target.DESCRIPTOR.full_name not in _JSON):
        setter(target, value)
    elif isinstance(value, Mapping):
        fill(target, value)
    else:
        raise TypeError(f"expected a dict for {target.DESCRIPTOR.full_name}, not {type(value).__name__}")


def _set_timestamp(target: Any, value: datetime.datetime) -> None:
    moment = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
    span = moment - _EPOCH
    target.seconds = span.days * 86_400 + span.seconds
    target.nanos = span.microseconds * 1_000


def _set_duration(target: Any, value: datetime.timedelta) -> None:
    # Seconds and nanoseconds have the same sign.
    microseconds = abs(value) // datetime.timedelta(microseconds=1)
    sign = -1 if value < datetime.timedelta() else 1
    target.seconds = sign * (microseconds // 1_000_000)
    target.nanos = sign * (microseconds % 1_000_000) * 1_000


def _set_date(target: Any, value: datetime.date) -> None:
    target.year, target.month, target.day = value.year, value.month, value.day


def _set_decimal_text(target: Any, value: Decimal) -> None:
    target.value = str(value)


def _set_unscaled_decimal(target: Any, value: Decimal) -> None:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} has no digits")
    unscaled = int("".join(map(str, digits)) or "0") * 10 ** max(exponent, 0)
    unscaled = -unscaled if sign else unscaled
    target.value = unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
    target.precision = len(digits) + max(exponent, 0)
    target.scale = max(-exponent, 0)


def _set_wrapped(target: Any, value: Any) -> None:
    target.value = value


def _set_json(target: Any, value: Any) -> None:
    json_format.ParseDict(value, target)


_WRAPPERS: Final = tuple(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_JSON: Final = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
_SETTERS: Final[Mapping[str, Callable[[Any, Any], None]]] = {
    "google.protobuf.Timestamp": _set_timestamp,
    "google.protobuf.Duration": _set_duration,
    "google.type.Date": _set_date,
    "google.type.Decimal": _set_decimal_text,
    "confluent.type.Decimal": _set_unscaled_decimal,
    **dict.fromkeys(_WRAPPERS, _set_wrapped),
    **dict.fromkeys(_JSON, _set_json),
}


# Messages to dicts


def as_dict(message: Any) -> dict[str, Any]:
    """The fields of a message. Raises `ValueNotReadableError`."""
    return {field.name: _get(message, field) for field in message.DESCRIPTOR.fields}


def _get(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if is_map(field):
        value_field = field.message_type.fields_by_name["value"]
        return {key: _plain(value_field, value[key]) for key in value}
    if is_repeated(field):
        return [_plain(field, item) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(field, value)


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        getter = _GETTERS.get(field.message_type.full_name)
        if getter is None:
            return as_dict(value)
        try:
            return getter(value)
        except (ValueError, OverflowError, ArithmeticError) as error:
            raise ValueNotReadableError(f"field {field.full_name} is out of the range of Python: {error}") from error
    if field.type == _TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


def _timestamp(value: Any) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)


def _duration(value: Any) -> datetime.timedelta:
    return datetime.timedelta(seconds=value.seconds, microseconds=value.nanos / 1_000)


def _date(value: Any) -> datetime.date:
    return datetime.date(value.year, value.month, value.day)


def _unscaled_decimal(value: Any) -> Decimal:
    return Decimal(int.from_bytes(value.value, "big", signed=True)).scaleb(-value.scale)


_GETTERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "google.protobuf.Timestamp": _timestamp,
    "google.protobuf.Duration": _duration,
    "google.type.Date": _date,
    "google.type.Decimal": lambda value: Decimal(value.value),
    "confluent.type.Decimal": _unscaled_decimal,
    **dict.fromkeys(_WRAPPERS, lambda value: value.value),
    **dict.fromkeys(_JSON, json_format.MessageToDict),
}


def is_repeated(field: Any) -> bool:
    """Whether a field is a list or a map."""
    # `label` is deprecated in favour of `is_repeated`, which versions before 6 do not have.
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def is_map(field: Any) -> bool:
    """Whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry) and is_repeated(field)
