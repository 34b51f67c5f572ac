"""What a service manager hears: a real datagram socket in its place, and brokers that really start and stop."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.serve.service_notification import ServiceNotifier, take_notifier
from tests.processes import OTTLA, Program
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The service manager's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(PATIENCE_SECONDS)
        listening.bind(str(tmp_path / "notify"))
        yield listening


def heard(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().splitlines()


def heard_first(manager: socket.socket, name: str) -> list[str]:
    """The first message that has that line; pings and states of the start may come before."""
    while name not in (lines := heard(manager)):
        pass
    return lines


def test_messages(manager: socket.socket) -> None:
    service = ServiceNotifier(manager.getsockname())
    service.ready("ready on a:1")
    service.status("opened 1 of 2 partitions")
    service.stopping()
    service.ping()
    assert [
        ["READY=1", "STATUS=ready on a:1"],
        ["STATUS=opened 1 of 2 partitions"],
        ["STOPPING=1", "STATUS=stopping"],
        ["WATCHDOG=1"],
    ] == [heard(manager) for _ in range(4)]


def test_an_abstract_socket() -> None:
    name = f"ottla-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(PATIENCE_SECONDS)
        listening.bind(f"\0{name}")
        ServiceNotifier(f"@{name}").ping()
        assert ["WATCHDOG=1"] == heard(listening)


def test_a_service_manager_that_is_gone_is_logged_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ServiceNotifier(str(tmp_path / "gone")).ready("ready")
    assert [f"cannot notify the service manager at {tmp_path / 'gone'}: No such file or directory"] == caplog.messages
    ServiceNotifier(None).ready("ready")


@pytest.mark.parametrize(
    ("environment", "ping_seconds"),
    [
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7"}, 1.0),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "3000000"}, 1.0),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"}, None),
        ({"NOTIFY_SOCKET": "/n"}, None),
        ({"WATCHDOG_USEC": "3000000"}, None),
        ({}, None),
    ],
)
def test_the_environment_is_taken(environment: dict[str, str], ping_seconds: float | None) -> None:
    given = {**environment, "HOME": "/h"}
    assert ping_seconds == take_notifier(given, 7).ping_seconds
    assert {"HOME": "/h"} == given


async def test_pings(manager: socket.socket) -> None:
    pinging = asyncio.ensure_future(ServiceNotifier(manager.getsockname(), 0.003).ping_forever())
    found = [await asyncio.to_thread(heard, manager) for _ in range(3)]
    pinging.cancel()
    assert [["WATCHDOG=1"]] * 3 == (found)


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_broker_tells_its_life(brokers: int, manager: socket.socket, tmp_path: Path) -> None:
    # A ping each second: the kernel keeps few messages that were not read yet, and further ones are lost.
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "3000000"}
    command = [*OTTLA, "serve", "--data", tmp_path / "data", "--listen", "127.0.0.1:0", "--brokers", str(brokers)]
    with Program(command, tmp_path / "serve", environment=environment) as served:
        ready = heard_first(manager, "READY=1")
        addresses = served.wait_ready()
        assert brokers == len(addresses.split(","))
        assert ["READY=1", f"STATUS=ready on {addresses.replace(',', ', ')}"] == ready
        heard_first(manager, "WATCHDOG=1")
        served.send(signal.SIGTERM)
        assert ["STOPPING=1", "STATUS=stopping"] == heard_first(manager, "STOPPING=1")
        assert (0, []) == (served.wait(), served.remaining_lines())
