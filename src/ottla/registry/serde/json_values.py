"""Python values as JSON: dicts, dataclasses, msgspec structs and Pydantic models, and the schemas of such types.

JSON is written compactly and in UTF-8, as confluent_kafka's serializer writes it. A schema that is derived from a type
is of draft 2020-12; its objects permit no properties but those of the type, as in the schemas that Confluent's Java
serializer derives: so a field with a default can be added later without breaking compatibility.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import jsonschema_rs
import msgspec

from ottla.registry.schemas.json_schema.drafts import Draft, draft_of
from ottla.registry.schemas.json_schema.json_text import read_json, write_json
from ottla.registry.schemas.json_schema.uris import resolve_uri, without_fragment
from ottla.registry.schemas.parsed_schema import InvalidSchemaError

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DEFINITION: Final = "#/$defs/"
_VALIDATORS: Final = {
    Draft.DRAFT_4: jsonschema_rs.Draft4Validator,
    Draft.DRAFT_6: jsonschema_rs.Draft6Validator,
    Draft.DRAFT_7: jsonschema_rs.Draft7Validator,
    Draft.DRAFT_2019_09: jsonschema_rs.Draft201909Validator,
    Draft.DRAFT_2020_12: jsonschema_rs.Draft202012Validator,
}


class InvalidValueError(ValueError):
    """A value does not match its schema, or is not of its type. The message says what is wrong and where."""


def encode(value: Any) -> bytes:
    """The JSON of a value."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"cannot write {type(value).__name__} as JSON: {error}") from error


def decoder_for(type_: Any = None) -> Callable[[bytes | memoryview], Any]:
    """A function that reads JSON as values of a type; without a type, as dicts, lists, strings, numbers and so on."""
    validate = getattr(type_, "model_validate_json", None)
    decode: Callable[[Any], Any]
    if validate is not None:

        def decode(data: Any) -> Any:
            return validate(bytes(data))

    else:
        decode = msgspec.json.Decoder(Any if type_ is None else type_).decode

    def decode_or_say_why(data: bytes | memoryview) -> Any:
        try:
            return decode(data)
        except (msgspec.MsgspecError, ValueError) as error:
            raise InvalidValueError(str(error)) from error

    return decode_or_say_why


def schema_of(type_: Any) -> str:
    """The text of a JSON Schema for a dataclass, a msgspec struct, a Pydantic model, or another type of values."""
    derive = getattr(type_, "model_json_schema", None)
    try:
        schema = derive() if derive is not None else msgspec.json.schema(type_)
    except (TypeError, ValueError) as error:
        raise TypeError(f"cannot derive a JSON Schema from {type_!r}: {error}") from error
    definitions = dict(schema.pop("$defs", {}))
    reference = schema.get("$ref", "")
    if reference.startswith(_DEFINITION):
        name = reference.removeprefix(_DEFINITION)
        root = {**schema, **definitions[name]}
        del root["$ref"]
        if f'"{reference}"' not in write_json([root, definitions]):
            del definitions[name]
        schema = root
    for each in (schema, *definitions.values()):
        if "properties" in each:
            each.setdefault("additionalProperties", False)
    return write_json({"$schema": _DIALECT, **schema, **({"$defs": definitions} if definitions else {})})


class JsonValidator:
    """Checks values against a schema."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        """`references` has the texts of all references by name, also of those that references use.

        Raises `InvalidSchemaError`.
        """
        schema = read_json(text)
        draft = draft_of(schema, otherwise=Draft.DRAFT_7)
        uri = schema.get(draft.id_keyword) if isinstance(schema, dict) else None
        by_uri = {resolve_uri(uri, name): name for name in references} if isinstance(uri, str) else {}

        def retrieve(uri: str) -> Any:
            address = without_fragment(uri)
            name = by_uri.get(address, address.removeprefix(_NO_URI).removeprefix("./"))
            if name not in references:
                # A reference may be relative to a reference in another folder.
                name = next((each for each in references if address.endswith(f"/{each}")), name)
            return msgspec.json.decode(references[name])

        try:
            self._validator = _VALIDATORS[draft](msgspec.json.decode(text), retriever=retrieve)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise InvalidSchemaError(f"values cannot be checked against the schema: {error}") from error

    def check(self, value: Any) -> None:
        """Raises `InvalidValueError` for a value that does not match the schema."""
        try:
            self._validator.validate(msgspec.to_builtins(value, str_keys=True, enc_hook=_plain))
        except jsonschema_rs.ValidationError as error:
            place = "".join(f"/{segment}" for segment in error.instance_path)
            raise InvalidValueError(
                f"the value does not match its schema at {place or 'the root'}: {error.message}"
            ) from None
        except (TypeError, ValueError) as error:
            raise InvalidValueError(f"cannot write {type(value).__name__} as JSON: {error}") from error


_NO_URI: Final = "json-schema:///"
"""What jsonschema-rs resolves references against if the schema has no URI."""


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} is not a type of JSON")
    return dump(mode="json", by_alias=True)


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_plain)
