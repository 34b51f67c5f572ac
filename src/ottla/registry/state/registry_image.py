"""What the records of `_schemas` say: the image of a registry.

`apply` is the only method that changes it. The image depends on the last record of each key alone, so a compacted log
gives the same image as the whole one. Reading it is cheap: no look-up walks over all schemas.

Not thread-safe for writing: no record may be applied while a decision runs in another thread.
"""

from base64 import b64decode, b64encode
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from msgspec.structs import replace as replace_fields

from ottla.model.invariants import violated
from ottla.registry.schemas.parsed_schema import Language
from ottla.registry.schemas.schema import Reference
from ottla.registry.state.guid import guid_of, schema_digest
from ottla.registry.state.metadata import Metadata, RuleSet
from ottla.registry.state.options import RegistryOptions
from ottla.registry.state.parsed_schemas import ParsedSchemas
from ottla.registry.state.qualified_subjects import (
    ALL_CONTEXTS,
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    QualifiedSubject,
    context_of,
    normalize_subject,
    parse_subject,
    qualify_beside,
)
from ottla.registry.state.record_formats import (
    AssociationKey,
    AssociationValue,
    ClearSubjectKey,
    Config,
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    DeleteSubjectValue,
    HighestIdKey,
    HighestIdValue,
    Mode,
    ModeKey,
    ModeValue,
    Record,
    SchemaKey,
    SchemaValue,
    schema_type_of,
)

K = TypeVar("K")
V = TypeVar("V")

_ID_MIN: Final = 1
"""The first id that a context gives out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchema:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    digest: bytes
    """The 16 bytes of the GUID."""
    encrypted: bool = False
    """Whether properties are stored encrypted, so that the digest is stored beside them."""
    deleted: bool = False
    """Soft-deleted: found only by requests that ask for deleted versions, and by id."""
    timestamp: int
    """When the record was written, in milliseconds."""

    @property
    def key(self) -> SchemaKey:
        """The key of its record."""
        return SchemaKey(self.subject, self.version)

    @property
    def guid(self) -> str:
        """The digest, written as a UUID."""
        return guid_of(self.digest)

    def to_value(self) -> SchemaValue:
        """The value of its record."""
        return SchemaValue(
            subject=self.subject or None,
            version=self.version,
            id=self.id,
            md5=b64encode(self.digest).decode() if self.encrypted else None,
            schema_type=self.type,
            references=list(self.references) or None,
            metadata=self.metadata,
            rule_set=self.rule_set,
            schema=self.text,
            deleted=self.deleted,
        )


@dataclass(frozen=True, slots=True)
class StoredAssociation:
    """An association of a resource with a subject."""

    value: AssociationValue
    created: int
    updated: int


@dataclass(slots=True)
class _Subject:
    """The versions of a subject."""

    versions: dict[int, StoredSchema] = field(default_factory=dict)
    latest: StoredSchema | None = None
    """The highest version that is not soft-deleted."""

    def put(self, schema: StoredSchema) -> None:
        self.versions[schema.version] = schema
        if not schema.deleted and (self.latest is None or schema.version >= self.latest.version):
            self.latest = schema
        elif self.latest is not None and self.latest.version == schema.version:
            self._find_latest()

    def remove(self, version: int) -> None:
        del self.versions[version]
        if self.latest is not None and self.latest.version == version:
            self._find_latest()

    def _find_latest(self) -> None:
        version = max((version for version, schema in self.versions.items() if not schema.deleted), default=None)
        self.latest = None if version is None else self.versions[version]


@dataclass(slots=True)
class _Context:
    """The ids of a context. Keys stand in the order in which their records were written last."""

    by_id: dict[int, dict[SchemaKey, None]] = field(default_factory=dict)
    by_digest: dict[bytes, dict[SchemaKey, None]] = field(default_factory=dict)
    highest_id: int = 0
    """The highest id ever seen, of deleted schemas too; 0 if there never was one."""
    recorded_id: int = 0
    """The highest id that a record of its own keeps."""


class RegistryImage:
    """All that the registry knows."""

    def __init__(
        self,
        languages: Mapping[str, Language],
        options: RegistryOptions | None = None,
        schemas: ParsedSchemas | None = None,
    ) -> None:
        """Images of one registry share what they have parsed: `schemas`."""
        self.options = options or RegistryOptions()
        self.schemas = schemas or ParsedSchemas(languages)
        self._subjects: dict[str, _Subject] = {}
        self._names: list[str] | None = None
        self._contexts: dict[str, _Context] = {}
        self._registered_contexts: list[str] = []
        self._referrers: dict[SchemaKey, dict[SchemaKey, None]] = {}
        self._configs: dict[str | None, Config] = {}
        self._modes: dict[str | None, Mode] = {}
        self._associations: dict[AssociationKey, StoredAssociation] = {}
        self._associations_of_subject: dict[str, dict[AssociationKey, None]] = {}
        self._associations_of_resource: dict[str, dict[AssociationKey, None]] = {}
        self._associations_of_name: dict[str, dict[AssociationKey, None]] = {}

    def apply(self, record: Record, timestamp: int) -> str | None:
        """Takes a record of the topic into the image; `timestamp` is the record's.

        Returns why it was refused if it contradicts what the image holds: an id that stands for another schema.
        """
        match record.key, record.value:
            case SchemaKey() as key, None:
                self._remove_schema(key)
            case SchemaKey() as key, SchemaValue() as value:
                return self._put_schema(key, value, timestamp)
            case ConfigKey(subject), value:
                if isinstance(value, Config):
                    self._configs[subject] = replace_fields(value, subject=None)
                else:
                    self._configs.pop(subject, None)
            case ModeKey(subject), value:
                if isinstance(value, ModeValue) and value.mode is not None:
                    self._modes[subject] = value.mode
                else:
                    self._modes.pop(subject, None)
            case ContextKey(context), value:
                self._put_context(context, exists=value is not None)
            case DeleteSubjectKey(subject), DeleteSubjectValue(version=last) if last is not None:
                self._soft_delete(subject, last)
            case ClearSubjectKey(subject), value if value is not None:
                self._clear(subject)
            case HighestIdKey(context), HighestIdValue(highest_id=highest):
                ids = self._contexts.setdefault(context, _Context())
                ids.recorded_id = max(ids.recorded_id, highest)
                ids.highest_id = max(ids.highest_id, highest)
            case AssociationKey() as association, AssociationValue() as value:
                self._put_association(association, value, timestamp)
            case AssociationKey() as association, None:
                self._remove_association(association)
            case _:
                pass
        return None

    # Subjects and versions

    def versions(self, subject: str) -> Sequence[StoredSchema]:
        """All versions of a subject, soft-deleted ones too, ascending."""
        found = self._subjects.get(subject)
        return [] if found is None else [found.versions[version] for version in sorted(found.versions)]

    def version(self, subject: str, version: int, *, deleted: bool = False) -> StoredSchema | None:
        """One version of a subject; soft-deleted ones only on request. Version -1 is the latest that is not deleted."""
        found = self._subjects.get(subject)
        if found is None or version == -1:
            return None if found is None else found.latest
        schema = found.versions.get(version)
        return schema if schema is not None and (deleted or not schema.deleted) else None

    def latest(self, subject: str) -> StoredSchema | None:
        """The highest version that is not soft-deleted."""
        return self.version(subject, -1)

    def highest_version(self, subject: str) -> int:
        """The highest version, soft-deleted ones too; 0 if there is none."""
        found = self._subjects.get(subject)
        return 0 if found is None else max(found.versions)

    def subjects_with_prefix(self, prefix: str) -> Sequence[str]:
        """Subjects that start with a prefix, sorted; soft-deleted ones too.

        `:*:` stands for all contexts, and a prefix without a context for the default one.
        """
        if prefix == ":.":
            return self._sorted_names()
        if not prefix.startswith(ALL_CONTEXTS):
            return self._names_with_prefix(normalize_subject(prefix) if prefix.endswith(":") else prefix)
        name = prefix[len(ALL_CONTEXTS) :]
        if not name:
            return self._sorted_names()
        contexts = [DEFAULT_CONTEXT, *self._registered_contexts]
        prefixes = (str(QualifiedSubject(context, name)) for context in contexts)
        return sorted(subject for prefix in prefixes for subject in self._names_with_prefix(prefix))

    def subjects_in(self, subject: str | None) -> Iterator[str]:
        """The subject itself if it exists; all subjects of a context; all subjects for None and for `:.__GLOBAL:`."""
        if subject is None:
            yield from self._sorted_names()
            return
        parts = parse_subject(subject)
        if parts.name:
            if subject in self._subjects:
                yield subject
        elif parts.context == GLOBAL_CONTEXT:
            yield from self._sorted_names()
        else:
            yield from self._names_with_prefix(parts.prefix)

    def has_subjects(self, subject: str | None, *, deleted: bool) -> bool:
        """Whether the subject, or one of the context, has a version; a soft-deleted one counts only on request."""
        return any(deleted or self._subjects[name].latest is not None for name in self.subjects_in(subject))

    def is_deleted(self, subject: str) -> bool:
        """Whether all versions of a subject are soft-deleted."""
        return self._subjects[subject].latest is None

    # Ids, GUIDs and references

    def with_id(self, context: str, id: int) -> Iterator[StoredSchema]:
        """All versions that have this id in a context, soft-deleted ones too; there may be thousands."""
        ids = self._contexts.get(context)
        return iter(()) if ids is None else (self._at(key) for key in ids.by_id.get(id, ()))

    def with_digest(self, context: str, digest: bytes) -> Sequence[StoredSchema]:
        """All versions of this schema in a context, soft-deleted ones too; the one written last stands last."""
        ids = self._contexts.get(context)
        return [] if ids is None else [self._at(key) for key in ids.by_digest.get(digest, ())]

    def highest_id(self, context: str) -> int:
        """The highest id that a context ever had; 0 if it never had one."""
        ids = self._contexts.get(context)
        return 0 if ids is None else ids.highest_id

    @property
    def highest_ids(self) -> Mapping[str, int]:
        """The highest id that each context ever gave out, by the context's name; only contexts that gave one."""
        return {context: ids.highest_id for context, ids in self._contexts.items() if ids.highest_id}

    def referrers(self, key: SchemaKey) -> Sequence[StoredSchema]:
        """The versions that refer to this one, soft-deleted ones too."""
        return [self._at(referrer) for referrer in self._referrers.get(key, ())]

    @property
    def contexts(self) -> Sequence[str]:
        """All contexts but the default one, sorted."""
        return self._registered_contexts

    # Configs, modes and associations

    @property
    def configs(self) -> Mapping[str | None, Config]:
        """The configs as they were set, by subject or context; None is the top level."""
        return self._configs

    @property
    def modes(self) -> Mapping[str | None, Mode]:
        """The modes as they were set, by subject or context; None is the top level."""
        return self._modes

    @property
    def associations(self) -> Collection[StoredAssociation]:
        """All associations."""
        return self._associations.values()

    def associations_of_subject(self, subject: str) -> Sequence[StoredAssociation]:
        """The associations with a subject."""
        return [self._associations[key] for key in self._associations_of_subject.get(subject, ())]

    def associations_of_resource(self, resource_id: str) -> Sequence[StoredAssociation]:
        """The associations of a resource."""
        return [self._associations[key] for key in self._associations_of_resource.get(resource_id, ())]

    def associations_of_name(self, resource_name: str) -> Sequence[StoredAssociation]:
        """The associations of the resources with this name in all namespaces."""
        return [self._associations[key] for key in self._associations_of_name.get(resource_name, ())]

    # What must be written besides

    def record_of(self, key: SchemaKey) -> Record:
        """The record that says what the image says of a version; a tombstone if there is no such version."""
        schema = self.version(key.subject, key.version, deleted=True) if key.version >= 1 else None
        return Record(key, None if schema is None else schema.to_value())

    def unrecorded_highest_ids(self) -> list[Record]:
        """Records that keep the highest ids of contexts where no schema has them any more.

        Another registry has deleted those schemas, and does not write such records.
        """
        return [
            Record(HighestIdKey(context), HighestIdValue(context, ids.highest_id))
            for context, ids in self._contexts.items()
            if ids.highest_id > ids.recorded_id and ids.highest_id not in ids.by_id
        ]

    def keeping_highest_ids(self, records: Sequence[Record]) -> tuple[Record, ...]:
        """The records, and before them those that keep the highest ids of schemas which they remove from the log."""
        lost: dict[str, int] = {}
        for record in records:
            if isinstance(record.key, SchemaKey) and (
                old := self.version(record.key.subject, record.key.version, deleted=True)
            ):
                kept = isinstance(record.value, SchemaValue) and record.value.id == old.id
                context = context_of(old.subject)
                ids = self._contexts[context]
                if not kept and max(old.id, _ID_MIN) >= ids.highest_id > ids.recorded_id:
                    lost[context] = ids.highest_id
        kept_ids = (Record(HighestIdKey(context), HighestIdValue(context, id)) for context, id in lost.items())
        return (*kept_ids, *records)

    def check(self) -> None:
        """Raises InvariantViolation if an index contradicts the versions."""
        keys = [schema.key for subject in self._subjects.values() for schema in subject.versions.values()]
        for name, subject in self._subjects.items():
            active = [version for version, schema in subject.versions.items() if not schema.deleted]
            if (subject.latest.version if subject.latest else 0) != max(active, default=0) or not subject.versions:
                violated(f"subject {name!r}: latest is {subject.latest} of {list(subject.versions)}")
        by_id = [key for ids in self._contexts.values() for found in ids.by_id.values() for key in found]
        by_digest = [key for ids in self._contexts.values() for found in ids.by_digest.values() for key in found]
        if not len(by_id) == len(by_digest) == len(keys) or not set(by_id) == set(by_digest) == set(keys):
            violated(f"{len(keys)} versions, {len(by_id)} by id, {len(by_digest)} by digest")
        for context, ids in self._contexts.items():
            if ids.highest_id < max([ids.recorded_id, *ids.by_id]):
                violated(f"context {context}: highest id is {ids.highest_id} of {list(ids.by_id)}")
            for id, found in ids.by_id.items():
                if len({(context_of(key.subject), self._at(key).id, self._at(key).text) for key in found}) != 1:
                    violated(f"context {context}: id {id} stands for several schemas: {list(found)}")
        referring = {
            (_reference_key(schema, item), key)
            for key in keys
            for schema in [self._at(key)]
            for item in schema.references
        }
        if referring != {(key, referrer) for key, found in self._referrers.items() for referrer in found}:
            violated(f"{len(referring)} references, but referrers are {self._referrers}")

    def _at(self, key: SchemaKey) -> StoredSchema:
        return self._subjects[key.subject].versions[key.version]

    def _sorted_names(self) -> list[str]:
        """All subjects, sorted on the first look-up after a subject came or went."""
        if self._names is None:
            self._names = sorted(self._subjects)
        return self._names

    def _names_with_prefix(self, prefix: str) -> Sequence[str]:
        names = self._sorted_names()
        start = bisect_left(names, prefix)
        end = start
        while end < len(names) and names[end].startswith(prefix):
            end += 1
        found = names[start:end]
        if prefix.startswith(":."):
            return found
        return [name for name in found if not name.startswith(":.")]

    def _put_schema(self, key: SchemaKey, value: SchemaValue, timestamp: int) -> str | None:
        if value.id is None or value.schema is None or key.version < 1:
            return _refusal(key, "has no id, no schema, or an impossible version")
        schema = _stored(key, value, value.id, value.schema, timestamp)
        context = context_of(key.subject)
        same_id = next(self.with_id(context, schema.id), None)
        if same_id is not None and same_id.text != schema.text:
            place = f"version {same_id.version} of subject {same_id.subject!r}"
            return _refusal(key, f"has id {schema.id}, which stands for another schema in {place}")
        subject = self._subjects.get(key.subject)
        if subject is None:
            subject = self._subjects[key.subject] = _Subject()
            self._names = None
        elif key.version in subject.versions:
            self._unindex(subject.versions[key.version])
        subject.put(schema)
        ids = self._contexts.get(context)
        if ids is None:
            ids = self._contexts[context] = _Context()
        ids.by_id.setdefault(schema.id, {})[key] = None
        ids.by_digest.setdefault(schema.digest, {})[key] = None
        ids.highest_id = max(ids.highest_id, schema.id, _ID_MIN)
        for reference in schema.references:
            self._referrers.setdefault(_reference_key(schema, reference), {})[key] = None
        return None

    def _remove_schema(self, key: SchemaKey) -> None:
        subject = self._subjects.get(key.subject)
        if subject is None or key.version not in subject.versions:
            return
        self._unindex(subject.versions[key.version])
        subject.remove(key.version)
        if not subject.versions:
            del self._subjects[key.subject]
            self._names = None

    def _unindex(self, schema: StoredSchema) -> None:
        ids = self._contexts[context_of(schema.subject)]
        _discard(ids.by_id, schema.id, schema.key)
        _discard(ids.by_digest, schema.digest, schema.key)
        for reference in schema.references:
            target = _reference_key(schema, reference)
            if schema.key in self._referrers.get(target, ()):
                _discard(self._referrers, target, schema.key)

    def _soft_delete(self, subject: str, last: int) -> None:
        found = self._subjects.get(subject)
        if found is None:
            return
        for schema in list(found.versions.values()):
            if schema.version <= last and not schema.deleted:
                found.put(replace(schema, deleted=True))

    def _clear(self, subject: str | None) -> None:
        for name in list(self.subjects_in(subject)):
            for schema in self.versions(name):
                if schema.deleted:
                    self._remove_schema(schema.key)

    def _put_context(self, context: str, *, exists: bool) -> None:
        present = context in self._registered_contexts
        if exists and not present and context != DEFAULT_CONTEXT:
            insort(self._registered_contexts, context)
        elif present and not exists:
            self._registered_contexts.remove(context)

    def _put_association(self, key: AssociationKey, value: AssociationValue, timestamp: int) -> None:
        self._remove_association(key)
        self._associations[key] = StoredAssociation(value, value.create_ts or timestamp, timestamp)
        self._associations_of_subject.setdefault(key.subject, {})[key] = None
        self._associations_of_resource.setdefault(value.resource_id or "", {})[key] = None
        self._associations_of_name.setdefault(key.resource_name, {})[key] = None

    def _remove_association(self, key: AssociationKey) -> None:
        old = self._associations.pop(key, None)
        if old is not None:
            _discard(self._associations_of_subject, key.subject, key)
            _discard(self._associations_of_resource, old.value.resource_id or "", key)
            _discard(self._associations_of_name, key.resource_name, key)


def _stored(key: SchemaKey, value: SchemaValue, id: int, text: str, timestamp: int) -> StoredSchema:
    references = tuple(value.references or ())
    digest = _stored_digest(value)
    return StoredSchema(
        subject=key.subject,
        version=key.version,
        id=id,
        type=schema_type_of(value),
        text=text,
        references=references,
        metadata=value.metadata,
        rule_set=value.rule_set,
        digest=digest or schema_digest(text, references, value.metadata, value.rule_set),
        encrypted=digest is not None,
        deleted=bool(value.deleted),
        timestamp=timestamp,
    )


def _stored_digest(value: SchemaValue) -> bytes | None:
    """The digest that a record carries because it cannot be computed from encrypted properties."""
    if value.md5 is None:
        return None
    try:
        digest = b64decode(value.md5, validate=True)
    except ValueError:
        return None
    return digest if len(digest) == 16 else None


def _refusal(key: SchemaKey, reason: str) -> str:
    return f"version {key.version} of subject {key.subject!r} {reason}"


def _reference_key(schema: StoredSchema, reference: Reference) -> SchemaKey:
    return SchemaKey(qualify_beside(schema.subject, reference.subject), reference.version)


def _discard(index: dict[K, dict[V, None]], name: K, key: V) -> None:
    """Removes a key from one entry of an index, and the entry with its last key."""
    found = index[name]
    del found[key]
    if not found:
        del index[name]
