"""The drafts of JSON Schema, and how a schema names its own."""

from enum import IntEnum
from typing import Any, Final

from ottla.registry.schemas.parsed_schema import InvalidSchemaError


class Draft(IntEnum):
    """A published version of the language."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 201909
    DRAFT_2020_12 = 202012

    @property
    def is_modern(self) -> bool:
        """`$ref` has siblings, `$defs` and `$anchor` exist, `dependencies` are split, and so on."""
        return self >= Draft.DRAFT_2019_09

    @property
    def id_keyword(self) -> str:
        """The keyword that gives a schema its URI."""
        return "id" if self == Draft.DRAFT_4 else "$id"


_NAMES: Final = {
    "draft-04/schema": Draft.DRAFT_4,
    "schema": Draft.DRAFT_4,
    "draft-06/schema": Draft.DRAFT_6,
    "draft-07/schema": Draft.DRAFT_7,
    "draft/2019-09/schema": Draft.DRAFT_2019_09,
    "draft/2020-12/schema": Draft.DRAFT_2020_12,
}
_BY_URI: Final = {
    f"{scheme}://json-schema.org/{name}": draft for name, draft in _NAMES.items() for scheme in ("http", "https")
}


def draft_of(value: Any, *, otherwise: Draft) -> Draft:
    """The draft that the root of a document names with `$schema`, or `otherwise` if it names none that is known."""
    if not isinstance(value, dict) or "$schema" not in value:
        return otherwise
    uri = value["$schema"]
    if not isinstance(uri, str):
        raise InvalidSchemaError("#: $schema must be a string")
    return _BY_URI.get(uri.removesuffix("#"), otherwise)


def meta_schema_of(uri: str) -> Draft | None:
    """The draft whose meta-schema has this URI."""
    return _BY_URI.get(uri.removesuffix("#"))
