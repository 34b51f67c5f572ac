"""The keys of a metadata store in memory, and the effect of commits on them. Pure: no store, no clock.

The ZooKeeper store keeps the cluster's keys in such a table, updated from its log; the simulated store has nothing
else. A `KeyDraft` is a table with commits that are tried but not made yet. SQLite does the same in its file.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.metadata.store import Change, ConflictError, Delete, Entry, Operation, Put

Written = Sequence[tuple[str, bytes | None]]
"""What one commit writes: keys with their new values, None for removed keys."""


class Held(NamedTuple):
    """A key's value, the revision that wrote it, and for a lease the session that owns it."""

    value: bytes
    revision: int
    owner: str | None = None


class KeyTable:
    """All keys as of `revision`."""

    __slots__ = ("_keys", "revision")

    def __init__(self, revision: int = 0, keys: dict[str, Held] | None = None) -> None:
        self.revision = revision
        self._keys: dict[str, Held] = {} if keys is None else keys

    def get(self, key: str) -> Held | None:
        """The value of a key."""
        return self._keys.get(key)

    def items(self) -> Iterable[tuple[str, Held]]:
        """All keys, in no particular order."""
        return self._keys.items()

    def entries(self) -> list[Entry]:
        """All keys, sorted."""
        return sorted(Entry(key, held.value, held.revision) for key, held in self._keys.items())

    def owners(self) -> set[str]:
        """The sessions that own leases."""
        return {held.owner for held in self._keys.values() if held.owner is not None}

    def owned_by(self, owners: Iterable[str]) -> list[tuple[str, int]]:
        """The keys that these sessions own, sorted, with their revisions."""
        wanted = set(owners)
        return sorted((key, held.revision) for key, held in self._keys.items() if held.owner in wanted)

    def apply(self, written: Written, owner: str | None = None) -> list[Change]:
        """Applies the next commit; with an owner, the keys it writes are leases of that session."""
        self.revision += 1
        for key, value in written:
            held = _written(value, self.revision, owner, self._keys.get(key))
            if held is None:
                self._keys.pop(key, None)
            else:
                self._keys[key] = held
        return [Change(self.revision, key, value) for key, value in written]


class KeyDraft:
    """A table after some commits; the table itself does not change."""

    __slots__ = ("_changed", "_table", "revision")

    def __init__(self, table: KeyTable) -> None:
        self._table = table
        self._changed: dict[str, Held | None] = {}
        self.revision = table.revision

    def get(self, key: str) -> Held | None:
        """The value of a key after these commits."""
        return self._changed[key] if key in self._changed else self._table.get(key)

    def commit(self, operations: Sequence[Operation], owner: str | None = None) -> Written:
        """What a commit would write; empty if it would change nothing. Raises ConflictError."""
        written: list[tuple[str, bytes | None]] = []
        for operation in operations:
            held = self.get(operation.key)
            found = 0 if held is None else held.revision
            if operation.expected is not None and found != operation.expected:
                raise ConflictError(
                    f"{operation.key!r} is at revision {found}, not at {operation.expected}: it was changed "
                    "in the meantime; read it again and retry"
                )
            if isinstance(operation, Put):
                written.append((operation.key, operation.value))
            elif isinstance(operation, Delete) and held is not None:
                written.append((operation.key, None))
        if written:
            self.revision += 1
            for key, value in written:
                self._changed[key] = _written(value, self.revision, owner, self.get(key))
        return written


def _written(value: bytes | None, revision: int, owner: str | None, before: Held | None) -> Held | None:
    """A key after a write. Writing the key of a lease, without taking the lease over, does not change its owner."""
    if value is None:
        return None
    return Held(value, revision, owner if owner is not None or before is None else before.owner)
