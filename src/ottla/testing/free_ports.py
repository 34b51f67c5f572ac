"""Ports for servers that tests start, stop and start again: no other test process gets them meanwhile.

A server that is killed and comes back must find its port free. A port that the kernel chooses is free for anyone while
the server is down: for another server, and for the own end of a client's connection, which can even connect to itself.
So these are below the range of outgoing connections, and a table that all processes of a user share says which process
has which: the process id, four bytes for each port. A port belongs to its process until this ends.
"""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from struct import Struct
from typing import Final

LOWEST: Final = 10_000
HIGHEST: Final = 32_000
TRIES_MAX: Final = 100_000
_PROCESS: Final = Struct("=I")
_CHOICE: Final = random.SystemRandom()
"""Not seeded: tests that run at the same time must not choose the same ports in the same order."""


def free_ports(count: int, *, in_a_row: bool = False) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on, for this process alone; with `in_a_row`, each is one above the last.

    Raises OSError if there are no more.
    """
    # Opened each time, and not kept open: a test may compare how many files are open before and after.
    table = os.open(Path(tempfile.gettempdir()) / f".ottla-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(table, fcntl.LOCK_EX)
        found: list[int] = []
        for _ in range(TRIES_MAX):
            if len(found) == count:
                break
            port = found[-1] + 1 if in_a_row and found else _CHOICE.randrange(LOWEST, HIGHEST)
            if port < HIGHEST and port not in found and not _is_owned(table, port) and _is_free(port):
                found.append(port)
            elif in_a_row:
                found.clear()
        else:
            raise OSError(f"found no {count} free ports between {LOWEST} and {HIGHEST}")
        for port in found:
            os.pwrite(table, _PROCESS.pack(os.getpid()), port * _PROCESS.size)
        return found
    finally:
        os.close(table)


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def consecutive_free_ports(count: int) -> int:
    """The first of some free ports in a row."""
    return free_ports(count, in_a_row=True)[0]


def _is_owned(table: int, port: int) -> bool:
    """Whether a process that runs has taken the port before, this one or another."""
    entry = os.pread(table, _PROCESS.size, port * _PROCESS.size)
    (owner,) = _PROCESS.unpack(entry) if len(entry) == _PROCESS.size else (0,)
    if not owner:
        return False
    try:
        os.kill(owner, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
