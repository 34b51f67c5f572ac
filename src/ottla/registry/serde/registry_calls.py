"""The requests to a registry and how their answers are read, without I/O. Both clients use them."""

from collections.abc import Callable, Generator, Mapping
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from ottla.registry.schemas.schema import AVRO, Reference, Schema
from ottla.registry.serde.errors import RegistryAnswerError, ValueNotReadableError

T = TypeVar("T")

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
LATEST: Final = "latest"
REFERENCES_MAX: Final = 1_000
Version = int | str
"""A number, or "latest"."""


class RegisteredSchema(Struct, frozen=True, kw_only=True):
    """A schema as the registry knows it. A registry older than 8.0 has no GUIDs; some answers have no version."""

    id: int
    schema: Schema
    subject: str | None = None
    version: int | None = None
    guid: UUID | None = None


class Call(NamedTuple, Generic[T]):
    """A request: `read` makes its result of the answer's body."""

    method: str
    path: str
    read: Callable[[bytes], T]
    params: Mapping[str, str] = {}
    body: bytes | None = None


class _SchemaBody(Struct, omit_defaults=True, rename="camel"):
    schema: str | None = None
    schema_type: str = AVRO
    references: tuple[Reference, ...] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    guid: str | None = None
    subject: str | None = None
    version: int | None = None


class ContextId(Struct):
    """An id of a schema, and the context in which it has that id; "." is the default context."""

    id: int
    context: str = "."


class SubjectVersion(Struct, frozen=True):
    """A version of a subject."""

    subject: str
    version: int


class ListedSchema(Struct, frozen=True, kw_only=True, rename="camel"):
    """A version of a subject in a listing."""

    subject: str
    version: int
    id: int
    schema: str
    schema_type: str = AVRO
    guid: str | None = None
    references: tuple[Reference, ...] | None = None
    deleted: bool = False


class _ErrorBody(Struct):
    error_code: int = 0
    message: str = ""


class _CompatibilityBody(Struct):
    is_compatible: bool
    messages: list[str] = []


def register(subject: str, schema: Schema, *, normalize: bool = False) -> Call[RegisteredSchema]:
    """Makes the schema a version of the subject, unless it is one."""
    path = f"/subjects/{_quoted(subject)}/versions"
    return Call("POST", path, _registered(subject, schema), _flags(normalize=normalize), _body(schema))


def look_up(subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False) -> Call[RegisteredSchema]:
    """The version of the subject that has this schema."""
    path = f"/subjects/{_quoted(subject)}"
    flags = _flags(normalize=normalize, deleted=deleted)
    return Call("POST", path, _registered(subject, schema), flags, _body(schema))


def version(subject: str, version: Version = LATEST, *, deleted: bool = False) -> Call[RegisteredSchema]:
    """A version of the subject."""
    path = f"/subjects/{_quoted(subject)}/versions/{version}"
    return Call("GET", path, _registered(subject, None), _flags(deleted=deleted))


def schema_by_id(schema_id: int, subject: str | None = None) -> Call[RegisteredSchema]:
    """The schema with an id; the subject says in which context."""
    params = {} if subject is None else {"subject": subject}
    return Call("GET", f"/schemas/ids/{schema_id}", _registered(subject, None, schema_id), params)


def schema_by_guid(guid: UUID) -> Call[RegisteredSchema]:
    """The schema with a GUID. Its id depends on the context, so it is 0 here."""
    return Call("GET", f"/schemas/guids/{guid}", _registered(None, None, 0))


def subjects_of_id(schema_id: int, subject: str | None = None) -> Call[list[str]]:
    """The subjects that have a schema with this id as a version; the subject says in which context."""
    params = {} if subject is None else {"subject": subject}
    return Call("GET", f"/schemas/ids/{schema_id}/subjects", msgspec.json.Decoder(list[str]).decode, params)


def ids_of_guid(guid: UUID) -> Call[list[ContextId]]:
    """The ids of the schema with a GUID."""
    return Call("GET", f"/schemas/guids/{guid}/ids", msgspec.json.Decoder(list[ContextId]).decode)


def subjects(prefix: str = "", *, deleted: bool = False) -> Call[list[str]]:
    """The names of all subjects that begin with the prefix."""
    params = {**_flags(deleted=deleted), **({"subjectPrefix": prefix} if prefix else {})}
    return Call("GET", "/subjects", msgspec.json.Decoder(list[str]).decode, params)


def listed_schemas(
    prefix: str, *, deleted: bool = False, latest_only: bool = False, offset: int = 0, limit: int = -1
) -> Call[list[ListedSchema]]:
    """The versions of all subjects that begin with the prefix, in parts; `:*:` before it searches all contexts."""
    params = {"subjectPrefix": prefix, "offset": str(offset), "limit": str(limit)}
    flags = _flags(deleted=deleted, latestOnly=latest_only)
    return Call("GET", "/schemas", msgspec.json.Decoder(list[ListedSchema]).decode, {**params, **flags})


def versions_of_id(schema_id: int, subject: str | None = None, *, deleted: bool = False) -> Call[list[SubjectVersion]]:
    """The versions that have the schema with this id; the subject says in which context."""
    params = {**_flags(deleted=deleted), **({} if subject is None else {"subject": subject})}
    return Call("GET", f"/schemas/ids/{schema_id}/versions", msgspec.json.Decoder(list[SubjectVersion]).decode, params)


def all_settings() -> Call[dict[str, Any]]:
    """All configs and modes that were set. Only Ottla's registry has this request; others answer 404."""
    return Call("GET", "/ottla/settings", msgspec.json.decode)


def versions(subject: str, *, deleted: bool = False) -> Call[list[int]]:
    """The numbers of the subject's versions."""
    path = f"/subjects/{_quoted(subject)}/versions"
    return Call("GET", path, msgspec.json.Decoder(list[int]).decode, _flags(deleted=deleted))


def delete_subject(subject: str, *, permanent: bool = False) -> Call[list[int]]:
    """Deletes all versions of the subject and returns their numbers. `permanent` needs an ordinary delete before."""
    path = f"/subjects/{_quoted(subject)}"
    return Call("DELETE", path, msgspec.json.Decoder(list[int]).decode, _flags(permanent=permanent))


def delete_version(subject: str, version: Version, *, permanent: bool = False) -> Call[int]:
    """Deletes a version of the subject and returns its number."""
    path = f"/subjects/{_quoted(subject)}/versions/{version}"
    return Call("DELETE", path, msgspec.json.Decoder(int).decode, _flags(permanent=permanent))


def referenced_by(subject: str, version: Version) -> Call[list[int]]:
    """The ids of the schemas that use a version of the subject."""
    path = f"/subjects/{_quoted(subject)}/versions/{version}/referencedby"
    return Call("GET", path, msgspec.json.Decoder(list[int]).decode)


def compatibility_problems(
    subject: str, schema: Schema, version: Version | None = None, *, normalize: bool = False
) -> Call[list[str]]:
    """Why the schema cannot be registered under the subject's compatibility level; empty if it can.

    It is compared with one version, or without `version` with all those that the level asks for.
    """
    path = f"/compatibility/subjects/{_quoted(subject)}/versions" + ("" if version is None else f"/{version}")
    decode = msgspec.json.Decoder(_CompatibilityBody).decode

    def read(body: bytes) -> list[str]:
        answer = decode(body)
        return [] if answer.is_compatible else answer.messages or ["the schema is not compatible"]

    return Call("POST", path, read, {**_flags(normalize=normalize), "verbose": "true"}, _body(schema))


def config(subject: str | None = None, *, default_to_global: bool = True) -> Call[dict[str, Any]]:
    """The config of a subject, or the global one."""
    flags = _flags(defaultToGlobal=default_to_global and subject is not None)
    return Call("GET", _scoped("/config", subject), msgspec.json.decode, flags)


def set_config(settings: Mapping[str, Any], subject: str | None = None) -> Call[dict[str, Any]]:
    """Changes the config of a subject, or the global one: `{"compatibility": "FULL"}`."""
    return Call("PUT", _scoped("/config", subject), msgspec.json.decode, body=msgspec.json.encode(dict(settings)))


def delete_config(subject: str | None = None) -> Call[Any]:
    """Removes the config of a subject, or sets the global one to its defaults."""
    return Call("DELETE", _scoped("/config", subject), msgspec.json.decode)


def mode(subject: str | None = None, *, default_to_global: bool = True) -> Call[str]:
    """The mode of a subject, or the global one."""
    flags = _flags(defaultToGlobal=default_to_global and subject is not None)
    return Call("GET", _scoped("/mode", subject), _read_mode, flags)


def set_mode(mode: str, subject: str | None = None, *, force: bool = False) -> Call[str]:
    """Changes the mode of a subject, or the global one."""
    body = msgspec.json.encode({"mode": mode})
    return Call("PUT", _scoped("/mode", subject), _read_mode, _flags(force=force), body)


def delete_mode(subject: str | None = None) -> Call[Any]:
    """Removes the mode of a subject, or sets the global one to READWRITE."""
    return Call("DELETE", _scoped("/mode", subject), msgspec.json.decode)


def contexts() -> Call[list[str]]:
    """The names of all contexts."""
    return Call("GET", "/contexts", msgspec.json.Decoder(list[str]).decode)


def answer_error(status: int, body: bytes) -> RegistryAnswerError:
    """The error in the body of an answer, or what can be said without one."""
    try:
        error = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        shown = body[:200].decode(errors="replace")
        return RegistryAnswerError(status, status, f"the registry answered with HTTP status {status}: {shown}")
    return RegistryAnswerError(status, error.error_code or status, error.message or f"HTTP status {status}")


def qualified_like(subject: str, parent: str | None) -> str:
    """A reference's subject in the context of the subject that refers to it, unless it names its own context."""
    if parent is None or not parent.startswith(":.") or subject.startswith(":"):
        return subject
    return f"{parent[: parent.index(':', 1) + 1]}{subject}"


def _registered(
    subject: str | None, known: Schema | None, schema_id: int | None = None
) -> Callable[[bytes], RegisteredSchema]:
    decode = msgspec.json.Decoder(_SchemaBody).decode

    def read(body: bytes) -> RegisteredSchema:
        answer = decode(body)
        _check_rule_set(answer.rule_set)
        schema = known
        if answer.schema is not None:
            schema = Schema(
                text=answer.schema,
                type=answer.schema_type,
                references=answer.references or (),
                metadata=answer.metadata,
                rule_set=answer.rule_set,
            )
        found = answer.id if schema_id is None else schema_id
        if schema is None or found is None:
            raise msgspec.ValidationError("the answer has no schema or no id")
        return RegisteredSchema(
            id=found,
            schema=schema,
            subject=answer.subject or subject,
            version=answer.version,
            guid=None if answer.guid is None else UUID(answer.guid),
        )

    return read


def _check_rule_set(rule_set: Mapping[str, Any] | None) -> None:
    for name in ("domainRules", "encodingRules", "migrationRules"):
        rules = None if rule_set is None else rule_set.get(name)
        if rules is not None and not (isinstance(rules, list) and all(isinstance(each, dict) for each in rules)):
            raise msgspec.ValidationError(f"{name} of the rule set is not a list of rules")


def _body(schema: Schema) -> bytes:
    return msgspec.json.encode(
        _SchemaBody(
            schema=schema.text,
            schema_type=schema.type,
            references=schema.references or None,
            metadata=schema.metadata,
            rule_set=schema.rule_set,
        )
    )


def _read_mode(body: bytes) -> str:
    return msgspec.json.decode(body, type=dict[str, str])["mode"]


def _flags(**flags: bool) -> dict[str, str]:
    return {name: "true" for name, value in flags.items() if value}


def _scoped(path: str, subject: str | None) -> str:
    return path if subject is None else f"{path}/{_quoted(subject)}"


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


Texts = Mapping[str, str]
"""The texts of references by name; each comes after those that it uses itself."""


def references_of(schema: Schema, subject: str | None) -> Generator[tuple[str, int], RegisteredSchema, Texts]:
    """Finds all that a schema uses: yields subjects and versions, and wants them sent back as they are registered."""
    texts: dict[str, str] = {}
    seen: set[str] = set()
    # Each reference comes twice: first to find what it uses itself, then, behind that, to be added.
    stack: list[tuple[Reference, str | None, str | None]] = [(each, subject, None) for each in schema.references[::-1]]
    while stack:
        reference, parent, text = stack.pop()
        if text is not None:
            texts[reference.name] = text
            continue
        if reference.name in seen:
            continue
        seen.add(reference.name)
        if len(seen) > REFERENCES_MAX:
            raise ValueNotReadableError(f"the schema has more than {REFERENCES_MAX} references")
        own_subject = qualified_like(reference.subject, parent)
        found = yield own_subject, reference.version
        stack.append((reference, parent, found.schema.text))
        stack.extend((each, own_subject, None) for each in found.schema.references[::-1])
    return texts
