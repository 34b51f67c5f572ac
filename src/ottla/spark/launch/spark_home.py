"""A home for Spark on this machine whose Python processes start fast.

Every Python process of Spark imports PySpark from `SPARK_HOME/python/lib/pyspark.zip`, which has no bytecode in it, so
each compiles some two hundred modules first: a second of computing for every stream that starts. The home made here is
a folder of links to the installed one, in which `pyspark.zip` is a folder as well, and PySpark in it the one that pip
installed and compiled. Only for masters on this machine: clusters send the zip to others. `session.py` uses it.
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
    """The folder to name `SPARK_HOME`; None where PySpark is not as pip installs it, or no folder can be made."""
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
        # Spark does without; only its processes start as slowly as ever.
        return None


def installed_home() -> Path | None:
    """The home that pip installed; None if PySpark did not come that way."""
    found = _package("pyspark")
    return found if found is not None and (found / "jars").is_dir() else None


def is_fast_home(environment: Mapping[str, str]) -> bool:
    """Whether the environment names a home that was made here, maybe for another PySpark."""
    return Path(environment.get("SPARK_HOME", "")).name.startswith(_PREFIX)


def _links() -> dict[str, Path] | None:
    """What leads where in the new home; None if something is missing."""
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
