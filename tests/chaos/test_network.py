"""Places of a network reach each other until they are cut, one way or both, silently, and again when it heals."""

import socket
import sys
from pathlib import Path

import pytest

from tests.chaos.network import Place, network
from tests.processes import Program, run

ECHO = """
import socket
listening = socket.create_server(("", 7000))
print("ready", flush=True)
asked, _ = listening.accept()
while data := asked.recv(10):
    asked.sendall(data)
"""
ASK = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 7000), 30)
for line in sys.stdin:
    word, seconds = line.split()
    connection.settimeout(float(seconds))
    connection.sendall(word.encode())
    try:
        print(connection.recv(10).decode(), flush=True)
    except TimeoutError:
        print("silence", flush=True)
"""
RECEIVE = """
import socket
receiving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiving.bind(("", 7001))
print("ready", flush=True)
while True:
    print(receiving.recv(10).decode(), flush=True)
"""
SEND = "import socket, sys; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'hello', (sys.argv[1], 7001))"


def program(folder: Path, place: Place, *command: str) -> Program:
    return Program([*place.launcher, sys.executable, "-c", *command], folder / place.name, has_input=True)


def test_a_connection_that_is_cut_falls_silent_and_goes_on(tmp_path: Path) -> None:
    with network(["a", "b"]) as made, program(tmp_path, made.places["b"], ECHO) as echo:
        assert "ready" == echo.next_line()
        with program(tmp_path, made.places["a"], ASK, made.places["b"].address) as asking:

            def said(word: str, seconds: float = 0.3) -> str:
                asking.write(f"{word} {seconds}")
                return asking.next_line()

            assert "one" == said("one", 30)
            made.cut(["b"], ["a"])
            assert "silence" == said("two")
            made.heal()
            while "three" not in said("three"):
                # What was not acknowledged is sent again when the kernel thinks it is time.
                pass


@pytest.mark.parametrize(("sender", "receiver", "expected"), [("b", "a", "hello"), ("a", "b", "control")])
def test_a_cut_is_one_way(tmp_path: Path, sender: str, receiver: str, expected: str) -> None:
    """A datagram needs no answer, so it shows which way is cut; the next comes from outside, where nothing is."""
    with network(["a", "b"]) as made, program(tmp_path, made.places[receiver], RECEIVE) as receiving:
        assert "ready" == receiving.next_line()
        made.cut(["a"], ["b"])
        at = made.places[receiver].address
        run([*made.places[sender].launcher, sys.executable, "-c", SEND, at])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            control.sendto(b"control", (at, 7001))
        assert expected == receiving.next_line()
