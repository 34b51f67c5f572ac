"""Finds the jars of Apache Kafka, fetching them with Maven the first time, and runs its command line classes.

The class path of each version is kept in a file under the user's cache folder, so that Maven, which takes seconds to
find that nothing changed, runs only once. Jars are checked to be whole before they are used. Running a broker is
`kafka_broker`'s duty.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tests.waiting import PATIENCE_SECONDS

KAFKA_VERSION: Final = "4.3.0"
"""The judge, unless a test asks for another."""

OLD_KAFKA_VERSION: Final = "3.9.2"
"""The last of the line before, which many still run."""

NEWEST_CLIENTS_VERSION: Final = "4.4.0"
"""The newest clients, of a version whose broker is not published."""

RETRY: Final = Path(__file__).parents[1] / "retry"
MAVEN_TIMEOUT_S: Final = 600
"""For one attempt."""
MAVEN_OPTIONS: Final = (
    "--strict-checksums",
    "--update-snapshots",  # asks again for a file that a proxy said it did not have
    # A connection that stalls is given up: Maven would wait for half an hour. By the names of Maven 3.8, then of 3.9.
    "-Dmaven.wagon.rto=60000",
    "-Daether.connector.requestTimeout=60000",
)
TOOL_TIMEOUT_S: Final = PATIENCE_SECONDS

# A tool lives for a second: the first compiler stage and the simplest collector start fastest. What it logs below a
# warning is no part of its answer.
SHORT_LIVED_JVM: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx512m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
# What is printed must not depend on the machine's locale.
UTF8_JVM: Final = ("-Dfile.encoding=UTF-8", "-Dsun.stdout.encoding=UTF-8", "-Dsun.stderr.encoding=UTF-8")
# An archive of classes that does not fit is not used, and that is no part of a tool's answer either.
NO_JVM_WARNINGS: Final = ("-Xlog:disable",)

# Logging goes through slf4j's simple binding, which fits every Kafka version and writes to stderr. Kafka Connect and
# its web server come along with the tools but serve no tool we call; leaving them out halves the download.
POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>{version}</version>
      <exclusions>
        <exclusion><groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId></exclusion>
        <exclusion><groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId></exclusion>
      </exclusions>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


CLIENTS_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId>
  <artifactId>kafka-clients-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-clients</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>com.fasterxml.jackson.core</groupId>
      <artifactId>jackson-databind</artifactId>
      <version>2.19.4</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


CONNECT_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId>
  <artifactId>connect-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>connect-mirror</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>connect-file</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>connect-json</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


class KafkaUnavailableError(Exception):
    """Java, Maven or the jars are missing; the message says which, and how to get them."""


class KafkaToolError(Exception):
    """One of Kafka's tools failed; the message has what it printed."""


def class_path(version: str = KAFKA_VERSION) -> str:
    """The class path of that Kafka, every entry an existing file."""
    if version == NEWEST_CLIENTS_VERSION:
        return maven_class_path(f"kafka-clients-{version}", CLIENTS_POM.format(version=version))
    return maven_class_path(f"kafka-{version}", POM.format(version=version))


def connect_class_path(version: str = KAFKA_VERSION) -> str:
    """The class path of that version's Kafka Connect and MirrorMaker."""
    return maven_class_path(f"connect-{version}", CONNECT_POM.format(version=version))


def maven_class_path(name: str, pom: str) -> str:
    """The class path of the dependencies of a Maven project, every entry an existing file; kept under that name."""
    cached = _cache_dir() / f"{name}.classpath"
    if cached.exists():
        path = cached.read_text()
        if not _damaged(path):
            return path
    path = _resolve(name, pom)
    if damaged := _damaged(path):
        # Maven trusts each file that it finds; one that is gone it fetches again.
        for jar in filter(Path.is_file, damaged):
            jar.unlink()
        path = _resolve(name, pom)
    if damaged := _damaged(path):
        raise KafkaUnavailableError(f"Maven named jars for {name} that do not exist or are not whole: {damaged}")
    cached.parent.mkdir(parents=True, exist_ok=True)
    # Several test runs may resolve at once; each replaces the file whole.
    with tempfile.NamedTemporaryFile("w", dir=cached.parent, delete=False) as fresh:
        fresh.write(path)
    os.replace(fresh.name, cached)
    return path


def java_command(
    main_class: str, *args: str, version: str = KAFKA_VERSION, jvm_options: tuple[str, ...] = (), extra_path: str = ""
) -> list[str]:
    """A command line that runs a class of that Kafka, or one of ours from `extra_path` behind it."""
    # Only what begins with the class path of an archive can use that.
    path = f"{class_path(version)}{os.pathsep}{extra_path}" if extra_path else class_path(version)
    archive = class_archive(version)
    shared = (*NO_JVM_WARNINGS, f"-XX:SharedArchiveFile={archive}") if archive.exists() else ()
    return [program("java"), *shared, *jvm_options, *UTF8_JVM, "-cp", path, main_class, *args]


@functools.cache
def class_archive(version: str) -> Path:
    """The file with the classes of that Kafka, of this Java and these jars, if `class_archive.py` made it."""
    release = Path(program("java")).resolve().parents[1] / "release"
    contents = (release.read_bytes() if release.exists() else b"") + class_path(version).encode()
    return _cache_dir() / f"kafka-{version}-{hashlib.sha256(contents).hexdigest()[:16]}.jsa"


def kafka_tool(
    main_class: str, *args: str, version: str = KAFKA_VERSION, check: bool = True, extra_path: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's command line classes to its end; with `check`, a failure raises with all it printed."""
    command = java_command(main_class, *args, version=version, jvm_options=SHORT_LIVED_JVM, extra_path=extra_path)
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=TOOL_TIMEOUT_S,
    )
    if check and done.returncode != 0:
        raise KafkaToolError(f"{main_class} {' '.join(args)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def compile_java(source: Path, target: Path, version: str = KAFKA_VERSION) -> None:
    """Compiles one Java file, or all in a folder, against that Kafka into the folder `target`."""
    compile_against(source, target, class_path(version))


def compile_against(source: Path, target: Path, path: str) -> None:
    """Compiles one Java file, or all in a folder, with a class path into the folder `target`."""
    names = map(str, sorted(source.glob("*.java")) if source.is_dir() else [source])
    command = [program("javac"), "-cp", path, "-d", str(target), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise KafkaUnavailableError(f"{source} does not compile:\n{done.stderr}")


def _resolve(name: str, pom: str) -> str:
    with tempfile.TemporaryDirectory(prefix="ottla-pom-") as folder:
        file = Path(folder) / "pom.xml"
        file.write_text(pom)
        answer = Path(folder) / "classpath"
        command = [
            str(RETRY), str(MAVEN_TIMEOUT_S), program("mvn"), *MAVEN_OPTIONS, "-q", "-B", "-f", str(file),
            "dependency:build-classpath", f"-Dmdep.outputFile={answer}", "-Dmdep.includeScope=runtime",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0 or not answer.exists():
            raise KafkaUnavailableError(
                f"Maven could not fetch {name}; check the network and Maven's settings:\n"
                f"{done.stdout[-4000:]}{done.stderr[-2000:]}"
            )
        return answer.read_text().strip()


def _damaged(path: str) -> list[Path]:
    """The jars of a class path that are missing or were not downloaded to their end."""
    return [Path(each) for each in path.split(os.pathsep) if not zipfile.is_zipfile(each)]


def _cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla-tests"


def program(name: str) -> str:
    """The path of a program that the tests need."""
    found = shutil.which(name)
    if found is None:
        raise KafkaUnavailableError(f"{name} is not on the PATH; run tests/compat/prepare to install what is missing")
    return found


if __name__ == "__main__":
    print(class_path(*sys.argv[1:]))
