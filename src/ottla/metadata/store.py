"""The port to the metadata store: a small ordered key-value store with compare-and-set and leases.

Behind it are `sqlite/` (one machine) and `zookeeper/` (several machines); `ottla.sim.store` simulates it. Keys are
`/`-separated text without empty parts, values are bytes; `records.py` defines them. Brokers never send each other
metadata: the store's ordered changes are the only way.

How a cluster uses it:

- A broker registers with a lease; the lease's revision is its broker epoch. The controller holds a lease; its revision
  is the controller epoch. Both are fences: a commit with `Check(key, lease.revision)` fails once the lease has ended.
- A leader changes its ISR with `Put(partition_key, value, expected)` and a `Check` of its own registration.
- `wait_lost` returns before the store could give the lease to another owner: the owner stops, and asks for a new lease.
"""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from ottla.model.errors import MisuseError, RetriableError


class ConflictError(RetriableError):
    """A key was not at the expected revision, because it was changed first by another writer. Read again and retry."""


class RevisionGoneError(RetriableError):
    """The store no longer has the changes after that revision: take a snapshot, and follow from there."""


class StoreUnavailableError(RetriableError):
    """The store did not answer in time. The request was not executed, and will not be."""


class CommitUnknownError(StoreUnavailableError):
    """The store's answer did not arrive: the commit may have been made, or may still be. Take a snapshot to find
    out."""


class Put(NamedTuple):
    """Writes a key. `expected` is the revision of its last change, 0 for "must not exist", None for "any".

    The key of a lease stays a lease, but its revision changes, so that the owner's `Check` fails from then on.
    """

    key: str
    value: bytes
    expected: int | None = None


class Delete(NamedTuple):
    """Removes a key; `expected` as in `Put`. A missing key with `expected` None is not an error."""

    key: str
    expected: int | None = None


class Check(NamedTuple):
    """Changes nothing, but fails the commit unless the key is at this revision (0: does not exist)."""

    key: str
    expected: int


Operation = Put | Delete | Check


def check_operations(operations: Sequence[Operation]) -> None:
    """Raises MisuseError for what no store accepts: a key twice in one commit, an empty part or a NUL in a key."""
    seen: set[str] = set()
    for operation in operations:
        check_key(operation.key)
        if operation.key in seen:
            raise MisuseError(f"the key {operation.key!r} occurs twice in one commit: merge the operations")
        seen.add(operation.key)


def check_key(key: str) -> None:
    """Raises MisuseError for a key that no store accepts."""
    if not all(key.split("/")) or "\0" in key or not key.isprintable():
        raise MisuseError(f"{key!r} is not a valid key: it needs printable, non-empty parts separated by slashes")


class Entry(NamedTuple):
    """The current state of a key."""

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

    The owner measures the session's time by its own monotonic clock, from before its last renewal, and with a margin:
    to the owner the lease is lost before the store would give the key to another one. A lost lease does not come back,
    but another `lease` of the same key may follow at once.
    """

    @property
    def key(self) -> str: ...

    @property
    def revision(self) -> int:
        """The revision at which its key was written: a `Check` of the key at it fences the owner's commits."""

    @property
    def is_lost(self) -> bool:
        """Whether the session ended without `release`; the owner must stop acting on it at once."""

    async def wait_lost(self) -> None:
        """Returns as soon as `is_lost`; also after `release`."""

    async def release(self) -> None:
        """Removes the key; does nothing if the lease is lost."""


class MetadataStore(Protocol):
    """A store of cluster metadata."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def commit(self, operations: Sequence[Operation]) -> int:
        """Executes all operations or none, durably; returns the commit's revision. Raises ConflictError.

        A key may occur once in a commit. A commit that changes nothing gets no revision and returns the current one.
        Deleting the key of a lease ends the lease. Cancelling the caller does not stop a commit that has begun.
        Revisions count from 1, one for each commit. Raises StoreUnavailableError if nothing was written, and
        CommitUnknownError if that is not known.
        """

    async def snapshot(self) -> tuple[int, list[Entry]]:
        """Every key, sorted, at one revision, which includes every commit that had returned before the call.

        Raises StoreUnavailableError.
        """

    def follow(self, revision: int) -> AsyncIterator[list[Change]]:
        """Every change after a revision, in order, one list for each commit; waits for more. Ends when the store is
        closed.

        While the store cannot be reached it waits, and catches up afterwards. Raises RevisionGoneError if those changes
        are no longer kept.
        """

    async def lease(self, key: str, value: bytes) -> Lease:
        """Writes a key that is removed when this owner's session ends. Raises ConflictError while another lease holds
        it.

        Also if that is another lease of the same owner. Raises StoreUnavailableError, and CommitUnknownError as
        `commit` does: then the key may be held until the session ends.
        """
