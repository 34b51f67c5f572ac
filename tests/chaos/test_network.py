"""Places of a network reach each other until they are cut, one way or both, silently, and again when it heals."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.chaos.network import Place, network

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


@contextmanager
def program(place: Place, *command: str) -> "Iterator[subprocess.Popen[str]]":
    pipe = subprocess.PIPE
    words = [*place.launcher, sys.executable, "-c", *command]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, bufsize=1) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_connection_that_is_cut_falls_silent_and_goes_on() -> None:
    with network(["a", "b"]) as made, program(made.places["b"], ECHO) as echo:
        assert "ready" == line(echo)
        with program(made.places["a"], ASK, made.places["b"].address) as asking:

            def said(word: str, seconds: float = 0.3) -> str:
                print(word, seconds, file=asking.stdin, flush=True)
                return line(asking)

            assert "one" == said("one", 30)
            made.cut(["b"], ["a"])
            assert "silence" == said("two")
            made.heal()
            while "three" not in said("three"):
                # What was not acknowledged is sent again when the kernel thinks it is time.
                pass


@pytest.mark.parametrize(("sender", "receiver", "expected"), [("b", "a", "hello"), ("a", "b", "control")])
def test_a_cut_is_one_way(sender: str, receiver: str, expected: str) -> None:
    """A datagram needs no answer, so it shows which way is cut; the next comes from outside, where nothing is."""
    with network(["a", "b"]) as made, program(made.places[receiver], RECEIVE) as receiving:
        assert "ready" == line(receiving)
        made.cut(["a"], ["b"])
        at = made.places[receiver].address
        subprocess.run([*made.places[sender].launcher, sys.executable, "-c", SEND, at], check=True, timeout=30)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            control.sendto(b"control", (at, 7001))
        assert expected == line(receiving)
