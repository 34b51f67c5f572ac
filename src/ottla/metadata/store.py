"""The port to where cluster metadata lives: a small ordered key-value store with compare-and-set and leases.

The stores behind it are `sqlite_store.py` (one machine) and, later, ZooKeeper (many). Keys are `/`-separated text
without empty parts, values bytes; `records.py` says what lies where. Brokers never tell each other about metadata: the
store's ordered changes are the only path.
"""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from ottla.model.errors import MisuseError, RetriableError


class ConflictError(RetriableError):
    """A key was not at the expected revision: somebody else changed it first. Read again, decide again."""


class RevisionGoneError(RetriableError):
    """The store does not have the changes behind that revision: take a snapshot, and follow from there."""


class Put(NamedTuple):
    """Writes a key. `expected` is the revision of its last change, 0 for "must not exist", None for "as it may be"."""

    key: str
    value: bytes
    expected: int | None = None


class Delete(NamedTuple):
    """Removes a key; `expected` as in `Put`. Missing with `expected` None is no error."""

    key: str
    expected: int | None = None


class Check(NamedTuple):
    """Changes nothing, but fails the commit unless the key is at this revision (0: does not exist)."""

    key: str
    expected: int


Operation = Put | Delete | Check


def check_operations(operations: Sequence[Operation]) -> None:
    """Raises MisuseError for what no store takes: a key twice in one commit, an empty part in a key, a NUL in it."""
    seen: set[str] = set()
    for operation in operations:
        check_key(operation.key)
        if operation.key in seen:
            raise MisuseError(f"the key {operation.key!r} is in one commit twice: make one operation of them")
        seen.add(operation.key)


def check_key(key: str) -> None:
    """Raises MisuseError for a key that no store takes."""
    if not all(key.split("/")) or "\0" in key or not key.isprintable():
        raise MisuseError(f"{key!r} is no key: printable parts between slashes, none of them empty")


class Entry(NamedTuple):
    """A key as it is now."""

    key: str
    value: bytes
    revision: int


class Change(NamedTuple):
    """A key was written, or with `value` None removed, at this revision. All changes of one commit share it."""

    revision: int
    key: str
    value: bytes | None


class Lease(Protocol):
    """A key that lives as long as its owner's session."""

    @property
    def revision(self) -> int:
        """Where its key was written: a `Check` of the key at it fences whatever the owner commits."""

    @property
    def is_lost(self) -> bool:
        """Whether the session ended without `release`; the owner must stop acting on it at once."""

    async def release(self) -> None:
        """Removes the key; nothing happens if the lease is lost."""


class MetadataStore(Protocol):
    """See the module's docstring."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def commit(self, operations: Sequence[Operation]) -> int:
        """All of them or none, durable before it returns; answers the commit's revision. Raises ConflictError.

        A key occurs once in a commit. One that changes nothing takes no revision, and answers the present one. To
        delete a lease's key ends the lease. Cancelling the caller does not stop a commit that has begun.
        """

    async def snapshot(self) -> tuple[int, list[Entry]]:
        """Every key, sorted, as of one revision."""

    def follow(self, revision: int) -> AsyncIterator[list[Change]]:
        """Every change after a revision, in order, one list for each commit; waits for more. Ends when closed.

        Raises RevisionGoneError where those changes are no longer kept.
        """

    async def lease(self, key: str, value: bytes) -> Lease:
        """Writes the key, to be removed when this owner's session ends. Raises ConflictError while another holds it."""
