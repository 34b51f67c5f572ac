"""Ports that test processes share without taking each other's."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing import InProcessBroker, SecuredBroker, free_ports
from ottla.testing.free_ports import HIGHEST, LOWEST, consecutive_free_ports, free_port

HOLDER = """
import sys
from ottla.testing import free_ports
free_ports.LOWEST, free_ports.HIGHEST = int(sys.argv[1]), int(sys.argv[2])
print(*free_ports.free_ports(int(sys.argv[3])), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> range:
    """Four ports that are free, and a table that no other process has."""
    first = consecutive_free_ports(4)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(free_ports, "LOWEST", first)
    monkeypatch.setattr(free_ports, "HIGHEST", first + 4)
    return range(first, first + 4)


def holder(few: range, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", HOLDER, str(few.start), str(few.stop), str(count)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(process: "subprocess.Popen[str]") -> set[int]:
    assert process.stdout is not None
    return set(map(int, process.stdout.readline().split()))


def test_a_port_belongs_to_one_process_until_it_ends(few: range) -> None:
    with holder(few, 3) as other:
        theirs = line_of(other)
        mine = free_port()
        assert set(few) == {*theirs, mine}
        with pytest.raises(OSError, match="found no 1 free ports"):
            free_port()
        other.communicate()
    assert theirs == set(free_ports.free_ports(3))


def test_a_port_that_is_listened_on_is_not_given(few: range) -> None:
    with socket.create_server(("127.0.0.1", few[1])), socket.create_server(("127.0.0.1", few[2])):
        assert {few[0], few[3]} == set(free_ports.free_ports(2))


def test_ports_in_a_row(few: range) -> None:
    with socket.create_server(("127.0.0.1", few[0])):
        assert few[1] == consecutive_free_ports(3)


def test_brokers_keep_their_ports_while_they_are_down(tmp_path: Path) -> None:
    """A port that the kernel gave would be given away again meanwhile."""
    broker = InProcessBroker(tmp_path / "plain")
    with broker:
        pass
    secured = SecuredBroker(tmp_path / "secured")
    with secured:
        pass
    ports = [broker.port, *(int(secured.bootstrap_of(each).rpartition(":")[2]) for each in ("SSL", "SASL_SSL"))]
    assert all(LOWEST <= each < HIGHEST for each in ports)
    assert set() == set(ports) & set(free_ports.free_ports(1000))
