"""The features of editions, which proto2 and proto3 have too, fixed: how presence, enums and encodings behave."""

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.registry.schemas.protobuf.syntax_tree import MessageLiteral, Option, Scalar

Features = Mapping[str, str]

_EDITION: Final = {
    "field_presence": "EXPLICIT",
    "enum_type": "OPEN",
    "repeated_field_encoding": "PACKED",
    "message_encoding": "LENGTH_PREFIXED",
    "json_format": "ALLOW",
}
DEFAULTS: Final[Mapping[str, Features]] = {
    "proto2": {
        "field_presence": "EXPLICIT",
        "enum_type": "CLOSED",
        "repeated_field_encoding": "EXPANDED",
        "message_encoding": "LENGTH_PREFIXED",
        "json_format": "LEGACY_BEST_EFFORT",
    },
    "proto3": {**_EDITION, "field_presence": "IMPLICIT"},
    "2023": _EDITION,
    "2024": _EDITION,
}


def with_options(features: Features, options: Sequence[Option]) -> Features:
    """The features inside an element, from those around it and its own options."""
    own: dict[str, str] = {}
    for option in options:
        if option.path[0].name != "features" or option.path[0].is_extension:
            continue
        if len(option.path) == 2 and isinstance(option.value, Scalar):
            own[option.path[1].name] = option.value.text
        elif isinstance(option.value, MessageLiteral):
            own.update((key, value.text) for key, value in option.value.entries if isinstance(value, Scalar))
    return {**features, **own} if own else features
