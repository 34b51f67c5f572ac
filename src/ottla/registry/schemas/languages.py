"""The schema languages of the registry, by the name that clients use."""

from collections.abc import Mapping
from typing import Final

from ottla.registry.schemas.avro import avro_schema
from ottla.registry.schemas.json_schema import json_schema
from ottla.registry.schemas.parsed_schema import Language
from ottla.registry.schemas.protobuf import protobuf_schema
from ottla.registry.schemas.schema import AVRO, JSON, PROTOBUF

LANGUAGES: Final[Mapping[str, Language]] = {
    JSON: Language(json_schema.parse, json_schema.parse_new),
    PROTOBUF: Language(protobuf_schema.parse, protobuf_schema.parse_new),
    AVRO: Language(avro_schema.parse, avro_schema.parse_new),
}
"""In the order in which GET /schemas/types lists them."""
