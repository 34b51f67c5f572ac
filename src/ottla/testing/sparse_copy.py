"""Copies a folder with sparse files: indexes of a broker are mostly holes."""

import os
import shutil
import stat
from errno import ENXIO
from pathlib import Path


def copy_folder(source: Path, target: Path) -> None:
    """Copies files and folders below `source` with their modes; files that disappear meanwhile are skipped."""
    target.mkdir()
    shutil.copymode(source, target)
    for entry in os.scandir(source):
        if entry.is_dir(follow_symlinks=False):
            copy_folder(source / entry.name, target / entry.name)
        elif entry.is_file(follow_symlinks=False):
            try:
                _copy_file(source / entry.name, target / entry.name)
            except FileNotFoundError:
                continue


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb", buffering=0) as read, target.open("xb", buffering=0) as written:
        size = os.fstat(read.fileno()).st_size
        position = 0
        while position < size:
            try:
                start = os.lseek(read.fileno(), position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == ENXIO:
                    # Only a hole follows.
                    break
                raise
            end = os.lseek(read.fileno(), start, os.SEEK_HOLE)
            position = start
            while position < end:
                copied = os.copy_file_range(read.fileno(), written.fileno(), end - position, position, position)
                if copied == 0:
                    end = size
                    break
                position += copied
            position = max(position, end)
        written.truncate(size)
        os.fchmod(written.fileno(), stat.S_IMODE(os.fstat(read.fileno()).st_mode))
