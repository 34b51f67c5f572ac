"""The port to where cluster metadata lives: a small ordered key-value store with compare-and-set and leases.

The stores behind it are `sqlite_store.py` (one machine) and `zookeeper_store.py` (many); `ottla.sim.store` is their
simulated twin. Keys are `/`-separated text without empty parts, values bytes; `records.py` says what lies where.
Brokers never tell each other about metadata: the store's ordered changes are the only path.

How a cluster uses it:
- A broker registers with a lease; the lease's revision is its broker epoch. The controller's office is a lease; its
  revision is the fencing epoch. Both are fences: a commit with `Check(key, lease.revision)` fails once the lease ended.
- A leader changes its ISR with `Put(partition_key, value, expected)` and a `Check` of its own registration.
- `wait_lost` returns before the store could give the lease to another: its owner stops, and asks for a new one.
"""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from ottla.model.errors import MisuseError, RetriableError


class ConflictError(RetriableError):
    """A key was not at the expected revision: somebody else changed it first. Read again, decide again."""


class RevisionGoneError(RetriableError):
    """The store does not have the changes behind that revision: take a snapshot, and follow from there."""


class StoreUnavailableError(RetriableError):
    """The store did not answer in time. What was asked has not been done, and will not be."""


class CommitUnknownError(StoreUnavailableError):
    """The store's answer did not come: the commit may have been made, or may yet be. Take a snapshot to find out."""


class Put(NamedTuple):
    """Writes a key. `expected` is the revision of its last change, 0 for "must not exist", None for "as it may be".

    A lease's key stays a lease's; but its revision moves on, so that the owner's `Check` fails from then on.
    """

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
    """A key that lives as long as its owner's session.

    The owner counts the session's time by its own monotonic clock, from before it last asked for more, and with a
    margin: to it the lease is lost before the store would give the key to another. Lost is lost: a lease does not come
    back, but another `lease` of the same key may follow at once.
    """

    @property
    def key(self) -> str: ...

    @property
    def revision(self) -> int:
        """Where its key was written: a `Check` of the key at it fences whatever the owner commits."""

    @property
    def is_lost(self) -> bool:
        """Whether the session ended without `release`; the owner must stop acting on it at once."""

    async def wait_lost(self) -> None:
        """Returns as soon as `is_lost`; also after `release`."""

    async def release(self) -> None:
        """Removes the key; nothing happens if the lease is lost."""


class MetadataStore(Protocol):
    """See the module's docstring."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def commit(self, operations: Sequence[Operation]) -> int:
        """All of them or none, durable before it returns; answers the commit's revision. Raises ConflictError.

        A key occurs once in a commit. One that changes nothing takes no revision, and answers the present one. To
        delete a lease's key ends the lease. Cancelling the caller does not stop a commit that has begun. Revisions
        count up from 1, one for each commit. Raises StoreUnavailableError where nothing was written, and
        CommitUnknownError where that cannot be told.
        """

    async def snapshot(self) -> tuple[int, list[Entry]]:
        """Every key, sorted, as of one revision, which is no older than any commit that had returned when it was asked.

        Raises StoreUnavailableError.
        """

    def follow(self, revision: int) -> AsyncIterator[list[Change]]:
        """Every change after a revision, in order, one list for each commit; waits for more. Ends when closed.

        While the store cannot be reached it waits, and catches up afterwards. Raises RevisionGoneError where those
        changes are no longer kept.
        """

    async def lease(self, key: str, value: bytes) -> Lease:
        """Writes the key, to be removed when this owner's session ends. Raises ConflictError while another holds it.

        So does another lease of this owner. Raises StoreUnavailableError, and CommitUnknownError as `commit` does: the
        key may then be held until the session ends.
        """
