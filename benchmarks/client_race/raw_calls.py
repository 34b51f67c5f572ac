"""What the machine itself can do: the same bytes by system calls alone, with no protocol, no checksum and no records.

Reading is `sendfile` from the page cache to a local socket and `recv_into` one buffer; sending is `sendall` of one
buffer, received into another and written to a new file. As with a broker, the other side is a process of its own:

    python -m benchmarks.client_race.raw_calls source|sink FOLDER
"""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.client_race.ottla_clients import ARROW_SHARE
from benchmarks.client_race.session import KEYS, PARTITIONS, Lane, Session

RECORD_OVERHEAD_BYTES: Final = 10
"""What a record takes in a batch beyond its key and value, about."""
MIB: Final = 1 << 20
ANSWER_BYTES: Final = PARTITIONS * MIB
"""What a reader that asks for 1 MiB of each partition gets at once."""
FILE_BYTES: Final = 64 * MIB
"""What is read again and again: more than processors keep near them."""
_SIZE_BYTES: Final = 8


class RawCalls(Session):
    """A connection to the other side, which is told how many bytes to send or to take."""

    name = "raw calls"
    share = ARROW_SHARE
    role: str

    def __init__(self, lane: Lane) -> None:
        super().__init__(lane)
        self._record_bytes = len(lane.value) + len(KEYS[0]) + RECORD_OVERHEAD_BYTES

    def open(self) -> None:
        """Starts the other side and connects."""
        self._folder = tempfile.TemporaryDirectory(prefix="ottla-raw-")
        command = [sys.executable, "-m", "benchmarks.client_race.raw_calls", self.role, self._folder.name]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        if self._process.stdout is None:
            raise RuntimeError("the other side has no output")
        with self._process.stdout as output:
            self._socket = socket.create_connection(("127.0.0.1", int(output.readline())), 30)

    def close(self) -> None:
        """The other side ends with the connection."""
        self._socket.close()
        self._process.wait(30)
        self._folder.cleanup()


class RawReader(RawCalls):
    """Receives into one buffer, again and again."""

    role = "source"

    def work(self, count: int) -> None:
        """One answer after the other, each asked for."""
        left = count * self._record_bytes
        buffer = memoryview(bytearray(ANSWER_BYTES))
        while left:
            answer = min(left, ANSWER_BYTES)
            self._socket.sendall(answer.to_bytes(_SIZE_BYTES, "big"))
            received = 0
            while received < answer:
                size = self._socket.recv_into(buffer[received:answer])
                if size == 0:
                    raise RuntimeError("the other side ended")
                received += size
            left -= answer


class RawSender(RawCalls):
    """Sends one buffer, again and again."""

    role = "sink"

    def work(self, count: int) -> None:
        """All of it, until the other side says that it has written all."""
        left = count * self._record_bytes
        self._socket.sendall(left.to_bytes(_SIZE_BYTES, "big"))
        buffer = memoryview(bytes(MIB))
        while left:
            size = min(left, MIB)
            self._socket.sendall(buffer[:size])
            left -= size
        if self._socket.recv(1) != b"\0":
            raise RuntimeError("the other side ended")


def source(connection: socket.socket, folder: Path) -> None:
    """Answers each size with as many bytes of a file that the system has in memory."""
    path = folder / "source"
    path.write_bytes(os.urandom(MIB) * (FILE_BYTES // MIB))
    with path.open("rb") as file:
        position = 0
        while asked := connection.recv(_SIZE_BYTES, socket.MSG_WAITALL):
            left = int.from_bytes(asked, "big")
            while left:
                sent = os.sendfile(connection.fileno(), file.fileno(), position, min(left, FILE_BYTES - position))
                left -= sent
                position = (position + sent) % FILE_BYTES


def sink(connection: socket.socket, folder: Path) -> None:
    """Writes as many bytes as each size says to a file, then says so."""
    buffer = memoryview(bytearray(MIB))
    with (folder / "sink").open("wb", buffering=0) as file:
        while told := connection.recv(_SIZE_BYTES, socket.MSG_WAITALL):
            left = int.from_bytes(told, "big")
            while left:
                size = connection.recv_into(buffer[: min(left, MIB)])
                if size == 0:
                    return
                file.write(buffer[:size])
                left -= size
            connection.sendall(b"\0")


def main() -> int:
    """Listens, says where, and serves the one that connects; returns the exit status."""
    role, folder = sys.argv[1:]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        connection, _ = listening.accept()
    with connection:
        {"source": source, "sink": sink}[role](connection, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
