"""The option `valueFormat` of the sink: the columns of rows become values with a schema of the registry.

The schema is derived from the columns, or given by `valueSchema`, or the latest version of the subject. The bytes are
those of the client's serializers, which encode whole columns. The first rows of a topic ask the registry, in the task
that writes them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.options import OptionError
from ottla.spark.values.registry_options import (
    REGISTRY_OPTION_NAMES,
    RegistryAddress,
    advice_on_credentials,
    registry_address,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.serializers import ColumnSerializer
    from ottla.registry.serde.schema_ids import WriteOptions

FORMATS: Final = ("avro", "json", "protobuf")
_RULES: Final = ("autoRegisterSchemas", "useLatestVersion", "normalizeSchemas")
_ID_PLACE: Final = "schemaIdPlace"
OPTION_NAMES: Final = (*REGISTRY_OPTION_NAMES, "valueFormat", "valueSchema", "valueMessage", *_RULES, _ID_PLACE)
"""In their usual spelling."""


class EncodedValues(NamedTuple):
    """Values, and the headers that each record gets besides its own."""

    values: "pa.Array"
    headers: Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, kw_only=True)
class ValueEncoder:
    """Encodes rows. Can be pickled."""

    format: str
    registry: RegistryAddress
    subject: str | None = None
    """None is the topic with `-value`."""
    schema: str | None = None
    """None if the schema is derived from the columns, or the latest is used."""
    message: str | None = None
    """The full name of the Protobuf message; None is the first one of the schema."""
    auto_register: bool = True
    use_latest: bool = False
    normalize: bool = False
    in_header: bool = False
    _kept: "dict[Any, ColumnSerializer]" = field(default_factory=dict, repr=False, compare=False)
    """The serializers by topic and type of the rows, in one process."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}

    def encode(self, topic: str, rows: "pa.StructArray") -> EncodedValues:
        """The values of rows, none of which is null. Raises `RowError`, `ValueNotSerializableError`, or the error of
        the registry, which names the subject and what is not compatible.
        """
        from ottla.client.serializers import NotPreparedError

        key = topic, rows.type
        with advice_on_credentials():
            if key not in self._kept:
                self._kept[key] = self._serializer(topic, rows.type)
            while True:
                try:
                    return EncodedValues(*self._kept[key].serialize_column(topic, rows, False))
                except NotPreparedError as missing:
                    missing.prepare()

    def _serializer(self, topic: str, kind: "pa.StructType") -> "ColumnSerializer":
        from ottla.registry.serde import AvroSerializer, JsonSchemaSerializer, ProtobufSerializer

        registry, options = self.registry.client(), self._write_options()
        schema = self.schema
        if schema is None and not self.use_latest:
            schema = json.dumps(self._derived(topic, kind))
        if self.format == "avro":
            return AvroSerializer(registry, schema, **options)
        if self.format == "json":
            return JsonSchemaSerializer(registry, schema, **options)
        return ProtobufSerializer(registry, schema, message=self.message, **options)

    def _write_options(self) -> "WriteOptions":
        from ottla.registry.serde.subject_names import topic_subject

        subject = self.subject
        return {
            "subject_name": topic_subject if subject is None else (lambda topic, is_key, name: subject),
            "auto_register": self.auto_register,
            "use_latest": self.use_latest,
            "normalize": self.normalize,
            "id_place": "header" if self.in_header else "prefix",
        }

    def _derived(self, topic: str, kind: "pa.StructType") -> dict[str, Any]:
        """The schema of the columns; an Avro record has the name that it has in the subject, if there is a version."""
        from ottla.registry.schemas.avro.avro_schema import AvroSchema
        from ottla.registry.serde.arrow.derived_avro import avro_name, derived_avro
        from ottla.registry.serde.arrow.derived_json import derived_json
        from ottla.registry.serde.arrow.framed_rows import registered_reader

        if self.format == "json":
            return derived_json(kind, topic)
        latest = registered_reader(self.registry.client(), self.subject or f"{topic}-value")
        known = None if latest is None else latest.parsed()
        name = known.name if isinstance(known, AvroSchema) else None
        return derived_avro(kind, name or avro_name(topic))


def encoder_for(options: Mapping[str, str]) -> ValueEncoder | None:
    """The encoder for these options; None without `valueFormat`. Raises `OptionError`."""
    given = {name.lower(): value.strip() for name, value in options.items()}
    told = {name: given[name.lower()] for name in OPTION_NAMES if given.get(name.lower())}
    if "valueFormat" not in told:
        if told:
            raise OptionError(f"{min(told)} needs valueFormat: {', '.join(FORMATS)}")
        return None
    format = told["valueFormat"].lower()
    if format not in FORMATS:
        raise OptionError(f"valueFormat={told['valueFormat']} is not one of {', '.join(FORMATS)}, which can be written")
    flags = {name: _flag(name, told, default=name == _RULES[0]) for name in _RULES}
    place = told.get(_ID_PLACE, "prefix").lower()
    if place not in ("prefix", "header"):
        raise OptionError(f"{_ID_PLACE}={place} is not one of prefix, header")
    if format == "protobuf" and "valueSchema" not in told and not flags["useLatestVersion"]:
        raise OptionError("valueFormat=protobuf needs valueSchema, a .proto text, or useLatestVersion=true")
    return ValueEncoder(
        format=format,
        registry=registry_address(told),
        subject=told.get("valueSubject"),
        schema=told.get("valueSchema"),
        message=told.get("valueMessage"),
        auto_register=flags["autoRegisterSchemas"],
        use_latest=flags["useLatestVersion"],
        normalize=flags["normalizeSchemas"],
        in_header=place == "header",
    )


def _flag(name: str, told: Mapping[str, str], *, default: bool) -> bool:
    text = told.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name}={text} is neither true nor false")
    return text == "true"
