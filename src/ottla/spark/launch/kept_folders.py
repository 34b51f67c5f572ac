"""Small folders that are made once and kept in the user's cache, by many processes at a time if it comes to that.

What is in them is `java.py`'s and `spark_home.py`'s to say. A folder's name tells its content, so one that is there and
whole needs no second look.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    """Where they are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"


def kept_folder(folder: Path, make: Callable[[Path], None], holds: Callable[[Path], bool]) -> Path:
    """That folder, made by `make` unless it `holds` what it should already; nobody ever sees half of it.

    Raises `OSError` where it cannot be written, or where something else has its name.
    """
    if holds(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        make(fresh)
        # A folder made by tempfile is closed to everybody else, but a cache may be shared.
        fresh.chmod(0o755)
        try:
            fresh.rename(folder)
        except OSError:
            # Somebody else was first, and the name says that theirs is the same; unless it was damaged since.
            if not holds(folder):
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder
