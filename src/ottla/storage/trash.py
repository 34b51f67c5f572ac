"""What was taken out of the logs and waits to be unlinked, so that readers who have it open may finish."""

from collections.abc import Sequence

from ottla.env.ports import Disk
from ottla.model.ids import TimestampMs


class Trash:
    """Paths with the moment from which they may go. A restart needs none of this: it unlinks such files by their names."""

    __slots__ = ("_due", "_disk")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def discard(self, paths: Sequence[str], due: int) -> None:
        """Takes files or folders that go at `due`."""
        self._due += [(due, path) for path in paths]

    def sweep(self, now: TimestampMs) -> int:
        """Unlinks what is due; says how many."""
        ready = [path for due, path in self._due if due <= now]
        self._due = [(due, path) for due, path in self._due if due > now]
        for path in ready:
            if not self._disk.exists(path):
                continue  # Its partition was deleted meanwhile, with all that was in the folder.
            if self._disk.is_dir(path):
                self._disk.remove_tree(path)
            else:
                self._disk.remove(path)
        return len(ready)
