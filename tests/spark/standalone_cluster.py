"""A Spark cluster of processes on this machine: a master and workers, each with a loopback address of its own.

Spark runs a copy of a slow task only on another host, so workers must look like different ones.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.spark.launch.session import spark_environment
from ottla.testing.free_ports import free_port
from tests.processes import Program
from tests.waiting import wait_until

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


class StandaloneCluster:
    """Ready when it is entered; gone, with all executors, when it is left."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._workers = workers
        self._programs: list[Program] = []
        self.master = f"spark://127.0.0.1:{free_port()}"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            port = self.master.rpartition(":")[2]
            self._start("master", _MASTER, "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
            for number in range(self._workers):
                self._start(
                    f"worker-{number}",
                    _WORKER,
                    *("--host", f"127.0.0.{number + 2}", "--cores", "1", "--memory", "600M", "--webui-port", "0"),
                    *("--work-dir", str(self._folder / f"work-{number}"), self.master),
                )
            self._wait_registered()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends every process, executors first."""
        for process in self.executors():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for program in reversed(self._programs):
            program.kill()
        self._programs.clear()

    def executors(self) -> list[int]:
        """The processes of executors that run now."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):
                    command = (folder / "cmdline").read_bytes()
                    if b"CoarseGrainedExecutorBackend" in command and self._is_below_a_worker(int(folder.name)):
                        found.append(int(folder.name))
        return found

    def _is_below_a_worker(self, process: int) -> bool:
        ours = {program.pid for program in self._programs}
        while process > 1:
            if process in ours:
                return True
            try:
                text = Path(f"/proc/{process}/stat").read_text()
            except OSError:
                return False
            process = int(text.rpartition(")")[2].split()[1])
        return False

    def _start(self, name: str, *command: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = {
            **spark_environment("local[1]"),
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "160m",
            # Executors that are killed are started again, however often.
            "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_LOCAL_DIRS": str(self._folder / "scratch"),
        }
        command = (str(home / "bin" / "spark-class"), *command)
        self._programs.append(Program(command, self._folder / name, environment=environment))

    def _wait_registered(self) -> None:
        def are_registered() -> bool:
            assert all(program.is_running for program in self._programs), logs()
            return all("Successfully registered with master" in program.log for program in self._programs[1:])

        def logs() -> str:
            return "\n".join(program.log_end for program in self._programs)

        wait_until(are_registered, logs)
