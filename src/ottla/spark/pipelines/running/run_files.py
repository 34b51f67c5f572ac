"""Files of a run beside its checkpoints: a lock that allows one run at a time, its progress, its logs.

They are in `.ottla/<name>` in the folder of the project, on this machine, wherever the checkpoints are.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from ottla.model.errors import MisuseError
from ottla.spark.pipelines.declaration.project import Project

FOLDER: Final = ".ottla"
_LOCK: Final = "run.lock"
_PROGRESS: Final = "progress.json"
SPARK_LOG: Final = "spark.log"
ERROR_LOG: Final = "error.txt"
_LOOK_SECONDS: Final = 0.5


class AlreadyRunningError(MisuseError):
    """Another process runs this project."""


def state_folder(project: Project) -> Path:
    """The folder for the files of a project on this machine."""
    return project.folder / FOLDER / project.name


def checkpoint_place(project: Project, query: str) -> str:
    """The checkpoint of a query: a path, or a URL of another file system."""
    chosen = project.settings.checkpoints
    if chosen is None:
        return str((state_folder(project) / query).resolve())
    return f"{chosen.rstrip('/')}/{query}" if "://" in chosen else str((project.folder / chosen / query).resolve())


def checkpoint_folder(project: Project, query: str) -> Path | None:
    """The checkpoint as a folder of this machine; None if it is elsewhere."""
    place = checkpoint_place(project, query).removeprefix("file://")
    return None if "://" in place else Path(place)


@contextmanager
def run_lock(project: Project) -> Iterator[None]:
    """Holds the project's lock. Raises `AlreadyRunningError` if another process has it."""
    with _opened_lock(project) as lock:
        if not _locked(lock):
            holder = running_process(project)
            process = f"process {holder}" if holder else "another process"
            raise AlreadyRunningError(
                f"{project.name} is already running ({process}); stop it first (Ctrl-C or SIGTERM stop it cleanly)"
            )
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
        lock.truncate(0)


def running_process(project: Project) -> int | None:
    """The id of the process that runs the project; None if it is not running."""
    path = state_folder(project) / _LOCK
    if not path.exists():
        return None
    with path.open("r") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = lock.read().strip()
            return int(text) if text.isdigit() else 0
    return None


def write_progress(project: Project, document: Any) -> None:
    """Stores the progress of the run for other processes, atomically."""
    path = state_folder(project) / _PROGRESS
    path.with_suffix(".new").write_bytes(msgspec.json.encode(document))
    path.with_suffix(".new").replace(path)


def read_progress(project: Project) -> dict[str, Any]:
    """The progress of the running or the last run; empty if there is none."""
    try:
        found = msgspec.json.decode((state_folder(project) / _PROGRESS).read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def remove_checkpoint(project: Project, query: str) -> bool:
    """Removes the checkpoint of a query; returns whether there was one. Raises `MisuseError` if it is elsewhere."""
    folder = checkpoint_folder(project, query)
    if folder is None:
        place = checkpoint_place(project, query)
        raise MisuseError(f"the checkpoint {place} is not on this machine; remove it there")
    if not folder.exists():
        return False
    shutil.rmtree(folder)
    return True


def _locked(lock: IO[str]) -> bool:
    """Takes the lock, unless a run has it. Waits for a moment: `running_process` holds it shortly."""
    deadline = time.monotonic() + _LOOK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS / 20)


def _opened_lock(project: Project) -> IO[str]:
    folder = state_folder(project)
    folder.mkdir(parents=True, exist_ok=True)
    ignore = project.folder / FOLDER / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    return (folder / _LOCK).open("a+")
