"""Runs Kafka Connect and MirrorMaker 2: a process of its own, from a file of properties."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.compat.kafka_jars import SHORT_LIVED_JVM, UTF8_JVM, connect_class_path, program

DISTRIBUTED: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
MIRROR_MAKER: Final = "org.apache.kafka.connect.mirror.MirrorMaker"


class ConnectProcess:
    """A context manager around one of the two programs. In the end it is killed: a clean end takes half a minute."""

    def __init__(self, main_class: str, folder: Path, properties: Mapping[str, str]) -> None:
        self._main_class = main_class
        self._folder = folder
        self._properties = properties
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "connect.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self._properties.items()))
        command = [
            program("java"),
            *SHORT_LIVED_JVM,
            *UTF8_JVM,
            "-cp",
            connect_class_path(),
            self._main_class,
            str(file),
        ]
        with (self._folder / "console.log").open("wb") as console:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if error is not None:
            error.add_note(self.log_text()[-6000:])

    def is_running(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def log_text(self) -> str:
        """All that the program wrote."""
        return (self._folder / "console.log").read_text(errors="replace")
