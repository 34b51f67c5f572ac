"""Files that were removed from logs and wait to be unlinked, so that readers that have them open can finish."""

import logging
from collections.abc import Sequence
from typing import Final

from ottla.env.ports import Disk
from ottla.model.ids import TimestampMs

_LOGGER: Final = logging.getLogger(__name__)


class Trash:
    """Paths, and when each may be unlinked. After a restart such files are recognised by their names."""

    __slots__ = ("_disk", "_due")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def discard(self, paths: Sequence[str], due: int) -> None:
        """Takes files or folders to unlink at `due`."""
        self._due += [(due, path) for path in paths]

    def take_due(self, now: TimestampMs) -> list[str]:
        """Returns the paths that are due, to be unlinked in the background."""
        ready = [path for due, path in self._due if due <= now]
        self._due = [(due, path) for due, path in self._due if due > now]
        return ready

    def unlink(self, paths: Sequence[str]) -> int:
        """Unlinks files and folders; returns how many. Failures are logged, and the next start tries again."""
        unlinked = 0
        for path in paths:
            try:
                unlinked += self._unlink(path)
            except OSError as error:
                _LOGGER.error("%s: cannot unlink: %s; the next start tries again", path, error.strerror)
        return unlinked

    def sweep(self, now: TimestampMs) -> int:
        """Unlinks what is due; returns how many."""
        return self.unlink(self.take_due(now))

    def _unlink(self, path: str) -> bool:
        if not self._disk.exists(path):
            return False  # Its partition was deleted in the meantime, with everything in the folder.
        if self._disk.is_dir(path):
            self._disk.remove_tree(path)
        else:
            self._disk.remove(path)
        return True
