"""A schema as clients register it, before a language has parsed it."""

from typing import Any, Final

from msgspec import Struct

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"


class Reference(Struct, frozen=True):
    """A schema that another one uses: by `name` in its text, registered as a version of a subject."""

    name: str
    subject: str
    version: int


class Schema(Struct, frozen=True, kw_only=True):
    """The text of a schema and what is registered with it."""

    text: str
    type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    """Tags, properties and sensitive properties, as clients sent them."""
    rule_set: dict[str, Any] | None = None
    """Migration, domain and encoding rules, as clients sent them. Clients apply them; the registry stores them."""
