"""Records of the topic `_schemas` in Confluent's JSON formats, both ways.

Keys are written byte for byte as Confluent's registry writes them, because compaction compares bytes: a key in another
spelling would leave the old value in the log beside the new one. Values keep their field order. Fields that this
registry does not know are ignored, as theirs are.

One record is ours alone: the highest id that a context ever gave out. Compaction removes permanently deleted schemas,
and with them the only trace of their ids. The record has the key type NOOP with the context as an additional field:
Confluent's registry ignores unknown fields of keys and skips every NOOP without looking at its value, whereas an
unknown key type would stop its reader.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from ottla.registry.schemas.schema import AVRO, Reference
from ottla.registry.state.metadata import Metadata, RuleSet

TENANT: Final = "default"

CompatibilityLevel: TypeAlias = Literal[
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"
]
CompatibilityPolicy: TypeAlias = Literal["LOGICAL", "STRICT", "LENIENT"]
Mode: TypeAlias = Literal["READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD"]
Lifecycle: TypeAlias = Literal["STRONG", "WEAK"]
Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class RecordFormatError(ValueError):
    """A record of the topic in an unknown format. The message says what is wrong; the caller adds the offset."""

    def __init__(self, message: str, key: "Key | None" = None) -> None:
        super().__init__(message)
        self.key = key
        """The key, if only the value cannot be read."""


@dataclass(frozen=True, slots=True)
class SchemaKey:
    """One version of a subject."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """The config of a subject or a context, or of the top level (None)."""

    subject: str | None


@dataclass(frozen=True, slots=True)
class ModeKey:
    """The mode of a subject or a context, or of the top level (None)."""

    subject: str | None


@dataclass(frozen=True, slots=True)
class NoopKey:
    """A record that says nothing."""


@dataclass(frozen=True, slots=True)
class HighestIdKey:
    """The highest id that a context ever gave out."""

    context: str


@dataclass(frozen=True, slots=True)
class DeleteSubjectKey:
    """The soft deletion of a subject as a whole."""

    subject: str


@dataclass(frozen=True, slots=True)
class ClearSubjectKey:
    """The removal of all soft-deleted versions of a subject or a context, or of all (None), before an import."""

    subject: str | None


@dataclass(frozen=True, slots=True)
class ContextKey:
    """A context other than the default one."""

    context: str


@dataclass(frozen=True, slots=True)
class AssociationKey:
    """An association of a resource, such as a topic, with a subject."""

    resource_name: str
    resource_namespace: str
    resource_type: str
    association_type: str
    subject: str


class SchemaValue(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A version of a subject."""

    subject: str | None = None
    version: Int32 | None = None
    id: Int32 | None = None
    md5: str | None = None
    """The digest in base64, where the stored properties are encrypted and the digest cannot be computed from them."""
    schema_type: str | None = None
    references: list[Reference] | None = None
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    schema: str | None = None
    deleted: bool | None = None


class Config(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The config of a subject, a context or the top level: as stored (with `subject`) and as answered (without)."""

    subject: str | None = None
    alias: str | None = None
    alias_for_deks: str | None = None
    normalize: bool | None = None
    validate_fields: bool | None = None
    validate_new_schemas: bool | None = None
    validate_rules: bool | None = None
    compatibility_level: CompatibilityLevel | None = None
    compatibility_policy: CompatibilityPolicy | None = None
    compatibility_group: str | None = None
    default_metadata: Metadata | None = None
    override_metadata: Metadata | None = None
    default_rule_set: RuleSet | None = None
    override_rule_set: RuleSet | None = None


class ModeValue(Struct, frozen=True, omit_defaults=True):
    """The mode of a subject, a context or the top level."""

    subject: str | None = None
    mode: Mode | None = None


class DeleteSubjectValue(Struct, frozen=True, omit_defaults=True):
    """All versions of the subject up to and including `version` are soft-deleted."""

    subject: str | None = None
    version: Int32 | None = None


class ClearSubjectValue(Struct, frozen=True, omit_defaults=True):
    """All soft-deleted versions of the subject or context are gone."""

    subject: str | None = None


class ContextValue(Struct, frozen=True, omit_defaults=True):
    """A context exists."""

    tenant: str | None = None
    context: str | None = None


class AssociationValue(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An association of a resource with a subject."""

    guid: str | None = None
    tenant: str | None = None
    resource_name: str | None = None
    resource_namespace: str | None = None
    resource_id: str | None = None
    resource_type: str | None = None
    association_type: str | None = None
    subject: str | None = None
    lifecycle: Lifecycle | None = None
    frozen: bool | None = None
    create_ts: int | None = None


class HighestIdValue(Struct, frozen=True, rename="camel"):
    """No id of the context was ever higher than this."""

    context: str
    highest_id: Int32


Key: TypeAlias = (
    SchemaKey
    | ConfigKey
    | ModeKey
    | NoopKey
    | HighestIdKey
    | DeleteSubjectKey
    | ClearSubjectKey
    | ContextKey
    | AssociationKey
)
Value: TypeAlias = (
    SchemaValue
    | Config
    | ModeValue
    | DeleteSubjectValue
    | ClearSubjectValue
    | ContextValue
    | AssociationValue
    | HighestIdValue
)


@dataclass(frozen=True, slots=True)
class Record:
    """A record to write, or read from the topic. Without a value it is a tombstone."""

    key: Key
    value: Value | None

    def encode(self) -> tuple[bytes, bytes | None]:
        """Key and value as bytes."""
        return encode_key(self.key), None if self.value is None else _ENCODER.encode(self.value)


def encode_key(key: Key) -> bytes:
    """The bytes of a key."""
    return _ENCODER.encode(_key_fields(key))


def decode_record(key: bytes | None, value: bytes | None) -> Record:
    """The record of these bytes.

    Raises `RecordFormatError` for bytes that no registry writes; Confluent's registry logs them and reads on.
    """
    if key is None:
        raise RecordFormatError("the record has no key")
    decoded = _decode_key(key)
    if value is None or isinstance(decoded, NoopKey):
        return Record(decoded, None)
    try:
        return Record(decoded, _VALUE_DECODERS[type(decoded)].decode(value))
    except _UNREADABLE as error:
        message = f"the value of {key[:_SHOWN_BYTES_MAX].decode(errors='replace')} cannot be read: {error}"
        raise RecordFormatError(message, decoded) from error


class _AnyKey(Struct, rename="camel"):
    """The fields of all keys."""

    keytype: str
    magic: int = 0
    subject: str | None = None
    version: Int32 | None = None
    context: str | None = None
    resource_name: str | None = None
    resource_namespace: str | None = None
    resource_type: str | None = None
    association_type: str | None = None


def _key_fields(key: Key) -> dict[str, Any]:
    """The fields of a key in Confluent's order. Empty fields are left out, as theirs are."""
    match key:
        case SchemaKey(subject, version):
            return {"keytype": "SCHEMA", **_subject(subject), "version": version, "magic": 1}
        case ConfigKey(subject_or_none):
            return {"keytype": "CONFIG", **_subject(subject_or_none), "magic": 0}
        case ModeKey(subject_or_none):
            return {"keytype": "MODE", **_subject(subject_or_none), "magic": 0}
        case NoopKey():
            return {"keytype": "NOOP", "magic": 0}
        case HighestIdKey(context):
            return {"keytype": "NOOP", "magic": 0, "context": context}
        case DeleteSubjectKey(subject):
            return {"keytype": "DELETE_SUBJECT", **_subject(subject), "magic": 0}
        case ClearSubjectKey(subject_or_none):
            return {"keytype": "CLEAR_SUBJECT", **_subject(subject_or_none), "magic": 0}
        case ContextKey(context):
            return {"keytype": "CONTEXT", "tenant": TENANT, "context": context, "magic": 0}
        case AssociationKey():
            return {
                "keytype": "ASSOC",
                "tenant": TENANT,
                "resourceName": key.resource_name,
                "resourceNamespace": key.resource_namespace,
                "resourceType": key.resource_type,
                "associationType": key.association_type,
                **_subject(key.subject),
                "magic": 0,
            }


def _subject(subject: str | None) -> dict[str, str]:
    return {"subject": subject} if subject else {}


def _decode_key(key: bytes) -> Key:
    try:
        fields = _KEY_DECODER.decode(key)
    except _UNREADABLE as error:
        start = key[:_SHOWN_BYTES_MAX].decode(errors="replace")
        raise RecordFormatError(f"the key {start} cannot be read: {error}") from error
    match fields.keytype:
        case "SCHEMA" if fields.version is not None and fields.magic in (0, 1):
            return SchemaKey(fields.subject or "", fields.version)
        case "CONFIG":
            return ConfigKey(fields.subject or None)
        case "MODE":
            return ModeKey(fields.subject or None)
        case "NOOP":
            return NoopKey() if fields.context is None else HighestIdKey(fields.context)
        case "DELETE_SUBJECT":
            return DeleteSubjectKey(fields.subject or "")
        case "CLEAR_SUBJECT":
            return ClearSubjectKey(fields.subject)
        case "CONTEXT" if fields.context is not None:
            return ContextKey(fields.context)
        case "ASSOC":
            return AssociationKey(
                fields.resource_name or "",
                fields.resource_namespace or "",
                fields.resource_type or "",
                fields.association_type or "",
                fields.subject or "",
            )
    raise RecordFormatError(f"the key {key[:_SHOWN_BYTES_MAX].decode(errors='replace')} is of an unknown type")


def schema_type_of(value: SchemaValue) -> str:
    """The type of a stored schema; records of old registries have none."""
    return value.schema_type or AVRO


_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_SHOWN_BYTES_MAX: Final = 200
_ENCODER: Final = msgspec.json.Encoder()
_KEY_DECODER: Final = msgspec.json.Decoder(_AnyKey)
_VALUE_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {
    SchemaKey: msgspec.json.Decoder(SchemaValue),
    ConfigKey: msgspec.json.Decoder(Config),
    ModeKey: msgspec.json.Decoder(ModeValue),
    HighestIdKey: msgspec.json.Decoder(HighestIdValue),
    DeleteSubjectKey: msgspec.json.Decoder(DeleteSubjectValue),
    ClearSubjectKey: msgspec.json.Decoder(ClearSubjectValue),
    ContextKey: msgspec.json.Decoder(ContextValue),
    AssociationKey: msgspec.json.Decoder(AssociationValue),
}
