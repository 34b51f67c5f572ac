"""The keywords of drafts 2019-09 and 2020-12, as Confluent's registry turns them into the kinds of schema it compares.

Both drafts are read by the rules of 2020-12: an array as `items`, which 2019-09 has, is refused. What an object says
about one type is one schema; several such schemas, and what stands beside a `$ref`, are an implied `allOf`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.registry.schemas.json_schema.classic_drafts import Child, Refer
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
    NothingSchema,
    NotSchema,
    NullSchema,
    Number,
    NumberSchema,
    ObjectSchema,
    StringSchema,
    Subschema,
)

_CHILDREN: Final = (
    *("not", "items", "contains", "additionalProperties", "propertyNames", "if"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
_CHILD_LISTS: Final = (ALL_OF, ANY_OF, ONE_OF, "prefixItems")
_CHILD_MAPS: Final = ("properties", "patternProperties", "dependentSchemas", "$defs")

_STRING_KEYWORDS: Final = frozenset({"minLength", "maxLength", "pattern"})
_NUMBER_KEYWORDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_ARRAY_KEYWORDS: Final = frozenset(
    {"minItems", "maxItems", "uniqueItems", "prefixItems", "items", "contains", "unevaluatedItems"}
)
_OBJECT_KEYWORDS: Final = frozenset(
    {"properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"}
    | {"required", "minProperties", "maxProperties", "dependentRequired", "dependentSchemas"}
)
_OTHER_KEYWORDS: Final = frozenset(
    {"$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$ref", "$schema", "$vocabulary", "minContains"}
    | {"maxContains", "format", "title", "description", "readOnly", "writeOnly", "deprecated", "default", "enum"}
    | {"const", "type", "not", "if", "then", "else", ALL_OF, ANY_OF, ONE_OF}
)
_KEYWORDS: Final = _STRING_KEYWORDS | _NUMBER_KEYWORDS | _ARRAY_KEYWORDS | _OBJECT_KEYWORDS | _OTHER_KEYWORDS


def children(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values inside a schema object that are schemas, each with its place below the object."""
    for keyword in (*_CHILDREN, *(("then", "else") if "if" in value else ())):
        if isinstance(value.get(keyword), dict):
            yield keyword, value[keyword]
    for keyword in _CHILD_LISTS:
        if isinstance(value.get(keyword), list):
            yield from ((f"{keyword}/{index}", child) for index, child in enumerate(value[keyword]))
    for keyword in _CHILD_MAPS:
        if isinstance(value.get(keyword), dict):
            yield from ((f"{keyword}/{name}", child) for name, child in value[keyword].items())


def build(keywords: Keywords, *, child: Child, refer: Refer) -> Subschema:
    """The subschema of a schema object whose children are loaded."""
    for definition in keywords.mapping("$defs").values():
        child(definition)
    parts = [*_references(keywords, refer), *_by_type(keywords, child), *_explicit(keywords, child)]
    if not parts:
        schema: Subschema = AnythingSchema()
    elif len(parts) == 1:
        schema = parts[0]
    else:
        schema = CombinedSchema(criterion=ALL_OF, members=tuple(parts), implied=True)
    keywords.text("format")
    for keyword in ("readOnly", "writeOnly", "deprecated"):
        keywords.boolean(keyword)
    identifier = keywords.value.get("$id")
    schema.uri = identifier if isinstance(identifier, str) else None
    schema.title = keywords.text("title")
    schema.description = keywords.text("description")
    schema.default = ABSENT if keywords.value.get("default") is None else keywords["default"]
    schema.other = {keyword: value for keyword, value in keywords.value.items() if keyword not in _KEYWORDS}
    return schema


def _references(keywords: Keywords, refer: Refer) -> Iterator[Subschema]:
    for keyword in ("$ref", "$dynamicRef"):
        reference = keywords.text(keyword)
        if reference is not None:
            yield refer(reference)


def _by_type(keywords: Keywords, child: Child) -> Iterator[Subschema]:
    """What `type` says, merged with the keywords for that type, and the keywords for other types."""
    about = {type(schema): schema for schema in _about_types(keywords, child)}
    if isinstance(keywords.value.get("type"), list):
        members = tuple(_typed(name, about, keywords) for name in keywords.strings("type"))
        yield CombinedSchema(criterion=ANY_OF, members=members, implied=True)
    elif "type" in keywords:
        yield _typed(keywords.text("type"), about, keywords)
    yield from about.values()


def _typed(name: str | None, about: dict[type[Subschema], Subschema], keywords: Keywords) -> Subschema:
    if name not in _TYPES:
        raise keywords.error("type", f"a type of JSON, not {name!r}")
    schema = _TYPES[name]()
    said = about.pop(type(schema), None)
    if isinstance(said, NumberSchema):
        return replace(said, typed=True, integer=name == "integer")
    if isinstance(said, StringSchema | ArraySchema | ObjectSchema):
        return replace(said, typed=True)
    return schema


_TYPES: Final[dict[str | None, Callable[[], Subschema]]] = {
    "string": StringSchema,
    "integer": lambda: NumberSchema(integer=True),
    "number": NumberSchema,
    "boolean": BooleanSchema,
    "null": NullSchema,
    "array": ArraySchema,
    "object": ObjectSchema,
}


def _about_types(keywords: Keywords, child: Child) -> Iterator[Subschema]:
    present = keywords.value.keys()
    if present & _STRING_KEYWORDS:
        yield StringSchema(
            typed=False,
            min_length=keywords.whole("minLength"),
            max_length=keywords.whole("maxLength"),
            pattern=keywords.text("pattern"),
        )
    if present & _NUMBER_KEYWORDS:
        yield NumberSchema(
            typed=False,
            minimum=keywords.number("minimum"),
            maximum=keywords.number("maximum"),
            exclusive_minimum=keywords.number("exclusiveMinimum"),
            exclusive_maximum=keywords.number("exclusiveMaximum"),
            multiple_of=keywords.number("multipleOf"),
        )
    if present & _ARRAY_KEYWORDS:
        yield _about_arrays(keywords, child)
    if present & _OBJECT_KEYWORDS:
        yield _about_objects(keywords, child)


def _about_arrays(keywords: Keywords, child: Child) -> ArraySchema:
    def optional(keyword: str) -> Subschema | None:
        return child(keywords[keyword]) if keyword in keywords else None

    schema = ArraySchema(
        typed=False,
        min_items=keywords.whole("minItems"),
        max_items=keywords.whole("maxItems"),
        unique_items=keywords.boolean("uniqueItems") or False,
        prefix_items=tuple(child(item) for item in keywords.array("prefixItems")) or None,
        contains=optional("contains"),
        unevaluated_items=optional("unevaluatedItems"),
    )
    if schema.contains is not None:
        schema.min_contains = _count(keywords, "minContains", 1)
        schema.max_contains = _count(keywords, "maxContains", None)
    items = optional("items")
    if isinstance(items, NothingSchema):
        schema.additional_items = False
    elif items is not None and not _is_literally_true(items):
        if schema.prefix_items is None:
            schema.items = items
        else:
            schema.additional_items = items
    return schema


def _count(keywords: Keywords, keyword: str, otherwise: int | None) -> Number | None:
    value = keywords.value.get(keyword)
    return value if isinstance(value, Number) and not isinstance(value, bool) else otherwise


def _about_objects(keywords: Keywords, child: Child) -> ObjectSchema:
    def optional(keyword: str) -> Subschema | None:
        return child(keywords[keyword]) if keyword in keywords else None

    def mapped(keyword: str) -> dict[str, Subschema]:
        return {name: child(value) for name, value in keywords.mapping(keyword).items()}

    required_by = Keywords(keywords.mapping("dependentRequired"), Location("dependentRequired", keywords.location))
    schema = ObjectSchema(
        typed=False,
        properties=mapped("properties"),
        pattern_properties=mapped("patternProperties"),
        required=frozenset(keywords.strings("required")),
        min_properties=keywords.whole("minProperties"),
        max_properties=keywords.whole("maxProperties"),
        required_by={name: frozenset(required_by.strings(name)) for name in required_by.value if required_by[name]},
        schemas_by=mapped("dependentSchemas"),
        property_names=optional("propertyNames"),
        unevaluated_properties=optional("unevaluatedProperties"),
    )
    additional = optional("additionalProperties")
    if isinstance(additional, NothingSchema):
        schema.additional_properties = False
    elif additional is not None and not _is_literally_true(additional):
        schema.additional_properties = additional
    return schema


def _is_literally_true(schema: Subschema) -> bool:
    return isinstance(schema, AnythingSchema) and schema.literal


def _explicit(keywords: Keywords, child: Child) -> Iterator[Subschema]:
    if "enum" in keywords:
        yield EnumSchema(values=tuple(keywords.array("enum")))
    if "const" in keywords:
        yield ConstSchema(value=keywords["const"])
    if "not" in keywords:
        yield NotSchema(schema=child(keywords["not"]))
    for criterion in (ALL_OF, ANY_OF, ONE_OF):
        if criterion in keywords:
            members = [member for value in keywords.array(criterion) for member in _flattened(child(value))]
            yield CombinedSchema(criterion=criterion, members=tuple(members))
    if "if" in keywords:
        branches = [child(keywords[keyword]) if keyword in keywords else None for keyword in ("then", "else")]
        yield ConditionalSchema(condition=child(keywords["if"]), then=branches[0], otherwise=branches[1])


def _flattened(schema: Subschema) -> tuple[Subschema, ...]:
    """An implied `allOf` is taken apart where it is a member of another one. So does Confluent's registry."""
    if isinstance(schema, CombinedSchema) and schema.implied and schema.criterion == ALL_OF:
        return schema.members
    return (schema,)
