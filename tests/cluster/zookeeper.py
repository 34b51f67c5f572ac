"""Runs real ZooKeeper servers on loopback: one, or an ensemble of three, each a process that can be killed or paused.

PySpark's jars contain the whole server, so nothing is fetched; Java comes from `JAVA_HOME` or the path. Data lies in
the given folder and survives `kill` and `start`. Ticks are short, so that sessions may be: ZooKeeper grants session
timeouts from two ticks on.
"""

import contextlib
import os
import socket
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ottla.testing.free_ports import free_ports
from tests.chaos.network import Place
from tests.processes import Program
from tests.waiting import wait_until

SESSION_TIMEOUT_MAX_MS: Final = 60_000
"""For tests whose sessions must outlive a machine that stalls: with such short ticks, the default is four seconds."""
JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx192m")
"""A server that starts soon is worth more to a test than one that is fast later."""
JARS: Final = ("zookeeper", "slf4j-api", "log4j-", "metrics-core", "snappy-java", "netty-", "commons-io")
"""What the server needs of PySpark's jars; all of them would take longer to look through."""


class ZooKeeperEnsemble:
    """`count` servers with ids from 1 on, on loopback or each in its place. A context manager."""

    def __init__(
        self,
        folder: Path,
        count: int = 1,
        *,
        tick_ms: int = 200,
        session_timeout_max_ms: int | None = None,
        places: Sequence[Place] = (),
        settings: Sequence[str] = (),
        jvm_options: Sequence[str] = (),
    ) -> None:
        self.ids = tuple(range(1, count + 1))
        self._folder = folder
        self._tick_ms = tick_ms
        self._session_timeout_max_ms = session_timeout_max_ms
        self._settings = tuple(settings)
        self._jvm_options = tuple(jvm_options)
        self._places = dict(zip(self.ids, places, strict=True)) if places else {}
        self._ports: dict[int, tuple[int, int, int]] = {}
        self._programs: dict[int, Program] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def servers(self) -> str:
        """`host:port,host:port` of all servers, as clients take it."""
        return ",".join(self.server(number) for number in self.ids)

    def server(self, number: int) -> str:
        """`host:port` of one server."""
        return f"{self._host(number)}:{self._ports[number][0]}"

    def _host(self, number: int) -> str:
        return self._places[number].address if self._places else "127.0.0.1"

    def port(self, number: int) -> int:
        """The port that one server's clients connect to."""
        return self._ports[number][0]

    def pid(self, number: int) -> int:
        """The process of one server."""
        return self._programs[number].pid

    def start(self, numbers: Iterable[int] | None = None) -> None:
        """Starts servers, all unless told which, and returns once the ensemble serves."""
        if not self._ports:
            ports = free_ports(3 * len(self.ids))
            self._ports = {number: tuple(ports[3 * place : 3 * place + 3]) for place, number in enumerate(self.ids)}  # type: ignore[misc]
        try:
            for number in self.ids if numbers is None else numbers:
                self._launch(number)
            self.wait_serving()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends all servers; they keep no state that an orderly end would save."""
        for number in list(self._programs):
            self.kill(number)

    def kill(self, number: int) -> None:
        """Ends one server at once, as a crash would. It can be started again."""
        self._programs.pop(number).kill()

    def pause(self, number: int) -> None:
        """Stops one server in its tracks; its connections stay open, and nothing answers."""
        self._programs[number].pause()

    def resume(self, number: int) -> None:
        """Lets a paused server go on."""
        self._programs[number].resume()

    def mode(self, number: int) -> str:
        """`leader`, `follower` or `standalone`, or "" while the server does not serve."""
        for line in self._four_letters(number, b"srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return ""

    def leader(self) -> int:
        """The server that leads the ensemble, once there is one."""
        leaders = wait_until(lambda: [each for each in self._programs if self.mode(each) in ("leader", "standalone")])
        return leaders[0]

    def wait_serving(self) -> None:
        """Returns once every server that runs serves."""
        for number in self._programs:
            self._wait_mode(number)

    def _wait_mode(self, number: int) -> None:
        program = self._programs[number]

        def mode() -> str:
            assert program.is_running, f"ZooKeeper {number} ended while it started; {program.log_end}"
            return self.mode(number)

        wait_until(mode, lambda: f"ZooKeeper {number} serves; {program.log_end}")

    def _four_letters(self, number: int, word: bytes) -> str:
        address = (self._host(number), self.port(number))
        with contextlib.suppress(OSError), socket.create_connection(address, 1) as asking:
            asking.settimeout(1)
            asking.sendall(word)
            answer = b""
            while piece := asking.recv(4096):
                answer += piece
            return answer.decode(errors="replace")
        return ""

    def _launch(self, number: int) -> None:
        folder = self._folder / str(number)
        (folder / "data").mkdir(parents=True, exist_ok=True)
        settings = [
            f"tickTime={self._tick_ms}",
            f"dataDir={folder / 'data'}",
            f"clientPort={self.port(number)}",
            f"clientPortAddress={self._host(number)}",
            "initLimit=50",
            "syncLimit=25",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            *self._settings,
        ]
        if self._session_timeout_max_ms is not None:
            settings.append(f"maxSessionTimeout={self._session_timeout_max_ms}")
        if len(self.ids) > 1:
            (folder / "data" / "myid").write_text(str(number))
            settings += [
                f"server.{each}={self._host(each)}:{ports[1]}:{ports[2]}" for each, ports in self._ports.items()
            ]
        path = folder / "zoo.cfg"
        path.write_text("\n".join(settings) + "\n")
        # The first packets of an election may be lost while the others start: ask again soon.
        options = (
            *JVM_OPTIONS,
            *self._jvm_options,
            "-Dzookeeper.admin.enableServer=false",
            "-Dzookeeper.fastleader.maxNotificationInterval=500",
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        launcher = self._places[number].launcher if self._places else ()
        command = [*launcher, _java(), *options, "-cp", _class_path(), main, path]
        self._programs[number] = Program(command, folder / "server", folder=folder)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _class_path() -> str:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeError("ZooKeeper's server comes with PySpark, which is not installed: pip install ottla[spark]")
    jars = sorted((Path(spec.origin).parent / "jars").glob("*.jar"))
    # TLS needs one of the native jars, for classes without native code.
    return ":".join(
        str(jar)
        for jar in jars
        if jar.name.startswith(JARS) and ("-native-" not in jar.name or "-unix-common-" in jar.name)
    )
