"""Folders that are created once and kept in the user's cache, safely for several processes.

`java.py` and `spark_home.py` create them. The name of a folder has a hash of its content.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    """The cache folder of Ottla."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"


def kept_folder(folder: Path, make: Callable[[Path], None], holds: Callable[[Path], bool]) -> Path:
    """The folder, created by `make` unless it `holds` its content already; it appears atomically.

    Raises `OSError` if it cannot be written, or if something else has its name.
    """
    if holds(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        make(fresh)
        # tempfile makes folders private, but a cache may be shared.
        fresh.chmod(0o755)
        try:
            fresh.rename(folder)
        except OSError:
            # Another process was first; its folder has the same content unless it is damaged.
            if not holds(folder):
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder
