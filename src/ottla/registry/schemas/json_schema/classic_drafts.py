"""The keywords of drafts 4, 6 and 7, as the validator reads them that Confluent's registry uses for these drafts.

`$ref` hides all keywords beside it. `definitions` are loaded only where a `$ref` names them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ottla.registry.schemas.json_schema.drafts import Draft
from ottla.registry.schemas.json_schema.keywords import Keywords, Location
from ottla.registry.schemas.json_schema.subschemas import (
    ABSENT,
    ALL_OF,
    ANY_OF,
    ONE_OF,
    AnythingSchema,
    ArraySchema,
    BooleanSchema,
    CombinedSchema,
    ConditionalSchema,
    ConstSchema,
    EnumSchema,
    NotSchema,
    NullSchema,
    NumberSchema,
    ObjectSchema,
    StringSchema,
    Subschema,
)

Child = Callable[[Any], Subschema]
"""The subschema that was loaded from a value inside the schema."""
Refer = Callable[[str], Subschema]
"""A reference to what a `$ref` names."""

_ALL_CHILDREN: Final = (
    *("not", "items", "additionalItems", "additionalProperties", "contains", "propertyNames"),
    *("if", "then", "else"),
)
_CONDITION_KEYWORDS: Final = frozenset({"if", "then", "else"})
_LATER_KEYWORDS: Final = {
    Draft.DRAFT_4: _CONDITION_KEYWORDS | {"contains", "propertyNames", "const"},
    Draft.DRAFT_6: _CONDITION_KEYWORDS,
    Draft.DRAFT_7: frozenset[str](),
}
"""Keywords that a draft does not have yet."""
_CHILDREN: Final = {
    draft: tuple(keyword for keyword in _ALL_CHILDREN if keyword not in later)
    for draft, later in _LATER_KEYWORDS.items()
}
_CHILD_LISTS: Final = (ALL_OF, ANY_OF, ONE_OF, "items")
_CHILD_MAPS: Final = ("properties", "patternProperties", "dependencies")

_OBJECT_KEYWORDS: Final = frozenset(
    {"properties", "required", "minProperties", "maxProperties", "dependencies"}
    | {"patternProperties", "additionalProperties", "propertyNames"}
)
_ARRAY_KEYWORDS: Final = frozenset({"items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains"})
_NUMBER_KEYWORDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_STRING_KEYWORDS: Final = frozenset({"minLength", "maxLength", "pattern", "format"})
_ANNOTATIONS: Final = frozenset({"title", "description", "default"})


def children(value: Mapping[str, Any], draft: Draft) -> Iterator[tuple[str, Any]]:
    """The values inside a schema object that are schemas, each with its place below the object."""
    if "$ref" in value:
        return
    for keyword in _CHILDREN[draft]:
        if isinstance(value.get(keyword), dict):
            yield keyword, value[keyword]
    for keyword in _CHILD_LISTS:
        if isinstance(value.get(keyword), list):
            yield from ((f"{keyword}/{index}", child) for index, child in enumerate(value[keyword]))
    for keyword in _CHILD_MAPS:
        if isinstance(value.get(keyword), dict):
            yield from ((f"{keyword}/{name}", child) for name, child in value[keyword].items())


def build(keywords: Keywords, draft: Draft, *, child: Child, refer: Refer) -> Subschema:
    """The subschema of a schema object whose children are loaded."""
    if "$ref" in keywords:
        schema = refer(keywords.text("$ref") or "")
        used: frozenset[str] = frozenset({"$ref"})
    else:
        schema, used = _Builder(keywords, draft, child).build()
    schema.uri = keywords.text(draft.id_keyword)
    schema.title = keywords.text("title")
    schema.description = keywords.text("description")
    if draft == Draft.DRAFT_7:
        keywords.boolean("readOnly")
        keywords.boolean("writeOnly")
    schema.default = keywords.value.get("default", ABSENT)
    used |= _ANNOTATIONS | {draft.id_keyword}
    schema.other = {keyword: value for keyword, value in keywords.value.items() if keyword not in used}
    return schema


class _Builder:
    def __init__(self, keywords: Keywords, draft: Draft, child: Child) -> None:
        self._keywords = keywords
        self._draft = draft
        self._child = child
        self._used: set[str] = set()

    def build(self) -> tuple[Subschema, frozenset[str]]:
        parts = [*self._explicit(), *self._typed(), *self._untyped()]
        if not parts:
            return AnythingSchema(), frozenset(self._used)
        whole = parts[0] if len(parts) == 1 else CombinedSchema(criterion=ALL_OF, members=tuple(parts), implied=True)
        return whole, frozenset(self._used)

    def _explicit(self) -> Iterator[Subschema]:
        keywords = self._keywords
        if self._take("enum"):
            yield EnumSchema(values=tuple(keywords.array("enum")))
        for criterion in (ALL_OF, ANY_OF, ONE_OF):
            if self._take(criterion):
                members = tuple(self._child(member) for member in keywords.array(criterion))
                yield CombinedSchema(criterion=criterion, members=members)
        if self._take("not"):
            yield NotSchema(schema=self._child(keywords["not"]))
        if self._take("const"):
            yield ConstSchema(value=keywords["const"])

    def _typed(self) -> Iterator[Subschema]:
        if not self._take("type"):
            return
        types = self._keywords["type"]
        if isinstance(types, list):
            members = tuple(self._of_type(name) for name in self._keywords.strings("type"))
            yield CombinedSchema(criterion=ANY_OF, members=members)
        else:
            yield self._of_type(self._keywords.text("type") or "")

    def _of_type(self, name: str) -> Subschema:
        match name:
            case "string":
                return self._string(typed=True)
            case "integer" | "number":
                return self._number(typed=True, integer=name == "integer")
            case "boolean":
                return BooleanSchema()
            case "null":
                return NullSchema()
            case "array":
                return self._array(typed=True)
            case "object":
                return self._object(typed=True)
        raise self._keywords.error("type", f"a type of JSON, not {name!r}")

    def _untyped(self) -> Iterator[Subschema]:
        if self._has_unused(_ARRAY_KEYWORDS):
            yield self._array(typed=False)
        if self._has_unused(_OBJECT_KEYWORDS):
            yield self._object(typed=False)
        if self._has_unused(_NUMBER_KEYWORDS):
            yield self._number(typed=False)
        if self._has_unused(_STRING_KEYWORDS):
            yield self._string(typed=False)
        if self._has_unused(_CONDITION_KEYWORDS):
            yield self._conditional()

    def _string(self, *, typed: bool) -> StringSchema:
        keywords = self._using(_STRING_KEYWORDS)
        return StringSchema(
            typed=typed,
            min_length=keywords.size("minLength"),
            max_length=keywords.size("maxLength"),
            pattern=keywords.text("pattern"),
            format=keywords.text("format"),
        )

    def _number(self, *, typed: bool, integer: bool = False) -> NumberSchema:
        keywords = self._using(_NUMBER_KEYWORDS)
        limit = keywords.boolean if self._draft == Draft.DRAFT_4 else keywords.number
        multiple_of = keywords.number("multipleOf")
        if multiple_of == 0:
            raise keywords.error("multipleOf", "other than 0")
        return NumberSchema(
            typed=typed,
            integer=integer,
            minimum=keywords.number("minimum"),
            maximum=keywords.number("maximum"),
            exclusive_minimum=limit("exclusiveMinimum"),
            exclusive_maximum=limit("exclusiveMaximum"),
            multiple_of=multiple_of,
        )

    def _array(self, *, typed: bool) -> ArraySchema:
        keywords = self._using(_ARRAY_KEYWORDS)
        schema = ArraySchema(
            typed=typed,
            min_items=keywords.size("minItems"),
            max_items=keywords.size("maxItems"),
            unique_items=keywords.boolean("uniqueItems") or False,
            additional_items=self._boolean_or_schema("additionalItems"),
        )
        items = keywords.value.get("items", ABSENT)
        if isinstance(items, list):
            schema.prefix_items = tuple(self._child(item) for item in items) or None
        elif items is not ABSENT:
            if self._draft == Draft.DRAFT_4 and isinstance(items, bool):
                raise keywords.error("items", "an object or an array")
            schema.items = self._child(items)
            schema.additional_items = schema.additional_items or True
        if self._knows("contains") and "contains" in keywords:
            schema.contains = self._child(keywords["contains"])
        return schema

    def _object(self, *, typed: bool) -> ObjectSchema:
        keywords = self._using(_OBJECT_KEYWORDS)
        schema = ObjectSchema(
            typed=typed,
            min_properties=keywords.size("minProperties"),
            max_properties=keywords.size("maxProperties"),
            properties={
                name: self._child(value)
                for name, value in keywords.mapping("properties").items()
                if name != self._draft.id_keyword or isinstance(value, dict)
            },
            pattern_properties={
                pattern: self._child(value) for pattern, value in keywords.mapping("patternProperties").items()
            },
            additional_properties=self._boolean_or_schema("additionalProperties"),
            required=frozenset(keywords.strings("required")),
        )
        dependencies = Keywords(keywords.mapping("dependencies"), Location("dependencies", keywords.location))
        lists = {name for name, value in dependencies.value.items() if isinstance(value, list)}
        schema.required_by = {name: frozenset(dependencies.strings(name)) for name in lists if dependencies[name]}
        schema.schemas_by = {
            name: self._child(value) for name, value in dependencies.value.items() if name not in lists
        }
        if self._draft == Draft.DRAFT_4 and any(isinstance(value, bool) for value in dependencies.value.values()):
            raise keywords.error("dependencies", "an object of objects and arrays")
        if self._knows("propertyNames") and "propertyNames" in keywords:
            schema.property_names = self._child(keywords["propertyNames"])
        return schema

    def _conditional(self) -> ConditionalSchema:
        keywords = self._using(_CONDITION_KEYWORDS)
        loaded = {keyword: self._child(keywords[keyword]) for keyword in _CONDITION_KEYWORDS if keyword in keywords}
        return ConditionalSchema(condition=loaded.get("if"), then=loaded.get("then"), otherwise=loaded.get("else"))

    def _boolean_or_schema(self, keyword: str) -> Subschema | bool:
        value = self._keywords.value.get(keyword, True)
        return value if isinstance(value, bool) else self._child(value)

    def _knows(self, keyword: str) -> bool:
        return keyword not in _LATER_KEYWORDS[self._draft]

    def _take(self, keyword: str) -> bool:
        found = keyword in self._keywords and self._knows(keyword)
        if found:
            self._used.add(keyword)
        return found

    def _using(self, keywords: frozenset[str]) -> Keywords:
        self._used |= keywords - _LATER_KEYWORDS[self._draft]
        return self._keywords

    def _has_unused(self, keywords: frozenset[str]) -> bool:
        return any(keyword in self._keywords and self._knows(keyword) for keyword in keywords - self._used)
