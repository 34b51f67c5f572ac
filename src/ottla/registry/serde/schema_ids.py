"""Which registered schema a serializer writes with: registered now, looked up, the latest version, or one by its id."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypedDict, TypeVar
from uuid import UUID

from msgspec import structs

from ottla.registry.schemas.languages import LANGUAGES
from ottla.registry.schemas.parsed_schema import InvalidSchemaError, ParsedSchema
from ottla.registry.schemas.schema import Schema
from ottla.registry.serde.errors import RegistryAnswerError, ValueNotReadableError, ValueNotSerializableError
from ottla.registry.serde.framing import IdPlace, SchemaId
from ottla.registry.serde.registry_calls import RegisteredSchema, ids_of_guid
from ottla.registry.serde.registry_client import RegistryClient
from ottla.registry.serde.subject_names import SubjectContexts, SubjectName, context_prefix, topic_subject

K = TypeVar("K")
V = TypeVar("V")

NOT_FOUND_CODES: Final = frozenset({40401, 40402, 40403})
"""Subject, version or schema not found. Another 404 comes from a server that is not a registry."""
_WRITE_MODES: Final = frozenset({"WRITE", "WRITEREAD"})
_READ_MODES: Final = frozenset({"READ", "WRITEREAD"})


class WriteOptions(TypedDict, total=False):
    """The options of a serializer with schemas; `WriteRules` documents them."""

    subject_name: SubjectName
    auto_register: bool
    normalize: bool
    use_latest: bool
    latest_compatibility_strict: bool
    use_schema_id: int | None
    id_place: IdPlace
    ignore_rules: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRules:
    """How a serializer chooses its schema, and where it writes the id."""

    subject_name: SubjectName = topic_subject
    """Which subject the schema belongs to: see `subject_names.py`."""
    auto_register: bool = True
    """Registers the schema when it is used first. Without this it must be registered already."""
    normalize: bool = False
    """Registers and looks up the normalized schema, so that layout and order do not matter."""
    use_latest: bool = False
    """Writes with the latest version of the subject, whichever it is, and registers nothing."""
    latest_compatibility_strict: bool = True
    """With `use_latest` and a schema of one's own: the latest version must be able to read what that one writes."""
    use_schema_id: int | None = None
    """Writes with the schema that has this id, and registers nothing."""
    id_place: IdPlace = "prefix"
    """Where the id is written: before the value, or as a GUID in a header (registries from 8.0 on)."""
    ignore_rules: bool = False
    """Writes with schemas that have rules, such as encryption, without executing them. They are refused otherwise."""

    def __post_init__(self) -> None:
        if self.use_latest and self.use_schema_id is not None:
            raise ValueError("use_latest and use_schema_id cannot both be set")

    @property
    def needs_schema(self) -> bool:
        """Whether the serializer must know a schema itself."""
        return not self.use_latest and self.use_schema_id is None


def schema_to_write_with(
    registry: RegistryClient, rules: WriteRules, topic: str, is_key: bool, schema: Schema | None, name: str | None
) -> RegisteredSchema:
    """Asks the registry. `schema` and the full `name` of its record are the serializer's own, if it has one."""
    if rules.use_schema_id is not None:
        context = SubjectContexts(rules.subject_name).find(topic, is_key)
        found = registry.schema_by_id(rules.use_schema_id, context)
    else:
        subject = rules.subject_name(topic, is_key, name)
        if rules.use_latest:
            found = registry.version(subject)
            if schema is not None and rules.latest_compatibility_strict:
                _check_latest(registry, found, schema, subject)
        elif schema is None:
            raise ValueNotSerializableError("the serializer has no schema; give it one, or set use_latest")
        elif rules.auto_register:
            found = registry.register(subject, schema, normalize=rules.normalize)
        else:
            found = registry.look_up(subject, schema, normalize=rules.normalize)
    if rules.id_place == "header" and found.guid is None:
        raise ValueNotSerializableError(
            "the registry does not know GUIDs, which headers need; it must have version 8.0 or newer, or set"
            ' id_place="prefix"'
        )
    check_rules(found.schema, is_write=True, ignore_rules=rules.ignore_rules)
    return found


def schema_to_read_with(registry: RegistryClient, schema_id: SchemaId, context: str | None) -> RegisteredSchema:
    """The schema that a key or value was written with. An id is meant in the context, and so are its references."""
    if isinstance(schema_id, int):
        return registry.schema_by_id(schema_id, context)
    found = registry.schema_by_guid(schema_id)
    return found if context is None else structs.replace(found, subject=context)


def age_of(registry: RegistryClient, subject: str, schema_id: SchemaId, schema: Schema) -> tuple[int, int]:
    """How new a schema is: its version in the subject, or 0; then its id, because later ones are higher."""
    number = schema_id if isinstance(schema_id, int) else _id_of(registry, schema_id, subject)
    try:
        return registry.look_up(subject, schema, deleted=True).version or 0, number
    except RegistryAnswerError as error:
        if error.error_code not in NOT_FOUND_CODES:
            raise
        return 0, number


def _id_of(registry: RegistryClient, guid: UUID, subject: str) -> int:
    """The id that the schema with a GUID has in the subject's context; the highest one if it has none there, or 0."""
    context = (context_prefix(subject) or ":.:")[1:-1]
    found = registry.ask(ids_of_guid(guid))
    return max((each.id for each in found if each.context == context), default=max((e.id for e in found), default=0))


def parsed(registry: RegistryClient, schema: Schema, subject: str | None) -> ParsedSchema:
    """The schema with its references. Raises `ValueNotReadableError` if it is not valid."""
    if schema.type not in LANGUAGES:
        raise ValueNotReadableError(f"schemas of type {schema.type} are not supported here")
    try:
        return LANGUAGES[schema.type].parse(schema.text, registry.references_of(schema, subject))
    except InvalidSchemaError as error:
        raise ValueNotReadableError(f"the schema is not valid: {error}") from error


def keep(table: dict[K, V], key: K, value: V, registry: RegistryClient) -> None:
    """Puts a prepared reader or writer into its table, which has as many as the registry's client caches schemas."""
    table[key] = value
    # Threads prepare at the same time. One that finds its own removed prepares it again.
    with suppress(KeyError, RuntimeError, StopIteration):
        while len(table) > max(registry.config.cache_size, 1):
            del table[next(iter(table))]


def check_rules(schema: Schema, *, is_write: bool, ignore_rules: bool) -> None:
    """Refuses a schema whose rules must be executed, such as encryption: this client executes none."""
    if schema.rule_set is None or ignore_rules:
        return
    modes = _WRITE_MODES if is_write else _READ_MODES
    rules: list[Any] = [*(schema.rule_set.get("domainRules") or ()), *(schema.rule_set.get("encodingRules") or ())]
    names = [str(each.get("name")) for each in rules if not each.get("disabled") and each.get("mode") in modes]
    if names:
        error = ValueNotSerializableError if is_write else ValueNotReadableError
        raise error(
            f"the schema has rules that this client does not execute: {', '.join(names)}; set ignore_rules=True to use"
            " the schema without them"
        )


def _check_latest(registry: RegistryClient, latest: RegisteredSchema, own: Schema, subject: str) -> None:
    if latest.schema.type != own.type:
        raise ValueNotSerializableError(
            f"the latest version of subject {subject} has type {latest.schema.type}, not {own.type}"
        )
    reader, writer = parsed(registry, latest.schema, subject), parsed(registry, own, subject)
    reasons = reader.incompatibilities(writer)
    if reasons:
        raise ValueNotSerializableError(
            f"version {latest.version} of subject {subject}, the latest, cannot read what the serializer's own schema"
            f" writes: {reasons[0].path}: {reasons[0].message}"
        )
