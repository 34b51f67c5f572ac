"""A `SPARK_HOME` for this machine whose Python processes start fast.

Every Python process of Spark imports PySpark from `SPARK_HOME/python/lib/pyspark.zip`, which has no bytecode, so each
compiles about two hundred modules first: a second of CPU time for every stream that starts. The home made here is a
folder of links to the installed one, in which `pyspark.zip` is a folder with the PySpark that pip installed and
compiled. It is only for local masters: clusters distribute the zip. `session.py` uses it.
"""

import hashlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ottla.spark.launch.kept_folders import cache_folder, kept_folder

_PREFIX: Final = "spark-home-"
_PARTS: Final = ("bin", "sbin", "jars", "conf", "data", "examples", "licenses", "RELEASE")


def fast_home(cache: Path | None = None) -> Path | None:
    """The folder for `SPARK_HOME`; None if pip did not install PySpark, or if the folder cannot be created."""
    links = _links()
    if links is None:
        return None
    plan = "\n".join(f"{name} {target}" for name, target in sorted(links.items()))
    name = _PREFIX + hashlib.sha256(plan.encode()).hexdigest()[:16]
    try:
        return kept_folder(
            (cache or cache_folder()) / name,
            lambda folder: _make(folder, links),
            lambda folder: all((folder / link).resolve() == target for link, target in links.items()),
        )
    except OSError:
        # Spark works without it; only its processes start more slowly.
        return None


def installed_home() -> Path | None:
    """The home that pip installed; None if PySpark was not installed by pip."""
    found = _package("pyspark")
    return found if found is not None and (found / "jars").is_dir() else None


def is_fast_home(environment: Mapping[str, str]) -> bool:
    """Whether the environment names a home that was made by this module."""
    return Path(environment.get("SPARK_HOME", "")).name.startswith(_PREFIX)


def _links() -> dict[str, Path] | None:
    """The links of the new home; None if something is missing."""
    spark, py4j = installed_home(), _package("py4j")
    if spark is None or py4j is None:
        return None
    links = {name: spark / name for name in _PARTS if (spark / name).exists()}
    links["python/pyspark"] = spark / "python" / "pyspark"
    for archive in (spark / "python" / "lib").glob("*.zip"):
        package = spark if archive.name == "pyspark.zip" else py4j if archive.name.startswith("py4j-") else None
        if package is None:
            return None
        links[f"python/lib/{archive.name}/{package.name}"] = package
    return links


def _package(name: str) -> Path | None:
    """A package's folder, found without importing it."""
    found = find_spec(name)
    return None if found is None or found.origin is None else Path(found.origin).parent.resolve()


def _make(folder: Path, links: Mapping[str, Path]) -> None:
    for name, target in links.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
