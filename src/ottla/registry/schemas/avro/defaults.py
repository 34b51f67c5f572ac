"""Whether the default value of a field fits the field's type."""

from collections.abc import Iterable
from typing import Any, Final

from ottla.registry.schemas.avro.avro_types import Array, AvroType, Field, Map, Record, Union
from ottla.registry.schemas.avro.deep_calls import TooManyCallsError, Walk, run_walk
from ottla.registry.schemas.avro.json_text import is_int, is_long, is_number, write_json
from ottla.registry.schemas.parsed_schema import InvalidSchemaError

_CALLS_MAX: Final = 500_000
_SHOWN_MAX: Final = 200


class DefaultCheck:
    """Checks the defaults of one schema. A value is compared with a type once, wherever it is used."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], bool] = {}
        self._calls_left = _CALLS_MAX

    def check(self, record: Record, fields: Iterable[Field]) -> None:
        """Raises `InvalidSchemaError` about the first of these fields of the record whose default does not fit."""
        for each in fields:
            if each.has_default and not self._fits(each.type, each.default):
                shown = write_json(each.default)
                if len(shown) > _SHOWN_MAX:
                    shown = f"{shown[:_SHOWN_MAX]}…"
                raise InvalidSchemaError(
                    f"the default {shown} of field {each.name} in record {record.name.full} does not fit its type"
                    f" {each.type.kind}"
                )

    def _fits(self, node: AvroType, value: Any) -> bool:
        try:
            return run_walk(self._walk(node, value), self._calls_left)
        except TooManyCallsError as error:
            raise InvalidSchemaError("the defaults of the schema are too complex to check") from error

    def _walk(self, node: AvroType, value: Any) -> Walk[bool]:
        self._calls_left -= 1
        if not isinstance(node, Array | Map | Union | Record):
            return _SCALARS[node.kind](value)
        pair = (id(node), id(value))
        known = self._known.get(pair)
        if known is not None:
            return known
        # A default that comes back to itself has no end, so it fits nothing.
        self._known[pair] = False
        fits = yield self._walk_parts(node, value)
        self._known[pair] = fits
        return bool(fits)

    def _walk_parts(self, node: AvroType, value: Any) -> Walk[bool]:
        parts: list[tuple[AvroType, Any]]
        match node:
            case Union():
                for branch in node.branches:
                    if (yield self._walk(branch, value)):
                        return True
                return False
            case Array() if isinstance(value, list):
                parts = [(node.items, each) for each in value]
            case Map() if isinstance(value, dict):
                parts = [(node.values, each) for each in value.values()]
            case Record() if isinstance(value, dict):
                if any(each.name not in value and not each.has_default for each in node.fields):
                    return False
                parts = [(each.type, value.get(each.name, each.default)) for each in node.fields]
            case _:
                return False
        for part, each in parts:
            if not (yield self._walk(part, each)):
                return False
        return True


def _is_text(value: Any) -> bool:
    return type(value) is str


_SCALARS: Final = {
    "null": lambda value: value is None,
    "boolean": lambda value: type(value) is bool,
    "int": is_int,
    "long": is_long,
    "float": is_number,
    "double": is_number,
    "bytes": _is_text,
    "string": _is_text,
    "enum": _is_text,
    "fixed": _is_text,
}
