"""The znodes of the metadata store: a log of commits, a snapshot now and then, and a node for each session.

| node | what it is |
|---|---|
| `position` | its version is the store's revision: a commit writes it at the version that it was decided on |
| `log/0000000042` | the commit with revision 42, made in one transaction with the write of `position` |
| `parts/…` | pieces of entries and snapshots that are too large for one node, written before the node that names them |
| `snapshot` | the revision and the parts of the newest snapshot |
| `sessions/<token>` | ephemeral, of a living session; leases are keys whose entry names their session |

So commits are totally ordered, and compare-and-set over any number of keys is exact, also for keys that were removed
and created again. A commit of any size is one transaction. A new broker reads a snapshot and the log behind it, rather
than every key. The data of `position` repeats the last entry, if it is small, so that one read shows the news. A
version is a 32-bit number, which is enough for two billion commits. `commits.py` decides what to write.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from ottla.metadata.key_table import Held, KeyTable
from ottla.metadata.zookeeper.session import (
    BadVersionError,
    DisconnectedError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    ZooKeeperSession,
)
from ottla.model.errors import CorruptError

PART_BYTES_MAX: Final = 500_000
"""ZooKeeper's default limit of a request is one megabyte."""
TRANSACTION_BYTES_MAX: Final = 700_000
POSITION_BYTES_MAX: Final = 8_192
"""A larger entry is not repeated in the position's data."""
COMPRESSED_FROM_BYTES: Final = 512
IN_THREAD_FROM_BYTES: Final = 65_536
"""Larger data would block the event loop noticeably while it is compressed."""
READS_AT_ONCE: Final = 200

_PLAIN, _COMPRESSED, _IN_PARTS = b"p", b"c", b"n"


class LogEntry(msgspec.Struct, frozen=True, array_like=True):
    """One commit. `token` identifies it, so that it can be found if the answer was lost; with an `owner`, that session
    leases the keys it writes."""

    token: str
    owner: str | None
    written: list[tuple[str, bytes | None]]


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """All keys at a revision: value, revision and owner of each."""

    revision: int
    keys: dict[str, tuple[bytes, int, str | None]]


class SnapshotPointer(msgspec.Struct, frozen=True, array_like=True):
    """The place of the newest snapshot."""

    revision: int = 0
    parts: tuple[str, ...] = ()


_ENTRY: Final = msgspec.msgpack.Decoder(LogEntry)
_SNAPSHOT: Final = msgspec.msgpack.Decoder(Snapshot)
_POINTER: Final = msgspec.msgpack.Decoder(SnapshotPointer)
_PART_NAMES: Final = msgspec.msgpack.Decoder(list[str])


class LogGoneError(Exception):
    """An entry of the log is no longer kept."""


class CommitLog:
    """The nodes below `root`; each call uses the given session."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self.position_path = f"{self._root}/position"
        self.sessions_path = f"{self._root}/sessions"
        self._log_path = f"{self._root}/log"
        self._parts_path = f"{self._root}/parts"
        self._snapshot_path = f"{self._root}/snapshot"

    def session_path(self, token: str) -> str:
        """The ephemeral node of a session."""
        return f"{self.sessions_path}/{token}"

    def entry_path(self, revision: int) -> str:
        """The node of a commit."""
        return f"{self._log_path}/{revision:010d}"

    async def prepare(self, session: ZooKeeperSession) -> None:
        """Creates the permanent nodes; several brokers may do so at once."""
        if await session.exists(self.position_path):
            return
        parts = self._root.split("/")
        paths = ["/".join(parts[: end + 1]) for end in range(1, len(parts))]
        paths += [self._log_path, self._parts_path, self.sessions_path, self._snapshot_path]
        # The position last: a broker that finds it finds all nodes.
        for path in (*paths, self.position_path):
            try:
                await session.create(path)
            except NodeExistsError:
                continue

    # Entries

    async def read(self, session: ZooKeeperSession, first: int, last: int) -> list[LogEntry]:
        """The commits of these revisions. Raises LogGoneError if the first ones are no longer kept."""
        asked = [session.get(self.entry_path(revision)) for revision in range(first, last + 1)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        entries = []
        for revision, answer in zip(range(first, last + 1), answers, strict=True):
            if isinstance(answer, NoNodeError):
                raise LogGoneError
            if isinstance(answer, BaseException):
                raise answer
            entries.append(await self.decode_entry(session, revision, answer[0]))
        return entries

    async def decode_entry(self, session: ZooKeeperSession, revision: int, data: bytes) -> LogEntry:
        """An entry from its node's data, and from its parts if it has any."""
        try:
            return _ENTRY.decode(await self._unpack(session, data))
        except NoNodeError as error:
            raise LogGoneError from error
        except (msgspec.MsgspecError, zlib.error) as error:
            raise CorruptError(
                f"the metadata store's commit {revision} in ZooKeeper, {self.entry_path(revision)}, cannot be read: "
                f"{error}; stop all brokers and restore the newest backup of ZooKeeper's data"
            ) from error

    async def encode_entry(self, session: ZooKeeperSession, entry: LogEntry, attempt: int) -> bytes:
        """The node data of an entry; writes the parts of a large entry."""
        packed = await _pack(msgspec.msgpack.encode(entry))
        if len(packed) <= PART_BYTES_MAX:
            return packed
        # Another attempt may write something else, so its parts have other names.
        return _IN_PARTS + msgspec.msgpack.encode(await self._write_parts(session, packed, f"{entry.token}.{attempt}"))

    def fill(self, transaction: Any, token: str, base: int, entries: Sequence[bytes]) -> None:
        """The transaction that appends commits after revision `base`, if that is the newest, for a living session."""
        transaction.check(self.session_path(token), -1)
        for place, data in enumerate(entries):
            repeated = data if len(data) <= POSITION_BYTES_MAX else b""
            transaction.set_data(self.position_path, repeated, base + place)
            transaction.create(self.entry_path(base + place + 1), data)

    # Snapshots

    async def load(self, session: ZooKeeperSession) -> KeyTable:
        """The newest snapshot's keys."""
        while True:
            pointer, _ = await self._pointer(session)
            if not pointer.revision:
                return KeyTable()
            try:
                packed = await self._read_parts(session, pointer.parts)
            except NoNodeError:
                # A newer one has replaced it in the meantime.
                continue
            snapshot = _SNAPSHOT.decode(await _unpacked(packed))
            return KeyTable(snapshot.revision, {key: Held(*held) for key, held in snapshot.keys.items()})

    async def save(self, session: ZooKeeperSession, newest: Callable[[], KeyTable], *, every: int, kept: int) -> None:
        """Writes a snapshot if the last one is `every` revisions old, then removes entries that are both older than the
        snapshot and more than `kept` revisions old."""
        pointer, version = await self._pointer(session)
        table = newest()
        if table.revision - pointer.revision < every:
            return
        snapshot = Snapshot(
            table.revision, {key: (held.value, held.revision, held.owner) for key, held in table.items()}
        )
        packed = await _pack(msgspec.msgpack.encode(snapshot))
        parts = await self._write_parts(session, packed, f"{session.token}-s{snapshot.revision}")
        data = msgspec.msgpack.encode(SnapshotPointer(snapshot.revision, tuple(parts)))
        try:
            await session.set(self._snapshot_path, data, version)
        except BadVersionError:
            # Another broker was faster.
            await self._remove(session, [f"{self._parts_path}/{part}" for part in parts])
            return
        await self._trim(session, snapshot.revision, kept)

    async def _trim(self, session: ZooKeeperSession, revision: int, kept: int) -> None:
        names = await session.children(self._log_path)
        limit = revision - kept
        await self._remove(session, [f"{self._log_path}/{name}" for name in sorted(names) if int(name) <= limit])
        parts = set(await session.children(self._parts_path))
        if not parts:
            return
        living = set(await session.children(self.sessions_path))
        pointer, _ = await self._pointer(session)
        needed = {*pointer.parts, *await self._parts_of_log(session)}
        # A living session may be about to refer to them.
        orphans = [part for part in sorted(parts - needed) if part.partition("-")[0] not in living]
        replaced = [part for part in sorted(parts - needed) if _is_old_snapshot(part, pointer.revision)]
        await self._remove(session, [f"{self._parts_path}/{part}" for part in {*orphans, *replaced}])

    async def _parts_of_log(self, session: ZooKeeperSession) -> set[str]:
        """The parts that entries of the log refer to."""
        names = sorted(await session.children(self._log_path))
        found: set[str] = set()
        for start in range(0, len(names), READS_AT_ONCE):
            asked = [session.get(f"{self._log_path}/{name}") for name in names[start : start + READS_AT_ONCE]]
            for answer in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(answer, DisconnectedError):
                    raise answer
                if not isinstance(answer, BaseException) and answer[0][:1] == _IN_PARTS:
                    found.update(_PART_NAMES.decode(answer[0][1:]))
        return found

    async def _pointer(self, session: ZooKeeperSession) -> tuple[SnapshotPointer, int]:
        data, stat = await session.get(self._snapshot_path)
        return (_POINTER.decode(data) if data else SnapshotPointer()), stat.version

    # Parts

    async def _write_parts(self, session: ZooKeeperSession, packed: bytes, name: str) -> list[str]:
        names = []
        for number, start in enumerate(range(0, len(packed), PART_BYTES_MAX)):
            part = f"{name}.{number}"
            # It exists if it was created before and the answer was lost.
            with suppress(NodeExistsError):
                await session.create(f"{self._parts_path}/{part}", packed[start : start + PART_BYTES_MAX])
            names.append(part)
        return names

    async def _read_parts(self, session: ZooKeeperSession, names: Iterable[str]) -> bytes:
        answers = await asyncio.gather(*[session.get(f"{self._parts_path}/{name}") for name in names])
        return b"".join(data for data, _ in answers)

    async def _unpack(self, session: ZooKeeperSession, data: bytes) -> bytes:
        if data[:1] == _IN_PARTS:
            data = await self._read_parts(session, _PART_NAMES.decode(data[1:]))
        return await _unpacked(data)

    async def _remove(self, session: ZooKeeperSession, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), READS_AT_ONCE):
            asked = [session.delete(path) for path in paths[start : start + READS_AT_ONCE]]
            for answer in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(answer, BaseException) and not isinstance(answer, NoNodeError):
                    raise answer


def first_failure(results: Sequence[Any]) -> tuple[int, KazooException] | None:
    """The operation that failed in a transaction, and its error; the others were only rolled back."""
    failed = [(place, result) for place, result in enumerate(results) if isinstance(result, KazooException)]
    named = [each for each in failed if isinstance(each[1], BadVersionError | NoNodeError | NodeExistsError)]
    return next(iter(named or failed), None)


def _is_old_snapshot(part: str, revision: int) -> bool:
    """Parts of snapshots are named session-s<revision>.…; a reader of the snapshot before last starts again."""
    _, found, rest = part.partition("-s")
    return bool(found) and int(rest.partition(".")[0]) < revision


async def _offload(function: Callable[[bytes], bytes], data: bytes) -> bytes:
    if len(data) < IN_THREAD_FROM_BYTES:
        return function(data)
    return await asyncio.to_thread(function, data)


async def _pack(data: bytes) -> bytes:
    if len(data) < COMPRESSED_FROM_BYTES:
        return _PLAIN + data
    return _COMPRESSED + await _offload(lambda plain: zlib.compress(plain, 1), data)


async def _unpacked(data: bytes) -> bytes:
    if data[:1] == _COMPRESSED:
        return await _offload(zlib.decompress, data[1:])
    return data[1:]
