"""The differences that the comparison knows: their names, which of them break a reader, and why, in a sentence.

The names are those of Confluent's registry. A difference without a sentence here breaks no reader: it is not reported.
"""

from typing import Final

_LIMITS: Final = {
    "MAX_LENGTH": "maxLength",
    "MIN_LENGTH": "minLength",
    "MAXIMUM": "maximum",
    "MINIMUM": "minimum",
    "EXCLUSIVE_MAXIMUM": "exclusiveMaximum",
    "EXCLUSIVE_MINIMUM": "exclusiveMinimum",
    "MAX_PROPERTIES": "maxProperties",
    "MIN_PROPERTIES": "minProperties",
    "MAX_ITEMS": "maxItems",
    "MIN_ITEMS": "minItems",
    "MAX_CONTAINS": "maxContains",
    "MIN_CONTAINS": "minContains",
}


def _limit_sentences() -> dict[str, str]:
    sentences = {}
    for name, keyword in _LIMITS.items():
        sentences[f"{name}_ADDED"] = f"The reader's schema has {keyword} at {{path}}, the writer's has not."
        worse, word = ("DECREASED", "smaller") if "MAX" in name else ("INCREASED", "greater")
        sentences[f"{name}_{worse}"] = f"{keyword} at {{path}} is {word} in the reader's schema than in the writer's."
    return sentences


_OPEN: Final = "accepts any value for it"
SENTENCES: Final = _limit_sentences() | {
    "SCHEMA_ADDED": "The reader's schema has a schema at {path}, the writer's has none there.",
    "TYPE_NARROWED": "The type at {path} is integer in the reader's schema and number in the writer's.",
    "TYPE_CHANGED": "The type at {path} is different in the reader's schema and the writer's.",
    "PATTERN_ADDED": "The reader's schema has a pattern at {path}, the writer's has none.",
    "PATTERN_CHANGED": "The pattern at {path} is different in the reader's schema and the writer's.",
    "MULTIPLE_OF_ADDED": "The reader's schema has multipleOf at {path}, the writer's has not.",
    "MULTIPLE_OF_EXPANDED": "multipleOf at {path} in the reader's schema is a multiple of the writer's.",
    "MULTIPLE_OF_CHANGED": "multipleOf at {path} is not a divisor of the writer's.",
    "REQUIRED_ATTRIBUTE_ADDED": "The reader's schema requires the property at {path}, the writer's does not.",
    "DEPENDENCY_ARRAY_ADDED": "The reader's schema has a dependency at {path}, the writer's has none.",
    "DEPENDENCY_ARRAY_EXTENDED": "The dependency at {path} requires more properties in the reader's schema.",
    "DEPENDENCY_ARRAY_CHANGED": "The dependency at {path} requires other properties in the reader's schema.",
    "DEPENDENCY_SCHEMA_ADDED": "The reader's schema has a dependency at {path}, the writer's has none.",
    "ADDITIONAL_PROPERTIES_REMOVED": "The writer's schema permits other properties ({path}), the reader's does not.",
    "ADDITIONAL_PROPERTIES_NARROWED": "The reader's schema restricts other properties ({path}), the writer's does not.",
    "UNEVALUATED_PROPERTIES_REMOVED": "The writer's schema permits other properties ({path}), the reader's does not.",
    "UNEVALUATED_PROPERTIES_NARROWED": "The reader's schema restricts other properties ({path}), the writer's not.",
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": (
        "The reader's schema requires the property at {path}; the writer's does not have it and " + _OPEN + "."
    ),
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": (
        "The reader's schema requires the property at {path}; the writer's does not have it and " + _OPEN + "."
    ),
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": (
        "The reader's schema has the property at {path}; the writer's does not have it and " + _OPEN + "."
    ),
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": (
        "The reader's schema requires the property at {path} and has no default for it; the writer's does not have it."
    ),
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        "The writer's schema has the property at {path}; the reader's does not have it and permits no other properties."
    ),
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "The writer's schema has the property at {path}; the reader's does not have it, "
        "and what it demands of other properties does not fit."
    ),
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "The reader's schema has the property at {path}; the writer's does not have it, "
        "and what it permits for other properties does not fit."
    ),
    "UNIQUE_ITEMS_ADDED": "The reader's schema demands unique items at {path}, the writer's does not.",
    "ADDITIONAL_ITEMS_REMOVED": "The writer's schema permits other items ({path}), the reader's does not.",
    "ADDITIONAL_ITEMS_NARROWED": "The reader's schema restricts other items ({path}), the writer's does not.",
    "UNEVALUATED_ITEMS_REMOVED": "The writer's schema permits other items ({path}), the reader's does not.",
    "UNEVALUATED_ITEMS_NARROWED": "The reader's schema restricts other items ({path}), the writer's does not.",
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": (
        "The reader's schema has the item at {path}; the writer's does not have it and " + _OPEN + "."
    ),
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        "The writer's schema has the item at {path}; the reader's does not have it and permits no other items."
    ),
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "The writer's schema has the item at {path}; the reader's does not have it, "
        "and what it demands of other items does not fit."
    ),
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "The reader's schema has the item at {path}; the writer's does not have it, "
        "and what it permits for other items does not fit."
    ),
    "ENUM_ARRAY_NARROWED": "The reader's schema lacks values at {path} that the writer's has.",
    "ENUM_ARRAY_CHANGED": "The values at {path} are different in the reader's schema and the writer's.",
    "COMBINED_TYPE_CHANGED": "The schemas at {path} are combined in another way (allOf, anyOf, oneOf) by the reader.",
    "PRODUCT_TYPE_EXTENDED": "allOf at {path} has more schemas in the reader's schema than in the writer's.",
    "SUM_TYPE_NARROWED": "The union at {path} has fewer schemas in the reader's schema than in the writer's.",
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": (
        "The schemas that are combined at {path} do not fit those of the writer's schema, one to one."
    ),
    "NOT_TYPE_EXTENDED": "The reader's schema excludes values at {path} that the writer's does not exclude.",
    "SCHEMAS_TOO_COMPLEX": "The schemas have too many pairs of subschemas to compare: make unions smaller.",
}
"""Why each difference breaks a reader."""

LENIENT: Final = frozenset(
    {
        "ADDITIONAL_PROPERTIES_NARROWED",
        "ADDITIONAL_PROPERTIES_REMOVED",
        "UNEVALUATED_PROPERTIES_NARROWED",
        "UNEVALUATED_PROPERTIES_REMOVED",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    }
)
"""Differences that break a reader under the compatibility policy STRICT, but not under LENIENT."""
BREAKING: Final = frozenset(SENTENCES)
"""Differences that break a reader under the policy STRICT."""
