"""Dataclasses, msgspec structs and Pydantic models as dicts and back, for encoders that know dicts."""

import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ottla.registry.serde.errors import ValueNotReadableError

_KEPT: Final = (
    bytes, bytearray, memoryview, datetime.datetime, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal,
    uuid.UUID,
)  # fmt: skip
"""What encoders write by a logical type of the schema."""


def is_class_of_records(kind: Any) -> bool:
    """Whether a class has fields of its own: a dataclass, a msgspec struct or a Pydantic model."""
    return isinstance(kind, type) and (
        hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__struct_fields__") or hasattr(kind, "model_fields")
    )


def plain_value(value: Any) -> Any:
    """The value in dicts, lists and scalars. Dicts are taken as they are."""
    kind = type(value)
    if hasattr(kind, "model_fields"):
        return value.model_dump()
    if is_class_of_records(kind):
        return msgspec.to_builtins(value, builtin_types=_KEPT)
    return value


def converter_into(kind: type[Any]) -> Callable[[Any], Any]:
    """A function that makes an object of the class of a dict. Names that the class does not have are left out."""
    if hasattr(kind, "model_validate"):
        validate: Callable[[Any], Any] = kind.model_validate
        return validate

    def convert(value: Any) -> Any:
        try:
            return msgspec.convert(value, kind, builtin_types=_KEPT)
        except msgspec.ValidationError as error:
            raise ValueNotReadableError(f"the value does not fit {kind.__name__}: {error}") from error

    return convert
