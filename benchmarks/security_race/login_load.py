"""Connects as often as it can: TLS handshakes, or SCRAM logins, each followed by the end of the connection.

Runs both ways, as `librdkafka_load`: the functions start `python -m benchmarks.security_race.login_load MODE JSON`, and
that is the client. A handshake counts when an ApiVersions request was answered over it; no session is resumed. With
SCRAM the client hashes the password once, where a real one does it for each login: what is measured is the broker.
"""

import base64
import hashlib
import hmac
import json
import resource
import secrets
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from struct import pack, unpack
from typing import Any, Final

from benchmarks.kafka_race.raw_load import LoadError, Work, run_and_parse, work_of

THREADS: Final = 4
TIMEOUT_S: Final = 20.0
_API_VERSIONS, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 18, 17, 36


def handshakes(port: int, *, authority: str, seconds: float) -> Work:
    """TLS handshakes; the requests of the work are connections."""
    return _in_process("handshakes", {"port": port, "authority": authority, "seconds": seconds})


def logins(port: int, *, mechanism: str, user: str, password: str, seconds: float) -> Work:
    """SCRAM logins without TLS; the requests of the work are logins."""
    login = {"mechanism": mechanism, "user": user, "password": password}
    return _in_process("logins", {"port": port, "seconds": seconds, **login})


def agreed_cipher(port: int, authority: str) -> str:
    """The TLS version and cipher that this machine's OpenSSL and the broker agree on; librdkafka uses OpenSSL, too."""
    context = ssl.create_default_context(cafile=authority)
    with context.wrap_socket(_connect_in_time(port), server_hostname="localhost") as peer:
        cipher = peer.cipher()
        return f"{peer.version()} {cipher[0] if cipher else 'without a cipher'}"


def _in_process(mode: str, options: dict[str, Any]) -> Work:
    command = [sys.executable, "-m", "benchmarks.security_race.login_load", mode, json.dumps(options)]
    return work_of(run_and_parse(command))


def _connect(port: int) -> socket.socket:
    connected = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def _connect_in_time(port: int) -> socket.socket:
    """Waits for the listener: Kafka opens its listeners one after another."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return _connect(port)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _ask(peer: socket.socket, api: int, version: int, body: bytes) -> bytes:
    """One request with the header of versions without tagged fields; the response without its correlation id."""
    content = pack(">hhih", api, version, 1, -1) + body
    peer.sendall(pack(">i", len(content)) + content)
    (size,) = unpack(">i", _exactly(peer, 4))
    return _exactly(peer, size)[4:]


def _exactly(peer: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        more = peer.recv(size - len(received))
        if not more:
            raise LoadError("the broker closed the connection")
        received += more
    return bytes(received)


def _handshake_once(options: dict[str, Any]) -> Callable[[], None]:
    context = ssl.create_default_context(cafile=options["authority"])

    def once() -> None:
        with context.wrap_socket(_connect(options["port"]), server_hostname="localhost") as peer:
            _ask(peer, _API_VERSIONS, 0, b"")

    return once


def _login_once(options: dict[str, Any]) -> Callable[[], None]:
    mechanism, user, password = options["mechanism"], options["user"], options["password"].encode()
    hash_name = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    name = mechanism.encode()
    salted: dict[tuple[bytes, int], bytes] = {}

    def exchange(peer: socket.socket, message: bytes) -> bytes:
        answer = _ask(peer, _SASL_AUTHENTICATE, 0, pack(">i", len(message)) + message)
        (code, length) = unpack(">hh", answer[:4])
        if code != 0:
            raise LoadError(f"the login failed with code {code}")
        return answer[4 + max(length, 0) + 4 :]

    def once() -> None:
        with _connect(options["port"]) as peer:
            answer = _ask(peer, _SASL_HANDSHAKE, 1, pack(">h", len(name)) + name)
            if unpack(">h", answer[:2]) != (0,):
                raise LoadError(f"the broker does not offer {mechanism}")
            first = f"n={user},r={secrets.token_hex(12)}".encode()
            reply = exchange(peer, b"n,," + first)
            fields = dict(part.split(b"=", 1) for part in reply.split(b","))
            salt, iterations = base64.b64decode(fields[b"s"]), int(fields[b"i"])
            key = salted.get((salt, iterations))
            if key is None:
                key = salted[salt, iterations] = hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)
            client_key = hmac.digest(key, b"Client Key", hash_name)
            last = b"c=biws,r=" + fields[b"r"]
            signature = hmac.digest(
                hashlib.new(hash_name, client_key).digest(), b",".join((first, reply, last)), hash_name
            )
            proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
            if not exchange(peer, last + b",p=" + base64.b64encode(proof)).startswith(b"v="):
                raise LoadError("the broker did not prove that it knows the user")

    return once


def _repeat(once: Callable[[], None], seconds: float) -> dict[str, float]:
    once()
    counts, failures = [0] * THREADS, []
    start = time.perf_counter()

    def work(place: int) -> None:
        try:
            while time.perf_counter() < start + seconds:
                once()
                counts[place] += 1
        except (OSError, LoadError) as error:
            failures.append(error)

    used = resource.getrusage(resource.RUSAGE_SELF)
    threads = [threading.Thread(target=work, args=(place,)) for place in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    if failures:
        raise LoadError(f"{len(failures)} of {THREADS} threads failed: {failures[0]}")
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return {"seconds": elapsed, "records": 0, "bytes": 0, "requests": sum(counts), "client_cpu_s": cpu}


MODES: Final = {"handshakes": _handshake_once, "logins": _login_once}

if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    print(json.dumps(_repeat(MODES[sys.argv[1]](given), given["seconds"])))
