"""Ottla's own installation: compiled modules, packages and their versions, and Java for Spark."""

import os
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

import ottla
from ottla.cli.doctor.facts import Installation, Java, Package
from ottla.version import __version__

_REQUIREMENT: Final = re.compile(r"([\w.-]+)\s*(?:\[[^]]*\])?\s*\(?([^;)]*)\)?(?:;.*extra\s*==\s*['\"]([\w-]+)['\"])?")


def probe_installation() -> Installation:
    """What is installed in this environment."""
    required, extras = read_requirements(_requirements())
    return Installation(
        version=__version__,
        kernels_missing=tuple(_missing_kernels()),
        required=tuple(required),
        extras={extra: tuple(found) for extra, found in extras.items()},
    )


def read_requirements(lines: list[str]) -> tuple[list[Package], dict[str, list[Package]]]:
    """The packages that a distribution needs, and those of each extra, with the installed versions."""
    required: list[Package] = []
    extras: dict[str, list[Package]] = {}
    for line in lines:
        found = _REQUIREMENT.match(line)
        if found is None or found[1] == "ottla":
            continue
        package = Package(name=found[1], wanted=found[2].strip(), installed=_installed(found[1]))
        (required if found[3] is None else extras.setdefault(found[3], [])).append(package)
    return required, extras


def _requirements() -> list[str]:
    try:
        return requires("ottla") or []
    except PackageNotFoundError:
        # Run from a folder of sources.
        return []


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _missing_kernels() -> Iterator[str]:
    """Compiled modules that are not there or cannot be loaded, each with the reason. Their sources are installed."""
    for root in map(Path, ottla.__path__):
        for source in sorted(root.rglob("*.pyx")):
            name = ".".join(("ottla", *source.relative_to(root).with_suffix("").parts))
            try:
                import_module(name)
            except ImportError as error:
                # An extra that is not installed is not the kernel's fault.
                if error.name is None or error.name.startswith("ottla"):
                    yield f"{name} ({error})"


def probe_java() -> Java | None:
    """The first Java that Spark would find; an older one only if there is no other."""
    from ottla.spark.launch.java import JAVA_MAJOR_MIN, candidates, probe

    older: Java | None = None
    for java in candidates(os.environ):
        runtime = probe(java)
        if runtime is None:
            continue
        found = Java(home=str(runtime.home), major=runtime.major)
        if found.major >= JAVA_MAJOR_MIN:
            return found
        older = older or found
    return older
