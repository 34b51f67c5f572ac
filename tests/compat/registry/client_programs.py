"""The foreign registry clients: how each is built and started.

Confluent's jars are not on Maven Central, but their registry client is: Flink ships it inside one of its own. Run by
itself, this module builds all programs, and fetches what they need.
"""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.compat.clients import client_builds
from tests.compat.clients.foreign_client import ForeignClient
from tests.compat.kafka_jars import SHORT_LIVED_JVM, UTF8_JVM, compile_against, maven_class_path, program

_HERE: Final = Path(__file__).parent
_FLINK_VERSION: Final = "2.1.0"
_POM: Final = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId>
  <artifactId>registry-client-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.flink</groupId>
      <artifactId>flink-sql-avro-confluent-registry</artifactId>
      <version>{_FLINK_VERSION}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


def _python() -> list[str]:
    return [sys.executable, "-m", "tests.compat.registry.programs.confluent_program"]


@functools.cache
def _java() -> list[str]:
    jars = maven_class_path(f"flink-registry-{_FLINK_VERSION}", _POM)
    source = _HERE / "java" / "RegistryProgram.java"
    classes = client_builds.built("java-registry", [source], lambda folder: compile_against(source, folder, jars))
    path = os.pathsep.join([str(classes), jars])
    return [program("java"), *SHORT_LIVED_JVM, *UTF8_JVM, "-cp", path, "RegistryProgram"]


@functools.cache
def _go() -> list[str]:
    sources = sorted(path for path in (_HERE / "go").iterdir() if path.is_file())

    def build(folder: Path) -> None:
        command = [client_builds.go_command(), "build", "-trimpath", "-buildvcs=false", "-o", str(folder / "program")]
        client_builds.run_tool([*command, "."], _HERE / "go")

    return [str(client_builds.built("go-registry", sources, build) / "program")]


@functools.cache
def _node() -> list[str]:
    packages = client_builds.packages_of(_HERE / "node", "node-registry")
    # Node finds packages beside the program, not by a path.
    return ["env", f"NODE_PATH={packages}", program("node"), str(_HERE / "node" / "registry_program.js")]


COMMANDS: Final[dict[str, Callable[[], list[str]]]] = {
    "confluent-python": _python,
    "confluent-java": _java,
    "confluent-javascript": _node,
    "franz-go": _go,
}
FORMATS: Final = {
    "confluent-python": ("AVRO", "JSON", "PROTOBUF"),
    "confluent-java": ("AVRO",),
    "confluent-javascript": ("AVRO", "JSON", "PROTOBUF"),
}
"""What the serializers that come with a client can write. The one of franz-go frames what others encode."""
WRITE_HEADERS: Final = ("confluent-python", "confluent-javascript")
"""The clients whose serializers can write the schema's GUID to a header."""


def start(name: str, url: str, log: Path) -> ForeignClient:
    """The running program of a client."""
    return ForeignClient(name, COMMANDS[name](), bootstrap=url, log=log)


if __name__ == "__main__":
    for command in COMMANDS.values():
        command()
