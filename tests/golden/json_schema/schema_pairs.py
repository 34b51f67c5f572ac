"""Random pairs of JSON Schemas: a schema, and the same schema after some changes. Equal for equal seeds."""

import copy
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

DRAFTS: Final = {
    "4": "http://json-schema.org/draft-04/schema#",
    "6": "http://json-schema.org/draft-06/schema#",
    "7": "http://json-schema.org/draft-07/schema#",
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}
TYPES: Final = ("string", "integer", "number", "boolean", "null", "array", "object")
NAMES: Final = ("a", "b", "c", "x-d", "nom é")
PATTERNS: Final = ("^x-", "^[a-c]$", "é", "[0-9]+$", ".*")
VALUES: Final = (1, 2, 1.5, "red", "green", "", True, False, None, [1], {"a": 1})
LIMITS: Final = (0, 1, 2, 5, 10, 2.5, -3, 100000000000)

Schema = dict[str, Any]
Make = Callable[[], Any]


class SchemaPairs:
    """Makes schemas of one draft."""

    def __init__(self, seed: int, draft: str) -> None:
        self._random = random.Random(f"{seed} {draft}")
        self._draft = draft
        self._modern = draft.startswith("20")
        self._definitions: list[str] = []

    def pair(self) -> tuple[Any, Any]:
        """A schema and another one, most often a changed one."""
        self._definitions = [f"d{index}" for index in range(self._random.choice((0, 0, 1, 2)))]
        first = self._document()
        if self._random.random() < 0.05:
            return first, self._document()
        second = copy.deepcopy(first)
        for _ in range(self._random.choice((0, 1, 1, 1, 2, 3))):
            second = self._changed(second)
        return (first, second) if self._random.random() < 0.5 else (second, first)

    def _document(self) -> Schema:
        schema = self._object_schema(3) if self._random.random() < 0.5 else self._schema(3)
        if isinstance(schema, bool):
            schema = {"not": {}} if schema else {"type": "object"}
        document = {"$schema": DRAFTS[self._draft], **schema}
        if self._definitions:
            keyword = "$defs" if self._modern else "definitions"
            names, self._definitions = self._definitions, []
            document[keyword] = {name: self._schema(2, boolean=False) for name in names}
            self._definitions = names
            if self._random.random() < 0.5:
                document[keyword][names[0]] = {"type": "object", "properties": {"again": self._reference()}}
        return document

    # Schemas

    def _schema(self, depth: int, *, boolean: bool = True) -> Any:
        chance = self._random.random()
        if boolean and self._draft != "4" and chance < 0.05:
            return self._random.random() < 0.6
        if chance < 0.08:
            return {}
        if self._definitions and chance < 0.18:
            return self._reference()
        if depth > 0 and chance < 0.34:
            return self._combined(depth)
        if chance < 0.40:
            return self._multiple_types(depth)
        if chance < 0.45:
            return {"enum": self._random.sample(VALUES, self._random.randint(1, 4))}
        if self._draft != "4" and chance < 0.48:
            return {"const": self._random.choice([value for value in VALUES if value is not None])}
        if depth > 0 and chance < 0.51:
            return {"not": self._schema(depth - 1)}
        if chance < 0.56:
            return self._untyped(depth)
        return self._typed(self._random.choice(TYPES), depth)

    def _reference(self) -> Schema:
        name = self._random.choice(self._definitions)
        return {"$ref": f"#/{'$defs' if self._modern else 'definitions'}/{name}"}

    def _combined(self, depth: int) -> Schema:
        criterion = self._random.choice(("allOf", "anyOf", "oneOf", "oneOf"))
        members = [self._schema(depth - 1) for _ in range(self._random.choice((1, 2, 2, 3)))]
        return {criterion: members, **({"type": "object"} if self._random.random() < 0.1 else {})}

    def _multiple_types(self, depth: int) -> Schema:
        types = self._random.sample(TYPES, self._random.choice((1, 2, 2, 3)))
        schema: Schema = {"type": types}
        if self._random.random() < 0.4:
            schema.update(self._keywords(self._random.choice(types), depth))
        return schema

    def _untyped(self, depth: int) -> Schema:
        return self._keywords(self._random.choice(("string", "number", "array", "object")), depth, at_least=1)

    def _typed(self, name: str, depth: int) -> Schema:
        schema = {"type": name, **self._keywords(name, depth)}
        if self._random.random() < 0.1:
            schema["default"] = self._random.choice(VALUES)
        if self._random.random() < 0.05:
            schema["title"] = self._random.choice(("one", "two"))
        if self._random.random() < 0.03:
            schema["connect.type"] = self._random.choice(("bytes", "int8"))
        return schema

    def _object_schema(self, depth: int) -> Schema:
        schema = self._typed("object", depth)
        schema.setdefault("properties", {name: self._schema(depth - 1) for name in self._random.sample(NAMES, 2)})
        return schema

    def _keywords(self, name: str, depth: int, at_least: int = 0) -> Schema:
        makers = self._makers(name, depth)
        chosen = self._random.sample(sorted(makers), min(len(makers), self._random.randint(at_least, 3)))
        return {keyword: makers[keyword]() for keyword in chosen}

    def _makers(self, name: str, depth: int) -> dict[str, Make]:
        """How to make the value of each keyword for a type."""
        inner = partial(self._schema, depth - 1)
        match name:
            case "string":
                pattern = partial(self._random.choice, PATTERNS)
                return {"minLength": self._size, "maxLength": self._size, "pattern": pattern, "format": _a_format}
            case "integer" | "number":
                limit = partial(self._random.choice, LIMITS)
                exclusive = self._boolean if self._draft == "4" else limit
                return {
                    "minimum": limit,
                    "maximum": limit,
                    "multipleOf": partial(self._random.choice, (1, 2, 4, 3, 0.5, 1.50)),
                    "exclusiveMinimum": exclusive,
                    "exclusiveMaximum": exclusive,
                }
            case "array":
                return self._array_makers(inner) if depth > 0 else {"minItems": self._size, "maxItems": self._size}
            case "object":
                return self._object_makers(inner) if depth > 0 else {"minProperties": self._size}
        return {}

    def _array_makers(self, inner: Make) -> dict[str, Make]:
        def tuple_of() -> list[Any]:
            return [inner() for _ in range(self._random.randint(1, 3))]

        def items() -> Any:
            return tuple_of() if self._random.random() < 0.6 else self._schema(1, boolean=self._draft != "4")

        makers: dict[str, Make] = {"minItems": self._size, "maxItems": self._size, "uniqueItems": self._boolean}
        if self._modern:
            contained: dict[str, Make] = {"contains": inner, "minContains": self._size, "maxContains": self._size}
            return makers | {"prefixItems": tuple_of, "items": inner, "unevaluatedItems": inner} | contained
        return makers | {"items": items, "additionalItems": inner} | ({} if self._draft == "4" else {"contains": inner})

    def _object_makers(self, inner: Make) -> dict[str, Make]:
        def properties() -> dict[str, Any]:
            return {name: inner() for name in self._some_names()}

        def required_by() -> dict[str, Any]:
            return {name: self._some_names() for name in self._some_names()}

        def schemas_by() -> dict[str, Any]:
            return {name: self._schema(1, boolean=self._draft != "4") for name in self._some_names()}

        def others() -> Any:
            return False if self._boolean() else inner()

        makers: dict[str, Make] = {
            "properties": properties,
            "additionalProperties": others,
            "required": self._some_names,
            "minProperties": self._size,
            "maxProperties": self._size,
            "patternProperties": lambda: {self._random.choice(PATTERNS): inner()},
        }
        if self._modern:
            dependent: dict[str, Make] = {"dependentRequired": required_by, "dependentSchemas": properties}
            return makers | dependent | {"unevaluatedProperties": others}
        return makers | {"dependencies": lambda: required_by() if self._boolean() else schemas_by()}

    def _size(self) -> int:
        return self._random.choice((0, 1, 2, 5))

    def _boolean(self) -> bool:
        return self._random.random() < 0.5

    def _some_names(self) -> list[str]:
        return self._random.sample(NAMES, self._random.randint(1, 3))

    # Changes

    def _changed(self, schema: Any) -> Any:
        """The schema with one change, somewhere."""
        place, key = self._random.choice(list(_places(schema)))
        old = place[key]
        if isinstance(old, bool):
            place[key] = self._schema(1)
            return schema
        change = self._random.random()
        keywords = [keyword for keyword in old if keyword not in ("$schema", "definitions", "$defs")]
        if change < 0.25 and keywords:
            del old[self._random.choice(keywords)]
        elif change < 0.5:
            name = old.get("type") if isinstance(old.get("type"), str) else self._random.choice(TYPES)
            old.update(self._keywords(name, 2, at_least=1))
        elif change < 0.75:
            self._change_inside(old)
        elif place is not old and key != "":
            place[key] = self._wrapped(old) if change < 0.85 else self._schema(1, boolean=self._draft != "4")
        return schema

    def _wrapped(self, schema: Any) -> Any:
        members = [schema, *([self._schema(1)] if self._random.random() < 0.6 else [])]
        self._random.shuffle(members)
        return {self._random.choice(("allOf", "anyOf", "oneOf")): members}

    def _change_inside(self, schema: Schema) -> None:
        """Changes a list or a map of the schema: a member more or less."""
        for keyword in self._random.sample(sorted(schema), len(schema)):
            value = schema[keyword]
            if keyword in ("properties", "patternProperties", "dependentSchemas") and value:
                if self._random.random() < 0.5:
                    del value[self._random.choice(sorted(value))]
                else:
                    value[self._random.choice(NAMES)] = self._schema(1)
                return
            if keyword in ("allOf", "anyOf", "oneOf", "prefixItems", "enum", "required") and isinstance(value, list):
                if self._random.random() < 0.5 and len(value) > 1:
                    value.pop(self._random.randrange(len(value)))
                elif keyword == "enum":
                    value.append(self._random.choice(VALUES))
                elif keyword == "required":
                    value.append(self._random.choice(NAMES))
                else:
                    value.insert(self._random.randint(0, len(value)), self._schema(1))
                return


def _a_format() -> str:
    return "date-time"


_MAPS: Final = ("properties", "patternProperties", "dependentSchemas", "definitions", "$defs")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE: Final = ("items", "not", "additionalProperties", "additionalItems", "contains")


def _places(schema: Any) -> list[tuple[Any, Any]]:
    """Where schemas are, as containers and keys; the schema itself is below a container of its own."""
    root = {"": schema}
    places: list[tuple[Any, Any]] = [(root, "")]
    found: list[tuple[Any, Any]] = []
    while places:
        place, key = places.pop()
        found.append((place, key))
        inner = place[key]
        if isinstance(inner, dict):
            places += [
                (inner[map_], name) for map_ in _MAPS if isinstance(inner.get(map_), dict) for name in inner[map_]
            ]
            places += [
                (inner[list_], index)
                for list_ in (*_LISTS, "items")
                if isinstance(inner.get(list_), list)
                for index in range(len(inner[list_]))
            ]
            places += [(inner, single) for single in _SINGLE if isinstance(inner.get(single), dict | bool)]
    return found
