"""Random values where keywords expect others: a schema is refused or compared, nothing else happens."""

import json
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.registry.schemas.json_schema.drafts import Draft
from ottla.registry.schemas.json_schema.json_schema import JsonSchema, parse, parse_new
from ottla.registry.schemas.parsed_schema import InvalidSchemaError, SchemaEntity

DIALECTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]
TYPES = ["string", "integer", "number", "object", "array", "boolean", "null", "any"]
SCALARS = st.sampled_from([None, True, False, 0, 1, -1, 2.5, 1e300, "", "a", "#", "#/x", "^a", "(", "a.json", *TYPES])
KEYWORDS = st.sampled_from(
    [
        *("$id", "id", "$ref", "$defs", "definitions", "$anchor", "$dynamicRef", "type", "enum", "const"),
        *("not", "allOf", "anyOf", "oneOf", "if", "then", "else"),
        *("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "required"),
        *("dependencies", "dependentRequired", "dependentSchemas"),
        *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "minContains", "minItems"),
        *("minLength", "pattern", "format", "minimum", "exclusiveMaximum", "multipleOf"),
        *("title", "default", "confluent:tags", "x", "a"),
    ]
)
SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.dictionaries(KEYWORDS, inner, max_size=5) | st.lists(inner, max_size=3),
    max_leaves=25,
)
ROOTS = st.builds(
    lambda dialect, members: {**members, "$schema": dialect},
    st.sampled_from(DIALECTS),
    st.dictionaries(KEYWORDS, SCHEMAS, max_size=6),
)
REFERENCES = {"a.json": '{"type":"string","x":{"$ref":"#/x"}}'}


def parsed(schema: Any) -> JsonSchema | None:
    text = json.dumps(schema)
    with suppress(InvalidSchemaError):
        parse_new(text, REFERENCES)
    try:
        return parse(text, REFERENCES)
    except InvalidSchemaError:
        return None


@given(ROOTS, ROOTS)
def test_any_value_is_refused_or_compared(one: dict[str, Any], other: dict[str, Any]) -> None:
    schemas = [schema for schema in (parsed(one), parsed(other)) if schema is not None]
    for reader in schemas:
        for writer in schemas:
            assert reader is not writer or [] == reader.incompatibilities(writer)
            found = reader.incompatibilities(writer)
            assert {item.kind for item in reader.lenient_incompatibilities(writer)} <= {item.kind for item in found} | {
                "COMBINED_TYPE_SUBSCHEMAS_CHANGED"
            }
        again = parse(reader.normalized_text(), REFERENCES)
        assert reader.normalized_text() == again.canonical_text
        for place in [*reader.tags(), SchemaEntity(entity_path="object.a", entity_type="sr_field")]:
            with suppress(InvalidSchemaError):
                reader.with_tags({place: ["t"]}, {})


def test_the_drafts_are_known() -> None:
    assert [Draft.DRAFT_4, Draft.DRAFT_6, Draft.DRAFT_7, Draft.DRAFT_2019_09, Draft.DRAFT_2020_12] == sorted(Draft)
