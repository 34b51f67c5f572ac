"""Asks Avro's Java library about schemas: a process that answers one question for each line."""

import base64
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tests.compat.clients.client_builds import built
from tests.compat.kafka_jars import UTF8_JVM, compile_against, maven_class_path, program

AVRO_VERSION: Final = "1.12.1"
"""The version in Confluent's registry 8."""

_HERE: Final = Path(__file__).parent
_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId>
  <artifactId>avro-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.avro</groupId>
      <artifactId>avro</artifactId>
      <version>1.12.1</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>2.0.17</version>
    </dependency>
  </dependencies>
</project>
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the library said: a text, or that a schema is not valid."""

    text: str | None
    error: str | None = None


class AvroJava:
    """The running process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout

    def text(self, schema: str, references: Sequence[str] = (), *, is_new: bool = True) -> Answer:
        """The canonical text of a schema that may use the types of others."""
        return self._ask("new" if is_new else "stored", *references, schema)

    def incompatibilities(self, reader: str, writer: str) -> Answer:
        """Lines of kinds and places; empty if the reader's schema can read what the writer's wrote."""
        return self._ask("read", reader, writer)

    def _ask(self, *words: str) -> Answer:
        encoded = [base64.b64encode(each.encode()).decode() for each in words[1:]]
        self._in.write("\t".join([words[0], *encoded]) + "\n")
        self._in.flush()
        outcome, _, text = self._out.readline().rstrip("\n").partition("\t")
        assert outcome in ("ok", "error"), outcome
        decoded = base64.b64decode(text).decode()
        return Answer(decoded) if outcome == "ok" else Answer(None, decoded)


def class_path() -> str:
    """The jars of Avro."""
    return maven_class_path(f"avro-{AVRO_VERSION}", _POM)


def judge_classes() -> Path:
    """The folder with the compiled program."""
    source = _HERE / "java" / "AvroJudge.java"
    return built("avro-judge", [source], lambda folder: compile_against(source, folder, class_path()))


@contextmanager
def avro_java() -> Iterator[AvroJava]:
    """Runs the process as long as the context is open."""
    path = os.pathsep.join([str(judge_classes()), class_path()])
    command = [
        program("java"), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *UTF8_JVM,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", path, "AvroJudge",
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        try:
            yield AvroJava(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=60)


if __name__ == "__main__":
    judge_classes()
