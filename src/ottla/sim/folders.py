"""The simulated disk's names: folders, their entries, and the journal of name changes that a crash may cut.

Covers create, remove and rename as assignments of names, their order, and what of them survives. A file's bytes are in
`inode.py`; the fault model as a whole in `disk.py`.
"""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ottla.env.ports import Random
from ottla.sim.inode import SURVIVAL_ODDS, Inode


class NameOrder(Enum):
    """In which order unsynced name changes reach the disk."""

    FOLDER = "folder"
    """Those of one folder in the order they were made, as a journaling file system does it."""
    NAME = "name"
    """Only those of one name; others overtake them. POSIX promises no more, and a file system without a journal gives
    no more: what survives this needs no journal."""


class Folder:
    """A folder: the names in it as a process sees them, and as a crash would find them."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.durable: dict[str, Entry] = {}


Entry = Inode | Folder


@dataclass(frozen=True, slots=True, eq=False)
class NameChange:
    """One atomic step: each (folder, name) gets its new entry, or none. A rename is one step with two names."""

    assignments: tuple[tuple[Folder, str, Entry | None], ...]

    def apply(self) -> None:
        """To the durable names."""
        for folder, name, entry in self.assignments:
            if entry is None:
                folder.durable.pop(name, None)
            else:
                folder.durable[name] = entry

    def keys(self, order: NameOrder) -> set[object]:
        """Changes that share one of these survive in order."""
        if order is NameOrder.FOLDER:
            return {folder for folder, _, _ in self.assignments}
        return {(folder, name) for folder, name, _ in self.assignments}


class Tree:
    """All folders from the root, with the name changes that are not yet synced, in order."""

    __slots__ = ("order", "root", "unsynced")

    def __init__(self, order: NameOrder) -> None:
        self.order = order
        self.root = Folder()
        self.unsynced: list[NameChange] = []

    def find(self, path: str) -> Entry | None:
        """What has this name; None if nothing has."""
        entry: Entry | None = self.root
        for name in path.split("/"):
            if name:
                entry = entry.entries.get(name) if isinstance(entry, Folder) else None
        return entry

    def file(self, path: str) -> Inode:
        """The file of this name, or the error a real disk gives."""
        entry = self.find(path)
        if entry is None:
            self.parent(path)
            raise os_error(errno.ENOENT, path)
        if isinstance(entry, Folder):
            raise os_error(errno.EISDIR, path)
        return entry

    def folder(self, path: str) -> Folder:
        """The folder of this name, or the error a real disk gives."""
        entry = self.find(path)
        if entry is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(entry, Inode):
            raise os_error(errno.ENOTDIR, path)
        return entry

    def parent(self, path: str) -> tuple[Folder, str]:
        """The folder that holds this name, and the last part of the name."""
        above, _, name = path.rpartition("/")
        entry = self.find(above)
        if entry is None or not name:
            raise os_error(errno.ENOENT if name else errno.EBUSY, path)
        if isinstance(entry, Inode):
            raise os_error(errno.ENOTDIR, path)
        return entry, name

    def assign(self, *assignments: tuple[Folder, str, Entry | None]) -> None:
        """Changes names, as one step, in memory; `sync` makes it durable."""
        for folder, name, entry in assignments:
            if entry is None:
                folder.entries.pop(name, None)
            else:
                folder.entries[name] = entry
        self.unsynced.append(NameChange(assignments))

    def sync(self, folder: Folder) -> None:
        """Makes this folder's names durable, and with them whatever must come before: a rename between two folders
        takes the earlier changes of the other one along."""
        needed = {folder}
        kept: list[NameChange] = []
        done: list[NameChange] = []
        for change in reversed(self.unsynced):
            folders = {each for each, _, _ in change.assignments}
            if folders & needed:
                needed |= folders
                done.append(change)
            else:
                kept.append(change)
        for change in reversed(done):
            change.apply()
        self.unsynced = kept[::-1]

    def lose_unsynced(self, random: Random) -> None:
        """Decides which unsynced name changes reached the disk, and forgets the rest."""
        odds = SURVIVAL_ODDS[random.randrange(len(SURVIVAL_ODDS))]
        stopped: set[object] = set()
        for change in self.unsynced:
            keys = change.keys(self.order)
            if keys & stopped or random.random() >= odds:
                stopped |= keys
            else:
                change.apply()
        self.unsynced = []

    def vanish(self, path: str) -> None:
        """Takes a name away as if it had never been there."""
        folder, name = self.parent(path)
        folder.entries.pop(name, None)
        folder.durable.pop(name, None)
        self.unsynced = [
            NameChange(tuple(each for each in change.assignments if each[:2] != (folder, name)))
            for change in self.unsynced
        ]

    def after_crash(self, random: Random) -> "Tree":
        """The names and bytes that a restarted machine finds."""
        self.lose_unsynced(random)
        tree = Tree(self.order)
        tree.root = _recover(self.root, random, {})
        return tree

    def after_kill(self) -> "Tree":
        """The names and bytes that the next process finds; what was unsynced still is."""
        tree = Tree(self.order)
        copies: dict[Entry, Entry] = {}
        tree.root = _copy_folder(self.root, copies)
        for change in self.unsynced:
            tree.unsynced.append(
                NameChange(
                    tuple(
                        (_copy_folder(folder, copies), name, None if entry is None else _copy(entry, copies))
                        for folder, name, entry in change.assignments
                    )
                )
            )
        return tree

    def files(self) -> Iterator[Inode]:
        """Every file that has a name now."""
        folders = [self.root]
        while folders:
            for entry in folders.pop().entries.values():
                if isinstance(entry, Folder):
                    folders.append(entry)
                else:
                    yield entry


def _recover(folder: Folder, random: Random, files: dict[Inode, Inode]) -> Folder:
    """A folder as its durable names describe it. Sorted, so that the randomness falls the same way in every run."""
    found = Folder()
    for name, entry in sorted(folder.durable.items()):
        if isinstance(entry, Folder):
            found.entries[name] = _recover(entry, random, files)
        else:
            if entry not in files:
                files[entry] = Inode(entry.after_crash(random), modified_ms=entry.modified_ms)
            found.entries[name] = files[entry]
    found.durable = dict(found.entries)
    return found


def _copy(entry: Entry, copies: dict[Entry, Entry]) -> Entry:
    if isinstance(entry, Folder):
        return _copy_folder(entry, copies)
    if entry not in copies:
        copies[entry] = entry.survived_kill()
    return copies[entry]


def _copy_folder(folder: Folder, copies: dict[Entry, Entry]) -> Folder:
    copy = copies.get(folder)
    if not isinstance(copy, Folder):
        copies[folder] = copy = Folder()
        copy.entries = {name: _copy(entry, copies) for name, entry in folder.entries.items()}
        copy.durable = {name: _copy(entry, copies) for name, entry in folder.durable.items()}
    return copy


def os_error(code: int, path: str) -> OSError:
    """The error of a system call about this path."""
    return OSError(code, os.strerror(code), path)
