"""Builds the client programs that are not Python, each once, into the user's cache folder.

A build is kept under a digest of its sources, so that a changed source is built anew and a finished build costs
nothing. `python -m tests.compat.clients.client_builds` builds all of them, and fetches what they need.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from tests.compat.kafka_jars import (
    KAFKA_VERSION,
    NEWEST_CLIENTS_VERSION,
    OLD_KAFKA_VERSION,
    RETRY,
    class_path,
    compile_java,
    connect_class_path,
)

HERE: Final = Path(__file__).parent
JAVA_VERSIONS: Final = (KAFKA_VERSION, OLD_KAFKA_VERSION)
GO_PROGRAMS: Final = ("franz", "franzshare", "sarama")
BUILD_TIMEOUT_S: Final = 600


class BuildError(Exception):
    """A client program could not be built; the message has what the compiler or package fetcher said."""


@functools.cache
def java_classes(version: str) -> Path:
    """The folder with `ClientProgram` compiled against that version of Kafka's clients."""
    sources = sorted((HERE / "java").glob("*.java"))
    return built(f"java-{version}", sources, lambda folder: compile_java(HERE / "java", folder, version))


@functools.cache
def go_program(name: str) -> Path:
    """The program of that name in `go/`."""
    sources = sorted(path for path in (HERE / "go").rglob("*") if path.is_file())

    def build(folder: Path) -> None:
        programs = [f"./{each}" for each in GO_PROGRAMS]
        command = [go_command(), "build", "-trimpath", "-buildvcs=false", "-o", f"{folder}{os.sep}", *programs]
        run_tool(command, HERE / "go")

    return built("go", sources, build) / name


def java_sample(source: Path) -> Path:
    """The folder with one Java file compiled against the newest of Kafka's clients."""
    return built("java-sample", [source], lambda folder: compile_java(source, folder, KAFKA_VERSION))


def go_sample(source: Path) -> Path:
    """A program of one Go file, with the modules that `go/` has."""
    modules = [HERE / "go" / "go.mod", HERE / "go" / "go.sum"]

    def build(folder: Path) -> None:
        command = [go_command(), "build", "-trimpath", "-buildvcs=false", "-o", str(folder / "sample"), str(source)]
        run_tool(command, HERE / "go")

    return built("go-sample", [source, *modules], build) / "sample"


@functools.cache
def node_modules() -> Path:
    """The folder with the packages that `node/package-lock.json` names."""
    return packages_of(HERE / "node", "node")


def packages_of(project: Path, name: str) -> Path:
    """The folder with the packages that a folder's `package-lock.json` names, kept under that name."""
    files = [project / "package.json", project / "package-lock.json"]

    def build(folder: Path) -> None:
        for path in files:
            shutil.copy(path, folder)
        run_tool([_program("npm"), "ci", "--no-audit", "--no-fund", "--prefix", str(folder)], folder)

    return built(name, files, build) / "node_modules"


def build_all() -> None:
    """Everything that the tests would otherwise build when they first need it."""
    for version in (*JAVA_VERSIONS, NEWEST_CLIENTS_VERSION):
        class_path(version)
        java_classes(version)
    connect_class_path()
    for name in GO_PROGRAMS:
        go_program(name)
    node_modules()


def built(name: str, sources: Iterable[Path], build: Callable[[Path], None]) -> Path:
    """The folder with a finished build of these sources; `build` fills it if there is none."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    target = _cache_dir() / f"client-{name}-{digest}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Whole or not at all: another test run may build at the same time, and this one may be interrupted.
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        fresh = Path(folder) / name
        fresh.mkdir()
        build(fresh)
        try:
            fresh.rename(target)
        except OSError:
            if not target.exists():
                raise
    return target


def run_tool(command: list[str], folder: Path) -> None:
    """Runs a compiler or package fetcher in a folder, again if it fails: both fetch. Raises `BuildError` at the end."""
    done = subprocess.run(
        [str(RETRY), str(BUILD_TIMEOUT_S), *command],
        cwd=folder,
        # Some distributions forbid Go to fetch the newer Go that a go.mod asks for.
        env={**os.environ, "GOTOOLCHAIN": "auto"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise BuildError(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )


def go_command() -> str:
    """The Go that `tests/compat/prepare` may have put beside the builds, or the one on the PATH."""
    own = _cache_dir() / "go" / "bin" / "go"
    return str(own) if own.exists() else _program("go")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise BuildError(f"{name} is not on the PATH; run tests/compat/prepare to install what is missing")
    return found


def _cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla-tests"


if __name__ == "__main__":
    build_all()
