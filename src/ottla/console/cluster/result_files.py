"""Files that jobs make, to be downloaded: in a private folder, bounded together, removed when they are old.

The folder is made when the first file is, and removed with the console. A console that was killed leaves its folder;
the next one of the same user removes it, because nothing holds its lock any more.
"""

import fcntl
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import BinaryIO, Final

from ottla.model.errors import InvalidRequestError, StorageError

_PREFIX: Final = "ottla-console-"
_LOCK: Final = "lock"
_FREE_BYTES_MIN: Final = 256 << 20
"""Space that other programs keep on the disk."""
_LOOK_BYTES: Final = 64 << 20
"""How often the space that is left is looked at, in bytes written."""


class ResultTooLargeError(InvalidRequestError):
    """The files of jobs would need more space than they may have."""


class ResultFile:
    """One file. `append` and `finish` block: call them in a thread."""

    def __init__(self, files: "ResultFiles", path: Path, name: str, media_type: str) -> None:
        self.path: Final = path
        self.name: Final = name
        """What browsers call it."""
        self.media_type: Final = media_type
        self.size_bytes = 0
        self._files = files
        self._file: BinaryIO | None = path.open("xb")
        self._looked_at = 0
        self._lock = threading.Lock()
        """A job that is stopped removes the file while a thread may still write to it."""

    def append(self, data: bytes) -> None:
        """Writes at the end. Raises `ResultTooLargeError` and `StorageError`."""
        with self._lock:
            if self._file is None:
                raise StorageError(f"{self.name} was removed")
            self._files.take(len(data))
            self.size_bytes += len(data)
            try:
                self._file.write(data)
                self._look_at_disk()
            except OSError as error:
                raise StorageError(f"cannot write {self.path}: {error}") from error

    def _look_at_disk(self) -> None:
        if self.size_bytes - self._looked_at < _LOOK_BYTES:
            return
        self._looked_at = self.size_bytes
        if shutil.disk_usage(self.path.parent).free < _FREE_BYTES_MIN:
            raise ResultTooLargeError(f"the disk of {self.path.parent} is nearly full; choose another --export-dir")

    def finish(self) -> None:
        """Completes the file. Raises `StorageError`."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                raise StorageError(f"cannot write {self.path}: {error}") from error
            self._file = None

    def remove(self) -> None:
        """Deletes it; downloads that have begun still end."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
            if self.path.exists():
                self.path.unlink()
                self._files.take(-self.size_bytes)


class ResultFiles:
    """All files of this console. `parent` is where its folder is made; None for the folder of temporary files."""

    def __init__(self, parent: Path | None, bytes_max: int) -> None:
        self._parent = parent
        self._bytes_max = bytes_max
        self._bytes = 0
        self._folder: Path | None = None
        self._lock_file: int | None = None
        self._lock = threading.Lock()

    def create(self, key: str, name: str, media_type: str) -> ResultFile:
        """A new file; `key` is unique among them. Raises `StorageError`. It blocks."""
        try:
            with self._lock:
                folder = self._opened()
            return ResultFile(self, folder / key, name, media_type)
        except OSError as error:
            raise StorageError(f"cannot make a file for {name}: {error}; choose another --export-dir") from error

    def take(self, size: int) -> None:
        """Counts bytes that a file needs; a negative number gives them back. Raises `ResultTooLargeError`."""
        with self._lock:
            if size > 0 and self._bytes + size > self._bytes_max:
                raise ResultTooLargeError(
                    f"the exports of this console would be larger than {self._bytes_max:,} bytes (--export-limit);"
                    " choose fewer records, or delete the file of an earlier export on the page Jobs"
                )
            self._bytes += size

    def close(self) -> None:
        """Removes the folder with all files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _opened(self) -> Path:
        if self._folder is None:
            parent = Path(tempfile.gettempdir()) if self._parent is None else self._parent
            _remove_abandoned(parent)
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            self._lock_file = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            self._folder = folder
        return self._folder


def _remove_abandoned(parent: Path) -> None:
    """Removes the folders of consoles of this user that do not run any more."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(lock)
