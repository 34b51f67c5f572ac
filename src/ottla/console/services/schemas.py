"""Subjects, versions, settings and checks of a schema registry, for pages. Reads pass by the client's cache.

Functions take the client of the signed-in user, so that a registry with logins answers what that user may see. Changes
go through `Access.change`.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.console.errors import InvalidFormError
from ottla.console.services.schema_diff import SchemaDiff, compare, record_names
from ottla.model.errors import InvalidRequestError
from ottla.operations.schemas.readable_conflicts import readable_conflicts
from ottla.operations.schemas.readable_schemas import readable
from ottla.registry.schemas.schema import Reference, Schema
from ottla.registry.serde import registry_calls as calls
from ottla.registry.serde.errors import RegistryAnswerError
from ottla.registry.serde.registry_calls import ListedSchema, SubjectVersion
from ottla.registry.state.qualified_subjects import DEFAULT_CONTEXT, parse_subject

if TYPE_CHECKING:
    from ottla.registry.serde.registry_client import AsyncRegistryClient

LEVELS: Final[Mapping[str, str]] = {
    "BACKWARD": "Consumers with the new schema read data of the last version. Upgrade consumers first.",
    "BACKWARD_TRANSITIVE": "Consumers with the new schema read data of all versions. Upgrade consumers first.",
    "FORWARD": "Consumers with the last version read data of the new schema. Upgrade producers first.",
    "FORWARD_TRANSITIVE": "Consumers with any version read data of the new schema. Upgrade producers first.",
    "FULL": "Backward and forward with the last version. Upgrade in any order.",
    "FULL_TRANSITIVE": "Backward and forward with all versions. Upgrade in any order.",
    "NONE": "Nothing is checked. A new version may break every reader.",
}
MODES: Final[Mapping[str, str]] = {
    "READWRITE": "Schemas can be registered and read.",
    "READONLY": "Schemas can be read; registering and deleting is refused.",
    "READONLY_OVERRIDE": "As READONLY, for all subjects, whatever their own mode says. Deprecated.",
    "IMPORT": "Schemas are registered with the ids and versions that the client gives, without a check.",
    "FORWARD": "Requests are forwarded to another registry; nothing is registered here.",
}
SETTABLE_MODES: Final = ("READWRITE", "READONLY", "IMPORT")
TYPES: Final = ("AVRO", "JSON", "PROTOBUF")
_PAGE: Final = 1000
_VERSIONS_MAX: Final = 1000
_NOT_FOUND: Final = 404
_FORBIDDEN: Final = 403
_NO_SUBJECT: Final = 40401
_INVALID_SCHEMA: Final = 42201
_NOT_SET: Final = frozenset({40401, 40408, 40409})
_SOFT_DELETED: Final = frozenset({40401, 40404, 40406})
"""It was soft-deleted before."""


class UnknownSubjectError(InvalidRequestError):
    """The registry has no such subject or version, or the user may not read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectRow:
    """A subject in the list."""

    subject: str
    context: str
    name: str
    type: str
    version: int
    """The latest one."""
    id: int
    is_deleted: bool
    level: str | None
    """Its own compatibility level; None if that of its context or the registry applies, or is not known."""
    mode: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectList:
    """All subjects, and the settings that hold for the registry as a whole."""

    rows: tuple[SubjectRow, ...]
    contexts: tuple[str, ...]
    level: str | None
    """None if the user may not see it."""
    mode: str | None
    has_own_settings: bool
    """Whether levels and modes of single subjects are known; other registries do not list them."""

    @property
    def active(self) -> int:
        """Subjects that have a version that is not deleted."""
        return sum(not row.is_deleted for row in self.rows)

    @property
    def deleted(self) -> int:
        """Subjects of which all versions are soft-deleted."""
        return len(self.rows) - self.active


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    """A version of a subject."""

    version: int
    id: int
    guid: str | None
    type: str
    is_deleted: bool
    text: str
    """As it is registered."""
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A level or a mode: the subject's own, if it has one, and the one that applies."""

    own: str | None
    effective: str | None
    """None if the user may not see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicUse:
    """A topic whose records use a subject, by the name of the subject."""

    topic: str
    strategy: str
    part: str
    """key, value, or "key or value" where the name does not tell."""
    exists: bool | None
    """None if the topics of the cluster are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectView:
    """One subject with one of its versions."""

    subject: str
    context: str
    name: str
    versions: tuple[VersionRow, ...]
    """Newest first, soft-deleted ones too."""
    shown: VersionRow
    text: str
    """The shown version, laid out for reading."""
    record_names: tuple[str, ...]
    references: tuple[tuple[Reference, str], ...]
    """What the shown version uses, and the subject of each with its context."""
    referenced_by: tuple[SubjectVersion, ...]
    same_schema: tuple[SubjectVersion, ...]
    """Versions of other subjects with the same id."""
    level: Setting
    mode: Setting

    @property
    def is_deleted(self) -> bool:
        """Whether all versions are soft-deleted."""
        return all(each.is_deleted for each in self.versions)

    def find(self, version: int) -> VersionRow:
        """A version. Raises `UnknownSubjectError`."""
        for each in self.versions:
            if each.version == version:
                return each
        raise UnknownSubjectError(f"subject {self.subject} has no version {version}")

    def before(self, version: int) -> VersionRow | None:
        """The version before one, soft-deleted ones too; None for the first."""
        return next((each for each in self.versions if each.version < version), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What registering a schema would do."""

    problem: str | None
    """Why the registry does not accept the text at all."""
    conflicts: tuple[str, ...]
    """Why it is not compatible, one sentence each; empty if it is."""
    same_as: int | None
    """The version that has this schema already: nothing would be registered."""
    next_version: int
    level: str | None
    mode: str | None
    latest: VersionRow | None
    diff: SchemaDiff | None
    """From the latest version; None for a new subject."""

    @property
    def can_register(self) -> bool:
        """Whether a registration would succeed and make a new version."""
        return self.problem is None and not self.conflicts and self.same_as is None


async def list_subjects(registry: "AsyncRegistryClient") -> SubjectList:
    """All subjects of all contexts, soft-deleted ones too."""
    active, everything, level, mode, (levels, modes, known) = await asyncio.gather(
        _listed(registry, ":*:", latest_only=True),
        _listed(registry, ":*:", latest_only=True, deleted=True),
        read_level(registry, None),
        read_mode(registry, None),
        _own_settings(registry),
    )
    names = {each.subject for each in active}
    rows = [_row(each, levels, modes, is_deleted=False) for each in active]
    rows += [_row(each, levels, modes, is_deleted=True) for each in everything if each.subject not in names]
    rows.sort(key=lambda row: (row.context, row.name))
    return SubjectList(
        rows=tuple(rows),
        contexts=tuple(dict.fromkeys(row.context for row in rows)),
        level=level.effective,
        mode=mode.effective,
        has_own_settings=known,
    )


async def read_subject(registry: "AsyncRegistryClient", subject: str, version: int | None = None) -> SubjectView:
    """A subject with a version, the latest one if None. Raises `UnknownSubjectError`."""
    found, level, mode = await asyncio.gather(
        _versions(registry, subject), read_level(registry, subject), read_mode(registry, subject)
    )
    if not found:
        raise UnknownSubjectError(f"the registry has no subject {subject}, or you may not read it")
    if version is None:
        shown = next((each for each in found if not each.is_deleted), found[0])
    else:
        shown = next((each for each in found if each.version == version), None) or _missing(subject, version)
    same, users = await asyncio.gather(
        registry.ask(calls.versions_of_id(shown.id, subject, deleted=True)), _referenced_by(registry, subject, shown)
    )
    parts = parse_subject(subject)
    return SubjectView(
        subject=subject,
        context=parts.context,
        name=parts.name,
        versions=found,
        shown=shown,
        text=readable(shown.type, shown.text),
        record_names=tuple(record_names(shown.type, shown.text)),
        references=tuple((each, calls.qualified_like(each.subject, subject)) for each in shown.references),
        referenced_by=users,
        same_schema=tuple(each for each in same if each.subject != subject),
        level=level,
        mode=mode,
    )


def compare_versions(old: VersionRow, new: VersionRow) -> SchemaDiff:
    """How one version becomes another."""
    return compare(old.type, old.text, new.type, new.text)


def topics_using(subject: str, names: Iterable[str], topics: Iterable[str] | None) -> list[TopicUse]:
    """The topics that use a subject, by Kafka's naming strategies. `names` are those of the subject's records.

    A subject that is named after a record (RecordNameStrategy) belongs to no topic, so nothing is found for it.
    """
    name = parse_subject(subject).name
    known = None if topics is None else set(topics)
    found: dict[str, TopicUse] = {}
    for part in ("key", "value"):
        topic = name.removesuffix(f"-{part}")
        if topic and topic != name:
            exists = None if known is None else topic in known
            found[topic] = TopicUse(topic=topic, strategy="TopicNameStrategy", part=part, exists=exists)
    for record in names:
        topic = name.removesuffix(f"-{record}")
        if topic and topic != name and topic not in found:
            exists = None if known is None else topic in known
            found[topic] = TopicUse(topic=topic, strategy="TopicRecordNameStrategy", part="key or value", exists=exists)
    return list(found.values())


async def read_level(registry: "AsyncRegistryClient", subject: str | None) -> Setting:
    """The compatibility level of a subject, or of the registry as a whole."""
    config = await _or_none(registry.ask(calls.config(subject)))
    effective = None if config is None else config.get("compatibilityLevel")
    if subject is None or config is None:
        return Setting(own=effective, effective=effective)
    own = await _or_none(registry.ask(calls.config(subject, default_to_global=False)))
    return Setting(own=None if own is None else own.get("compatibilityLevel"), effective=effective)


async def read_mode(registry: "AsyncRegistryClient", subject: str | None) -> Setting:
    """The mode of a subject, or of the registry as a whole."""
    effective = await _or_none(registry.ask(calls.mode(subject)))
    if subject is None or effective is None:
        return Setting(own=effective, effective=effective)
    return Setting(own=await _or_none(registry.ask(calls.mode(subject, default_to_global=False))), effective=effective)


async def check_schema(registry: "AsyncRegistryClient", subject: str, schema: Schema) -> Check:
    """What registering this schema would do. Changes nothing."""
    level, mode, versions = await asyncio.gather(
        read_level(registry, subject), read_mode(registry, subject), _versions(registry, subject)
    )
    latest = next((each for each in versions if not each.is_deleted), None)
    problem: str | None = None
    conflicts: list[str] = []
    same_as: int | None = None
    try:
        messages = await registry.ask(calls.compatibility_problems(subject, schema))
        conflicts = readable_conflicts(", ".join(messages)) or messages
        same_as = (await registry.ask(calls.look_up(subject, schema))).version
    except RegistryAnswerError as error:
        if error.error_code == _INVALID_SCHEMA or error.status == 422:
            problem = str(error)
        elif error.status != _NOT_FOUND:
            raise
    return Check(
        problem=problem,
        conflicts=() if same_as is not None else tuple(conflicts),
        same_as=same_as,
        next_version=versions[0].version + 1 if versions else 1,
        level=level.effective,
        mode=mode.effective,
        latest=latest,
        diff=None if latest is None else compare(latest.type, latest.text, schema.type, schema.text),
    )


def parse_references(text: str) -> tuple[Reference, ...]:
    """References as people write them, one on each line: `name = subject : version`. Raises `InvalidFormError`."""
    found = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, _, target = (part.strip() for part in line.partition("="))
        subject, _, version = (part.strip() for part in target.rpartition(":"))
        if not name or not subject or not (version.isascii() and version.isdigit()):
            raise InvalidFormError(f"reference {line.strip()!r} is not in the form NAME=SUBJECT:VERSION", "references")
        found.append(Reference(name=name, subject=subject, version=int(version)))
    return tuple(found)


async def register_schema(registry: "AsyncRegistryClient", subject: str, schema: Schema) -> SubjectVersion:
    """Registers a schema, past the client's cache; returns the version that has it."""
    await registry.ask(calls.register(subject, schema))
    found = await registry.ask(calls.look_up(subject, schema))
    return SubjectVersion(subject=subject, version=found.version or 1)


async def delete_schemas(
    registry: "AsyncRegistryClient", subject: str, version: int | None, *, permanent: bool
) -> list[int]:
    """Deletes a subject or one of its versions: softly, or for good, which soft-deletes first where that is missing.

    Returns the numbers of the versions that were deleted.
    """
    deleted: list[int] = []
    try:
        deleted = await _delete(registry, subject, version, permanent=False)
    except RegistryAnswerError as error:
        if not permanent or error.error_code not in _SOFT_DELETED:
            raise
    return await _delete(registry, subject, version, permanent=True) if permanent else deleted


async def set_level(registry: "AsyncRegistryClient", subject: str | None, level: str | None) -> None:
    """Sets a compatibility level; None removes that of a subject, so that the level above it applies."""
    if level is None:
        await registry.ask(calls.delete_config(subject))
    else:
        await registry.ask(calls.set_config({"compatibility": level}, subject))


async def set_mode(registry: "AsyncRegistryClient", subject: str | None, mode: str | None, *, force: bool) -> None:
    """Sets a mode; None removes that of a subject. IMPORT needs `force` where schemas exist."""
    if mode is None:
        await registry.ask(calls.delete_mode(subject))
    else:
        await registry.ask(calls.set_mode(mode, subject, force=force))


async def _delete(registry: "AsyncRegistryClient", subject: str, version: int | None, *, permanent: bool) -> list[int]:
    if version is None:
        return await registry.delete_subject(subject, permanent=permanent)
    return [await registry.delete_version(subject, version, permanent=permanent)]


async def _listed(
    registry: "AsyncRegistryClient", prefix: str, *, latest_only: bool = False, deleted: bool = False
) -> list[ListedSchema]:
    found: list[ListedSchema] = []
    while True:
        call = calls.listed_schemas(prefix, latest_only=latest_only, deleted=deleted, offset=len(found), limit=_PAGE)
        page = await registry.ask(call)
        found += page
        if len(page) < _PAGE:
            return found


async def _versions(registry: "AsyncRegistryClient", subject: str) -> tuple[VersionRow, ...]:
    """All versions, newest first. A subject is also a prefix of others, which are left out."""
    found = await _listed(registry, subject, deleted=True)
    rows = [
        VersionRow(
            version=each.version,
            id=each.id,
            guid=each.guid,
            type=each.schema_type,
            is_deleted=each.deleted,
            text=each.schema,
            references=each.references or (),
        )
        for each in found
        if each.subject == subject
    ]
    return tuple(sorted(rows, key=lambda row: -row.version)[:_VERSIONS_MAX])


async def _referenced_by(
    registry: "AsyncRegistryClient", subject: str, shown: VersionRow
) -> tuple[SubjectVersion, ...]:
    if shown.is_deleted:
        return ()
    ids = await _or_none(registry.ask(calls.referenced_by(subject, shown.version))) or []
    found = await asyncio.gather(*(registry.ask(calls.versions_of_id(each, subject)) for each in ids))
    return tuple(each for some in found for each in some)


_Settings = dict[str, str | None]


async def _own_settings(registry: "AsyncRegistryClient") -> tuple[_Settings, _Settings, bool]:
    """Levels and modes by subject, and whether the registry lists them: others than Ottla's do not."""
    try:
        found = await registry.ask(calls.all_settings())
    except RegistryAnswerError:
        return {}, {}, False
    levels = {each.get("subject"): each.get("compatibilityLevel") for each in found["configs"]}
    modes = {each.get("subject"): each.get("mode") for each in found["modes"]}
    return levels, modes, True


async def _or_none(asked: Any) -> Any:
    """The answer; None if nothing is set, or if the user may not see it."""
    try:
        return await asked
    except RegistryAnswerError as error:
        if error.error_code in _NOT_SET or error.status == _FORBIDDEN:
            return None
        raise


def _row(
    found: ListedSchema, levels: Mapping[str, str | None], modes: Mapping[str, str | None], *, is_deleted: bool
) -> SubjectRow:
    parts = parse_subject(found.subject)
    return SubjectRow(
        subject=found.subject,
        context=parts.context or DEFAULT_CONTEXT,
        name=parts.name,
        type=found.schema_type,
        version=found.version,
        id=found.id,
        is_deleted=is_deleted,
        level=levels.get(found.subject),
        mode=modes.get(found.subject),
    )


def _missing(subject: str, version: int) -> VersionRow:
    raise UnknownSubjectError(f"subject {subject} has no version {version}")
