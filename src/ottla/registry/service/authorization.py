"""What a client may do to subjects: the `Authorizer` port, and which permissions a request needs.

Everything is allowed unless an `Authorizer` is given to the application, which asks for every request before anything
else is done with it. `cluster_access.py` is the authorizer that uses the cluster's users and ACLs.

A subject may be an alias, and a subject without a context is searched in all contexts: what a request needs is decided
about the subjects that it can reach, not about the text of its path.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from ottla.registry.service.http_messages import Query, whole_number
from ottla.registry.state import lookups
from ottla.registry.state.errors import RegistryError
from ottla.registry.state.qualified_subjects import (
    DEFAULT_CONTEXT,
    QualifiedSubject,
    is_default_context,
    normalize_subject,
    parse_subject,
    qualify_beside,
)
from ottla.registry.state.registry_image import RegistryImage
from ottla.registry.state.requests import SchemaRequest
from ottla.registry.state.scopes import actual_subject

ANONYMOUS: Final = "User:ANONYMOUS"

_LISTINGS: Final = frozenset({"/subjects", "/schemas"})
"""Answered with what the client may read."""
_WITHOUT_SUBJECT: Final = frozenset({"/contexts", "/schemas/types"})
_BY_ID: Final = "/schemas/ids/{id}"
_TEXT: Final = "/schema"


class Operation(StrEnum):
    """What a request does, in the words of Kafka's ACLs and of Confluent's registry."""

    DESCRIBE = "DESCRIBE"
    """Says something about the registry as a whole: for every client that is known."""
    SUBJECT_READ = "SUBJECT_READ"
    SUBJECT_WRITE = "SUBJECT_WRITE"
    SUBJECT_DELETE = "SUBJECT_DELETE"
    SUBJECT_COMPATIBILITY_READ = "SUBJECT_COMPATIBILITY_READ"
    SUBJECT_COMPATIBILITY_WRITE = "SUBJECT_COMPATIBILITY_WRITE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The client of a request."""

    principal: str = ANONYMOUS
    host: str = ""
    authorization: str = ""
    """The Authorization header, as it was sent."""


class Authorizer(Protocol):
    """Decides who a client is, and what it may do."""

    @property
    def allows_all(self) -> bool:
        """Whether every operation is allowed to everyone: then nothing else needs to be asked."""

    async def identify(self, client: Client) -> Client:
        """The client with its principal. Raises `RegistryError`: 401 for a client that is not known."""

    def allows(self, client: Client, operation: Operation, subject: str | None) -> bool:
        """Whether an identified client may do this to the subject; None for all subjects together."""


class AllowAll:
    """Allows everything to everyone."""

    allows_all: Final = True

    async def identify(self, client: Client) -> Client:
        """The client itself."""
        return client

    def allows(self, client: Client, operation: Operation, subject: str | None) -> bool:
        """True."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The permissions that a request needs: all of `subjects`, and one of `any_of` if that is not None."""

    operation: Operation
    subjects: tuple[str | None, ...] = ()
    any_of: tuple[str, ...] | None = None
    """Subjects of which the client must be able to read one, or else the schema does not exist for it."""


def needs_of(
    image: RegistryImage, operation: Operation, path: str, parameters: Mapping[str, str], query: Query
) -> Needs:
    """What a request for this route needs."""
    subject = parameters.get("subject")
    if operation is Operation.DESCRIBE or path in _WITHOUT_SUBJECT or path in _LISTINGS:
        return Needs(operation=operation)
    if path.startswith(_BY_ID):
        return Needs(operation=operation, any_of=_subjects_of_id(image, parameters["id"], query))
    if subject is None or is_default_context(subject):
        return Needs(operation=operation, subjects=(None,))
    return Needs(operation=operation, subjects=tuple(reached_subjects(image, operation, path, subject)))


def reached_subjects(image: RegistryImage, operation: Operation, path: str, subject: str) -> list[str]:
    """The subject in its one spelling, the one that it is an alias for, and those of the same name in other contexts
    if the answer does not say which of them was found."""
    actual = actual_subject(image, subject)
    found = {normalize_subject(subject): None, actual: None}
    parts = parse_subject(actual)
    # Other reads say in their answer which subject was found, and are checked again then.
    is_unnamed = path.endswith(_TEXT) or operation is Operation.SUBJECT_DELETE
    if parts.context == DEFAULT_CONTEXT and is_unnamed:
        others = (str(QualifiedSubject(context, parts.name)) for context in image.contexts)
        found.update({name: None for name in others if image.has_subjects(name, deleted=True)})
    return list(found)


def referenced_subjects(parent: str, request: SchemaRequest, image: RegistryImage) -> list[str]:
    """The subjects that a schema refers to: their text becomes part of what is answered about it."""
    named = [each.subject for each in request.references or () if each.subject]
    return [actual_subject(image, qualify_beside(normalize_subject(parent), each)) for each in named]


def visible(value: Any, may_read: "MayRead") -> Any:
    """An answer without the subjects that the client may not read. Raises `LookupError` if it is about one."""
    if isinstance(value, list):
        return [each for each in value if all(map(may_read, _subjects_in(each)))]
    if not all(map(may_read, _subjects_in(value))):
        raise LookupError
    return value


class MayRead(Protocol):
    """Whether a client may read a subject."""

    def __call__(self, subject: str, /) -> bool: ...


def _subjects_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict) and isinstance(value.get("subject"), str):
        yield value["subject"]


def _subjects_of_id(image: RegistryImage, id: str, query: Query) -> tuple[str, ...]:
    try:
        return tuple(lookups.subjects_of_id(image, whole_number(id), subject=query.text("subject"), deleted=True))
    except RegistryError:
        return ()
