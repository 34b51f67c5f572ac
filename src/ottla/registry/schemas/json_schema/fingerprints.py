"""Whether two subschemas are written alike. A union counts a member that occurs twice as one.

References are compared by what they are called, not by what they mean.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from ottla.registry.schemas.json_schema.subschemas import ABSENT, ReferenceSchema, Subschema

_NOT_COMPARED: Final = frozenset({"target", "implied"})
_DEFINITIONS: Final = frozenset({"definitions", "$defs"})
"""They say nothing about a value: references to them do."""
_JSON_FIELDS: Final = frozenset({"other", "default", "value"})
_CHARACTERS_PER_STEP: Final = 100


class Fingerprints:
    """Computes the fingerprint of each subschema once. `spend` is told how much work that is."""

    def __init__(self, spend: Callable[[int], None]) -> None:
        self._spend = spend
        self._known: dict[int, bytes] = {}
        self._kept: list[Subschema] = []  # so that no identity is used twice

    def of(self, schema: Subschema) -> bytes:
        """Equal for subschemas that are written alike."""
        stack = [(schema, False)]
        while stack:
            current, ready = stack.pop()
            if id(current) in self._known:
                continue
            if ready:
                self._known[id(current)] = self._digest(current)
                self._kept.append(current)
            else:
                stack.append((current, True))
                stack.extend((child, False) for child in _children(current))
        return self._known[id(schema)]

    def _digest(self, schema: Subschema) -> bytes:
        digest = hashlib.sha256(type(schema).__name__.encode())
        for field in fields(schema):
            value = getattr(schema, field.name)
            if field.name not in _NOT_COMPARED and value is not ABSENT:
                digest.update(f"\0{field.name}\0{self._text(field.name, value)}".encode("utf-8", "surrogatepass"))
        return digest.digest()

    def _text(self, name: str, value: Any) -> str:
        match value:
            case Subschema():
                return self._known[id(value)].hex()
            case frozenset():
                return repr(sorted(value))
            case tuple() if name == "values":
                return repr(sorted({self._json(member) for member in value}))
            case tuple():
                return repr([self._text(name, member) for member in value])
            case Mapping() if name == "other":
                return self._json({key: value[key] for key in value if key not in _DEFINITIONS})
            case Mapping() if name not in _JSON_FIELDS:
                return repr([(key, self._text(name, value[key])) for key in sorted(value)])
        return self._json(value)

    def _json(self, value: Any) -> str:
        text = json.dumps(value, sort_keys=True, default=lambda decimal: [str(decimal)])
        self._spend(len(text) // _CHARACTERS_PER_STEP)
        return text


def _children(schema: Subschema) -> Iterator[Subschema]:
    if isinstance(schema, ReferenceSchema):
        return
    for field in fields(schema):
        value = getattr(schema, field.name)
        if isinstance(value, Subschema):
            yield value
        elif isinstance(value, tuple):
            yield from (member for member in value if isinstance(member, Subschema))
        elif isinstance(value, Mapping) and field.name not in _JSON_FIELDS:
            yield from (member for member in value.values() if isinstance(member, Subschema))
