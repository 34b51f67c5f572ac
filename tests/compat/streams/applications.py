"""Runs Kafka Streams applications as processes of their own. `python -m` of this module fetches and compiles them."""

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.compat.clients.client_builds import built
from tests.compat.kafka_jars import KAFKA_VERSION, UTF8_JVM, compile_against, maven_class_path, program

_HERE: Final = Path(__file__).parent
_STOP_TIMEOUT_S: Final = 60
_POM: Final = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId>
  <artifactId>kafka-streams-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-streams</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


def class_path() -> str:
    """The jars of Kafka Streams."""
    return maven_class_path(f"kafka-streams-{KAFKA_VERSION}", _POM)


def classes() -> Path:
    """The folder with the compiled applications."""
    source = _HERE / "WordCounts.java"
    return built("streams", [source], lambda folder: compile_against(source, folder, class_path()))


class WordCounts:
    """One instance of the application; a context manager that starts it, and shuts it down at the end."""

    def __init__(self, folder: Path, bootstrap: str, application: str) -> None:
        self.folder = folder
        self._args = (bootstrap, application, str(folder / "state"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        path = os.pathsep.join([str(classes()), class_path()])
        command = [
            program("java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *UTF8_JVM,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-cp", path, "WordCounts", *self._args,
        ]  # fmt: skip
        with (self.folder / "console.log").open("wb") as console, (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=console, stderr=log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        try:
            self._process.communicate(timeout=_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """Ends the process at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def states(self) -> list[str]:
        """The states that the application has reached so far."""
        lines = (self.folder / "console.log").read_text(errors="replace").splitlines()
        return [line.removeprefix("STATE ") for line in lines if line.startswith("STATE ")]

    def log(self) -> str:
        """What the application logged."""
        return (self.folder / "log").read_text(errors="replace")


if __name__ == "__main__":
    classes()
