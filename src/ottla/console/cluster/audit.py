"""The audit log: each change with who, when, what, from where and how it ended.

The file has one JSON object per line and is only ever appended to. A change has two lines with the same id: one before
it begins (`started`), synced to disk, so that no change happens without a trace, and one with its outcome. The last
entries are kept in memory for the page.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec

from ottla.model.errors import StorageError

_KEPT_MAX: Final = 1000
_TAIL_BYTES_MAX: Final = 1 << 20


class Outcome(StrEnum):
    """How a change ended."""

    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    """The console is read-only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change."""

    id: str
    at_ms: int
    user: str
    origin: str
    """The address of the browser."""
    action: str
    target: str
    details: Mapping[str, Any]
    outcome: Outcome
    error: str = ""
    ended_at_ms: int | None = None


class AuditLog:
    """Appends entries to a file, if there is one, and keeps the last ones."""

    def __init__(self, path: Path | None, now_ms: Callable[[], int]) -> None:
        self._path = path
        self._now_ms = now_ms
        self._kept: OrderedDict[str, AuditEntry] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, "console-audit")
        """Of its own: a change does not wait for searches."""

    @property
    def path(self) -> Path | None:
        """The file; None if entries are only kept in memory."""
        return self._path

    def newest(self) -> list[AuditEntry]:
        """The entries in memory, newest first."""
        return list(reversed(self._kept.values()))

    def open(self) -> None:
        """Creates the file if needed, and reads its last entries. Raises `StorageError`."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
            with self._path.open("rb") as file:
                file.seek(max(0, self._path.stat().st_size - _TAIL_BYTES_MAX))
                lines = file.read().splitlines()
        except OSError as error:
            raise StorageError(f"cannot write the audit log {self._path}: {error.strerror}") from error
        for line in lines:
            try:
                self._keep(msgspec.json.decode(line, type=AuditEntry))
            except (msgspec.DecodeError, UnicodeDecodeError):
                # The first line of the tail is mostly half a line.
                continue

    async def begin(
        self, *, user: str, origin: str, action: str, target: str, details: Mapping[str, Any], outcome: Outcome
    ) -> AuditEntry:
        """Records a change before it happens, or that it was refused. Raises `StorageError`: the change must not be
        made then."""
        entry = AuditEntry(
            id=uuid4().hex[:16],
            at_ms=self._now_ms(),
            user=user,
            origin=origin,
            action=action,
            target=target,
            details=dict(details),
            outcome=outcome,
        )
        await self._append(entry)
        return entry

    async def end(self, entry: AuditEntry, outcome: Outcome, error: str = "") -> None:
        """Records how a change ended."""
        await self._append(replace(entry, outcome=outcome, error=error, ended_at_ms=self._now_ms()))

    async def _append(self, entry: AuditEntry) -> None:
        if self._path is not None:
            line = msgspec.json.encode(entry, enc_hook=str) + b"\n"
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, self._path, line)
        self._keep(entry)

    @staticmethod
    def _write(path: Path, line: bytes) -> None:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)
            try:
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    # The disk was full, or the machine stopped: the entry after half a line has a line of its own.
                    line = b"\n" + line
                while line:
                    line = line[os.write(descriptor, line) :]
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StorageError(
                f"cannot write the audit log {path}: {error.strerror}; changes are refused until it can be written"
            ) from error

    def _keep(self, entry: AuditEntry) -> None:
        self._kept[entry.id] = entry
        while len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)
