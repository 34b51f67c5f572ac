"""Gets Spark's own Kafka connector, and the Spark that it belongs to.

The connector is one of Spark's parts and works with the Spark of its own version. It comes from Maven Central, where a
new version may arrive later than PySpark does on PyPI; so the race has a Spark of its own, of a version that both have,
whichever one is installed. Both are kept under the user's cache folder.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

SPARK_VERSION: Final = "4.2.0"
"""The newest release of which both PySpark and the connector are published."""

TOKEN_PROVIDER_VERSION: Final = "4.1.0-preview1"
"""A part of the connector that gets delegation tokens, which are not used here. The newest one published."""

MAVEN_TIMEOUT_S: Final = 600
PIP_TIMEOUT_S: Final = 900

# Spark's own pom looks in a copy of Maven Central first, which not every network reaches; the same id here replaces it.
_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId>
  <artifactId>spark-connector-for-benchmarks</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId>
      <artifactId>spark-sql-kafka-0-10_2.13</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.spark</groupId>
      <artifactId>spark-token-provider-kafka-0-10_2.13</artifactId>
      <version>{token_provider}</version>
    </dependency>
  </dependencies>
  <repositories>
    <repository>
      <id>gcs-maven-central-mirror</id>
      <url>https://repo.maven.apache.org/maven2</url>
    </repository>
  </repositories>
</project>
"""


def use_matching_spark() -> Path:
    """Makes this process, and the Python workers that Spark will start, import PySpark in that version; its folder."""
    folder = _cache_folder() / f"spark-{SPARK_VERSION}"
    if not (folder / "pyspark").exists():
        _install(folder)
    if "pyspark" in sys.modules and not str(sys.modules["pyspark"].__file__).startswith(str(folder)):
        raise RuntimeError("another PySpark is imported already; run this benchmark in a process of its own")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
        inherited = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{inherited}" if inherited else str(folder)
    os.environ.pop("SPARK_HOME", None)
    return folder / "pyspark"


def connector_jars(spark: Path) -> list[Path]:
    """The connector, and what it needs beyond the jars that this Spark has; for the setting `spark.jars`."""
    kept = _cache_folder() / f"spark-connector-{SPARK_VERSION}.classpath"
    path = kept.read_text() if kept.exists() else ""
    if not _all_exist(path):
        path = _resolve(SPARK_VERSION)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(path)
    present = {_artifact(jar) for jar in (spark / "jars").glob("*.jar")}
    return [jar for jar in map(Path, path.split(os.pathsep)) if _artifact(jar) not in present]


def _install(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".spark-", dir=folder.parent))
    # What it depends on is installed with ours.
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--target", str(fresh), f"pyspark=={SPARK_VERSION}",
    ]  # fmt: skip
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=PIP_TIMEOUT_S)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _resolve(version: str) -> str:
    maven = shutil.which("mvn")
    if maven is None:
        raise RuntimeError("mvn is not on the PATH; run tests/compat/prepare to install what is missing")
    with tempfile.TemporaryDirectory(prefix="ottla-connector-pom-") as folder:
        pom, answer = Path(folder) / "pom.xml", Path(folder) / "classpath"
        pom.write_text(_POM.format(version=version, token_provider=TOKEN_PROVIDER_VERSION))
        command = [
            maven, "-q", "-B", "-f", str(pom), "dependency:build-classpath",
            f"-Dmdep.outputFile={answer}", "-Dmdep.includeScope=runtime",
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S
        )
        if done.returncode != 0 or not answer.exists():
            raise RuntimeError(
                f"Maven could not fetch Spark's connector {version}; check the network and Maven's settings:\n"
                f"{done.stdout[-4000:]}{done.stderr[-2000:]}"
            )
        return answer.read_text().strip()


def _all_exist(path: str) -> bool:
    return bool(path) and all(map(os.path.isfile, path.split(os.pathsep)))


def _artifact(jar: Path) -> str:
    """The name without the version: of one library, Spark's own version is the one to take."""
    return jar.stem.rpartition("-")[0]


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla-tests"
