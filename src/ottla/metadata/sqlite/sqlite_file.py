"""The metadata store's SQLite file: keys, their changes, and leases. Synchronous; one thread at a time.

WAL with `synchronous=FULL`: a commit that returned survives a power cut. Many rows are read and written with one
statement, as JSON on the way out: every step of a statement releases and takes the GIL, and ten thousand steps would be
slow beside a busy event loop. `sqlite_store.py` calls this from the event loop.
"""

import logging
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from tempfile import mkstemp
from typing import Any, Final

import msgspec

from ottla.metadata.lease_owner import LeaseOwner, is_gone
from ottla.metadata.store import Change, Check, ConflictError, Delete, Entry, Operation, Put, RevisionGoneError
from ottla.model.errors import MisuseError, StorageError

APPLICATION_ID: Final = 0x4F74746C
"""Marks the file as Ottla's: "Ottl"."""
FORMAT: Final = 1
ROWS_PER_STATEMENT: Final = 500
ROWS_PER_PAGE: Final = 10_000
PRUNE_EVERY: Final = 100
"""This many revisions are pruned at once, rather than one at each commit."""

_SCHEMA: Final = f"""
CREATE TABLE position (id INTEGER PRIMARY KEY CHECK (id = 0), revision INTEGER NOT NULL, pruned_to INTEGER NOT NULL);
CREATE TABLE keys (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE changes (revision INTEGER, place INTEGER, key TEXT NOT NULL, value BLOB, PRIMARY KEY (revision, place))
    WITHOUT ROWID;
CREATE TABLE leases (key TEXT PRIMARY KEY, token TEXT NOT NULL, owner BLOB NOT NULL, expires REAL) WITHOUT ROWID;
INSERT INTO position VALUES (0, 0, 0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
"""

_RESTORE: Final = (
    "stop all brokers, then restore the newest backup, or move the file with its -wal and -shm away to have topics"
    " recovered from the partition folders, without their configs"
)
_HELD: Final = "another process holds it: stop that process, or let all brokers of this machine share the file"
_WHAT_TO_DO: Final = {
    sqlite3.SQLITE_FULL: "free some space",
    sqlite3.SQLITE_BUSY: _HELD,
    sqlite3.SQLITE_LOCKED: _HELD,
    sqlite3.SQLITE_CORRUPT: f"the file is damaged: {_RESTORE}",
    sqlite3.SQLITE_NOTADB: f"the file is damaged or not a metadata store: {_RESTORE}",
    sqlite3.SQLITE_CANTOPEN: "check that its folder exists and is writable",
    sqlite3.SQLITE_READONLY: "check that the file and its folder are writable",
    sqlite3.SQLITE_PERM: "check that the file and its folder are writable",
    sqlite3.SQLITE_IOERR: "the disk failed: repair it, then restart",
}
_FATAL: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR})
"""After these errors the connection cannot be trusted: a sync that succeeds after a failed one proves nothing."""

_MODE: Final = 0o600
_LOGGER: Final = logging.getLogger(__name__)
_BUSY_PAUSE_SECONDS: Final = 0.01
_TO_READ: Final = "BEGIN"

_REVISIONS: Final = msgspec.json.Decoder(list[tuple[str, int]])
_ENTRIES: Final = msgspec.json.Decoder(list[tuple[str, str, int]])
_CHANGES: Final = msgspec.json.Decoder(list[tuple[int, int, str, str | None]])
_OWNER: Final = msgspec.json.Decoder(LeaseOwner)


class SqliteFile:
    """The tables of the store. Every SQLite failure is raised as a StorageError that names the file.

    With `exclusive` no other process can open the file at the same time. `changes_kept` is how many revisions a
    follower may be behind. `on_committed` is called after each commit with a revision, once other processes can read
    it.
    """

    def __init__(
        self,
        path: str,
        *,
        exclusive: bool,
        busy_timeout_ms: int,
        changes_kept: int,
        on_committed: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path
        self._exclusive = exclusive
        self._busy_timeout_ms = busy_timeout_ms
        self._changes_kept = changes_kept
        self._on_committed = on_committed
        self._connection: sqlite3.Connection | None = None
        self._failure: StorageError | None = None
        self._seen_data_version = -1
        self.revision = 0
        """The newest revision that this process knows."""

    def open(self) -> None:
        """Opens or creates the file; recovers what a killed process left."""
        self._failure = None
        self._create_private()
        with self._guarded("open"):
            connection = sqlite3.connect(
                self._path,
                timeout=self._busy_timeout_ms / 1000,
                isolation_level=None,
                # The store makes one call at a time, but not always in the same thread.
                check_same_thread=False,
            )
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection

    def _create_private(self) -> None:
        """Creates a missing file for its owner only: it holds salted passwords. SQLite's other files get its mode."""
        try:
            mode = stat.S_IMODE(os.stat(self._path).st_mode)
        except FileNotFoundError:
            # If the folder is missing, or nothing can be written there, SQLite will say so.
            with suppress(OSError):
                _create_private(self._path)
            return
        except OSError:
            return
        if mode & ~_MODE:
            _LOGGER.warning(
                "the metadata file %s has mode %o: other users of this machine have access to users and ACLs;"
                " restrict it with chmod %o %s",
                self._path,
                mode,
                _MODE,
                self._path,
            )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if self._exclusive:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        application, tables = connection.execute(
            "SELECT application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id"
        ).fetchone()
        if (application, tables) == (0, 0):
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
        elif application != APPLICATION_ID:
            raise StorageError(f"{self._path} is another program's database: choose another file for the metadata")
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found > FORMAT:
            raise StorageError(f"{self._path} has format {found}, this version reads up to {FORMAT}: use a newer Ottla")
        connection.execute("COMMIT")
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            on_one_line = " ".join(found.split())
            advice = _WHAT_TO_DO[sqlite3.SQLITE_CORRUPT]
            raise StorageError(f"cannot open the metadata store {self._path}: {on_one_line}; {advice}")
        (self.revision,) = connection.execute("SELECT revision FROM position").fetchone()

    def _use_write_ahead_log(self, connection: sqlite3.Connection) -> None:
        """Brokers that open a new file at the same time block each other, and SQLite does not wait here."""
        deadline = time.monotonic() + self._busy_timeout_ms / 1000
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                is_busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
                if not is_busy or time.monotonic() >= deadline:
                    raise
            time.sleep(_BUSY_PAUSE_SECONDS)

    def close(self) -> None:
        """Closes the file; does nothing if it is not open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with self._guarded("close"):
                connection.close()

    def commit(self, operations: Sequence[Operation]) -> int:
        """Executes a commit: see `MetadataStore.commit`."""
        with self._transaction("write to") as connection:
            present = self._revisions_of(connection, [operation.key for operation in operations])
            written: list[tuple[str, bytes | None]] = []
            for operation in operations:
                found = present.get(operation.key, 0)
                if operation.expected is not None and found != operation.expected:
                    raise ConflictError(
                        f"{operation.key!r} is at revision {found}, not at {operation.expected}: it was changed "
                        "in the meantime; read it again and retry"
                    )
                match operation:
                    case Put():
                        written.append((operation.key, operation.value))
                    case Delete() if found:
                        written.append((operation.key, None))
                    case Delete() | Check():
                        pass
            return self._write(connection, written)

    def snapshot(self) -> tuple[int, list[Entry]]:
        """Reads all keys: see `MetadataStore.snapshot`."""
        with self._transaction("read", begin=_TO_READ) as connection:
            (revision,) = connection.execute("SELECT revision FROM position").fetchone()
            (text,) = connection.execute(_ALL_KEYS).fetchone()
        rows = _ENTRIES.decode(text)
        entries = [Entry(key, bytes.fromhex(value), at) for key, value, at in rows]
        entries.sort(key=itemgetter(0))
        return revision, entries

    def changes_after(self, revision: int) -> list[list[Change]]:
        """The commits after a revision, in order, some or all of them. Raises RevisionGoneError if they are not
        kept."""
        with self._transaction("read", begin=_TO_READ) as connection:
            newest, pruned_to = connection.execute("SELECT revision, pruned_to FROM position").fetchone()
            if not pruned_to <= revision <= newest:
                raise RevisionGoneError(
                    f"{self._path} has the changes after revision {pruned_to} up to {newest}, not those after "
                    f"{revision}: take a snapshot and follow from there"
                )
            (text,) = connection.execute(_PAGE_OF_CHANGES, (revision, revision, ROWS_PER_PAGE)).fetchone()
        rows = _CHANGES.decode(text)
        rows.sort(key=itemgetter(0, 1))
        return [
            [Change(at, key, bytes.fromhex(value) if value is not None else None) for _, _, key, value in group]
            for at, group in groupby(rows, key=itemgetter(0))
        ]

    def look(self) -> None:
        """Updates `revision` to what other processes have committed."""
        with self._guarded("read"):
            connection = self._open_connection()
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            if version != self._seen_data_version:
                (self.revision,) = connection.execute("SELECT revision FROM position").fetchone()
                self._seen_data_version = version

    def take_lease(self, key: str, value: bytes, owner: LeaseOwner, now: float, expires: float | None) -> int:
        """Writes the key of a lease and returns its revision. Raises ConflictError while another owner holds it that is
        not known to be dead."""
        with self._transaction("write to") as connection:
            held = connection.execute("SELECT owner, expires FROM leases WHERE key = ?", (key,)).fetchone()
            if held is None and self._revisions_of(connection, [key]):
                raise ConflictError(f"{key!r} exists and is not a lease")
            if held is not None and not _is_over(held[0], held[1], now):
                holder = _OWNER.decode(held[0])
                raise ConflictError(
                    f"{key!r} is held by process {holder.pid}: stop that process, or wait until its lease expires"
                )
            revision = self._write(connection, [(key, value)])
            connection.execute(
                "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?)",
                (key, owner.token, msgspec.json.encode(owner), expires),
            )
            return revision

    def renew_leases(self, tokens: Sequence[str], now: float, expires: float) -> set[str]:
        """Extends leases; returns the tokens of those that were still held."""
        with self._transaction("write to") as connection:
            rows = connection.execute(
                "UPDATE leases SET expires = ? WHERE expires > ? AND token IN (SELECT value FROM json_each(?)) "
                "RETURNING token",
                (expires, now, msgspec.json.encode(tokens).decode()),
            )
            return {token for (token,) in rows.fetchall()}

    def release_leases(self, tokens: Sequence[str]) -> None:
        """Removes the leases with these tokens, and their keys."""
        self._end_leases(lambda _, holder, __: _OWNER.decode(holder).token in tokens)

    def lease_owners(self) -> list[LeaseOwner]:
        """The holders of all leases."""
        with self._guarded("read"):
            return [_OWNER.decode(owner) for (owner,) in self._open_connection().execute("SELECT owner FROM leases")]

    def end_dead_leases(self, now: float) -> None:
        """Removes the leases that expired or whose owners are known to be dead, and their keys."""
        with self._guarded("read"):
            held = self._open_connection().execute("SELECT owner, expires FROM leases").fetchall()
        if any(_is_over(owner, expires, now) for owner, expires in held):
            self._end_leases(lambda _, owner, expires: _is_over(owner, expires, now))

    def end_all_leases(self) -> None:
        """Removes all leases and their keys."""
        self._end_leases(lambda *_: True)

    def _end_leases(self, ends: Callable[[str, bytes, float | None], bool]) -> None:
        with self._transaction("write to") as connection:
            held = connection.execute("SELECT key, owner, expires FROM leases").fetchall()
            self._write(connection, [(key, None) for key, owner, expires in held if ends(key, owner, expires)])

    def _write(self, connection: sqlite3.Connection, written: Sequence[tuple[str, bytes | None]]) -> int:
        """Writes and removes keys as one revision, in an open transaction."""
        revision, pruned_to = connection.execute("SELECT revision, pruned_to FROM position").fetchone()
        if not written:
            return int(revision)
        revision += 1
        _insert(connection, "keys", 3, [(key, value, revision) for key, value in written if value is not None])
        _insert(connection, "changes", 4, [(revision, place, *pair) for place, pair in enumerate(written)])
        removed = [key for key, value in written if value is None]
        if removed:
            listed = msgspec.json.encode(removed).decode()
            connection.execute("DELETE FROM keys WHERE key IN (SELECT value FROM json_each(?))", (listed,))
            connection.execute("DELETE FROM leases WHERE key IN (SELECT value FROM json_each(?))", (listed,))
        if revision - pruned_to >= self._changes_kept + PRUNE_EVERY:
            pruned_to = revision - self._changes_kept
            connection.execute("DELETE FROM changes WHERE revision <= ?", (pruned_to,))
        connection.execute("UPDATE position SET revision = ?, pruned_to = ?", (revision, pruned_to))
        return int(revision)

    @staticmethod
    def _revisions_of(connection: sqlite3.Connection, keys: Sequence[str]) -> dict[str, int]:
        (text,) = connection.execute(_SOME_REVISIONS, (msgspec.json.encode(keys).decode(),)).fetchone()
        return dict(_REVISIONS.decode(text))

    def _open_connection(self) -> sqlite3.Connection:
        if self._failure is not None:
            raise self._failure
        if self._connection is None:
            raise MisuseError(f"the metadata store {self._path} is not open")
        return self._connection

    @contextmanager
    def _transaction(self, what: str, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """Executes all or nothing; `revision` is updated once the transaction is on disk."""
        with self._guarded(what):
            connection = self._open_connection()
            connection.execute(begin)
            try:
                yield connection
                (revision,) = connection.execute("SELECT revision FROM position").fetchone()
                connection.execute("COMMIT")
            except BaseException:
                # A failed statement may have ended the transaction already.
                if connection.in_transaction:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise
            has_changed = revision != self.revision
            self.revision = revision
        if has_changed and begin != _TO_READ:
            self._on_committed()

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # Extended codes say more in their upper bytes.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            advice = _WHAT_TO_DO.get(code, "see the error")
            failure = StorageError(f"cannot {what} the metadata store {self._path}: {error}; {advice}")
            if code in _FATAL:
                self._failure = failure
            raise failure from error


_ALL_KEYS: Final = "SELECT json_group_array(json_array(key, hex(value), revision)) FROM keys"
_SOME_REVISIONS: Final = """
SELECT json_group_array(json_array(key, revision)) FROM keys WHERE key IN (SELECT value FROM json_each(?))
"""
_PAGE_OF_CHANGES: Final = """
SELECT json_group_array(json_array(revision, place, key, iif(value IS NULL, NULL, hex(value)))) FROM changes
WHERE revision > ? AND revision <=
    (SELECT max(revision) FROM (SELECT revision FROM changes WHERE revision > ? ORDER BY revision LIMIT ?))
"""
"""A number of complete commits: the last one is completed even if that exceeds the limit of rows."""


def _create_private(path: str) -> None:
    """Creates an empty file under a temporary name first: if it were open under its own name, closing it would give up
    the locks that another broker of this process may have on it by then."""
    descriptor, temporary = mkstemp(dir=os.path.dirname(path) or ".", prefix=f"{os.path.basename(path)}.new-")
    try:
        os.fchmod(descriptor, _MODE)
        os.close(descriptor)
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)


def _insert(connection: sqlite3.Connection, table: str, width: int, rows: Sequence[tuple[Any, ...]]) -> None:
    """Writes rows, many per statement."""
    row_of_marks = f"({','.join('?' * width)})"
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        part = rows[start : start + ROWS_PER_STATEMENT]
        marks = ",".join([row_of_marks] * len(part))
        connection.execute(f"INSERT OR REPLACE INTO {table} VALUES {marks}", [value for row in part for value in row])


def _is_over(owner: bytes, expires: float | None, now: float) -> bool:
    return (expires is not None and expires <= now) or is_gone(_OWNER.decode(owner))
