"""Replaces source segments by a cleaned segment, so that a crash at any moment leaves either the old or the new ones.

The `.log` file under its `.swap` name is the decision: before it exists, `.cleaned` files are useless; from then on the
sources are, and the swap is completed when the folder is next opened.
"""

import logging
from collections.abc import Sequence
from typing import Final

from ottla.env.ports import Disk
from ottla.model.ids import Offset
from ottla.storage.data_dirs import names
from ottla.storage.segments.scanner import BatchOrder, scan_file

_LOGGER: Final = logging.getLogger(__name__)


def decide_swap(disk: Disk, folder: str, base_offset: Offset) -> None:
    """Renames a complete and synced `.cleaned` segment to `.swap`, durably; this decides the swap."""
    for kind in reversed(names.SEGMENT_SUFFIXES):
        path = names.segment_path(folder, base_offset, kind)
        if disk.exists(path + names.CLEANED):
            disk.rename(path + names.CLEANED, path + names.SWAP)
    disk.sync_dir(folder)


def retire_sources(disk: Disk, folder: str, bases: Sequence[Offset]) -> list[str]:
    """Renames the files of the source segments to `.deleted`, durably; returns their new paths."""
    doomed: list[str] = []
    for base in bases:
        for kind in names.SEGMENT_SUFFIXES:
            path = names.segment_path(folder, base, kind)
            if disk.exists(path):
                disk.rename(path, path + names.DELETED)
                doomed.append(path + names.DELETED)
    disk.sync_dir(folder)
    return doomed


def complete_swap(disk: Disk, folder: str, base_offset: Offset) -> None:
    """Gives a `.swap` segment its final names, the `.log` last, durably."""
    for kind in reversed(names.SEGMENT_SUFFIXES):
        path = names.segment_path(folder, base_offset, kind)
        if disk.exists(path + names.SWAP):
            disk.rename(path + names.SWAP, path)
    disk.sync_dir(folder)


def finish_swaps(disk: Disk, folder: str) -> None:
    """Completes every swap that was decided before a crash.

    Raises DamagedSegmentError if the cleaned segment is damaged: its end shows which sources to remove.
    """
    found = disk.list_dir(folder)
    for name in found:
        base = names.base_offset_of(name)
        if base is None or not name.endswith(names.LOG + names.SWAP):
            continue
        end = _end_offset(disk, f"{folder}/{name}", base)
        sources = {other for each in found if (other := names.base_offset_of(each)) is not None and base <= other < end}
        retired = retire_sources(disk, folder, sorted(sources))
        for path in retired:
            disk.remove(path)
        _LOGGER.info("%s/%s: completed the swap of a cleaned segment; removed %d old files", folder, name, len(retired))
        complete_swap(disk, folder, base)


def _end_offset(disk: Disk, path: str, base_offset: Offset) -> Offset:
    file = disk.open(path, writable=False)
    try:
        end, order = Offset(base_offset + 1), BatchOrder(path, base_offset)
        for piece in scan_file(file, 0, file.size()):
            _, damage = order.follow(piece, None)
            if damage is not None:
                raise damage
            end = piece.batches[-1].next_offset
        return end
    finally:
        file.close()
