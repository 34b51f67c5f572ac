"""The keywords of one schema object, read with their types."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.registry.schemas.json_schema.subschemas import Number
from ottla.registry.schemas.parsed_schema import InvalidSchemaError

_INT_MAX: Final = 2**31 - 1
_LOCATION_LENGTH_MAX: Final = 200


class Location(NamedTuple):
    """A place in a schema, such as `#/properties/name`. Its text is made only for a message: names may be long."""

    segment: str
    outer: "Location | None" = None

    def __str__(self) -> str:
        segments = [self.segment]
        outer = self.outer
        while outer is not None:
            segments.append(outer.segment)
            outer = outer.outer
        text = "/".join(reversed(segments))
        return text if len(text) <= _LOCATION_LENGTH_MAX else f"...{text[-_LOCATION_LENGTH_MAX:]}"


class Keywords:
    """A schema object at a location. Every method raises `InvalidSchemaError`."""

    def __init__(self, value: Mapping[str, Any], location: Location) -> None:
        self.value: Final = value
        self.location: Final = location

    def __contains__(self, keyword: str) -> bool:
        return keyword in self.value

    def __getitem__(self, keyword: str) -> Any:
        return self.value[keyword]

    def error(self, keyword: str, expected: str) -> InvalidSchemaError:
        """The keyword has a value of the wrong kind."""
        return InvalidSchemaError(f"{self.location}: {keyword} must be {expected}")

    def text(self, keyword: str) -> str | None:
        """A string."""
        value = self.value.get(keyword)
        if value is None and keyword not in self.value:
            return None
        if not isinstance(value, str):
            raise self.error(keyword, "a string")
        return value

    def boolean(self, keyword: str) -> bool | None:
        """A boolean."""
        value = self.value.get(keyword)
        if value is None and keyword not in self.value:
            return None
        if not isinstance(value, bool):
            raise self.error(keyword, "a boolean")
        return value

    def number(self, keyword: str) -> Number | None:
        """A number."""
        value = self.value.get(keyword)
        if value is None and keyword not in self.value:
            return None
        if isinstance(value, bool) or not isinstance(value, Number):
            raise self.error(keyword, "a number")
        return value

    def size(self, keyword: str) -> int | None:
        """An integer of 32 bits, written without a fraction."""
        value = self.number(keyword)
        if value is None:
            return None
        if not isinstance(value, int) or not -_INT_MAX <= value <= _INT_MAX:
            raise self.error(keyword, f"an integer up to {_INT_MAX}")
        return value

    def whole(self, keyword: str) -> int | None:
        """A number without its fraction."""
        value = self.number(keyword)
        return None if value is None else whole_number(value)

    def array(self, keyword: str) -> list[Any]:
        """An array; empty if the keyword is not there."""
        value = self.value.get(keyword)
        if value is None and keyword not in self.value:
            return []
        if not isinstance(value, list):
            raise self.error(keyword, "an array")
        return value

    def strings(self, keyword: str) -> tuple[str, ...]:
        """An array of strings."""
        values = self.array(keyword)
        if not all(isinstance(value, str) for value in values):
            raise self.error(keyword, "an array of strings")
        return tuple(values)

    def mapping(self, keyword: str) -> dict[str, Any]:
        """An object; empty if the keyword is not there."""
        value = self.value.get(keyword)
        if value is None and keyword not in self.value:
            return {}
        if not isinstance(value, dict):
            raise self.error(keyword, "an object")
        return value


def whole_number(value: Number) -> int:
    """A number without its fraction, limited to 32 bits."""
    return int(min(max(value, -_INT_MAX), _INT_MAX))
