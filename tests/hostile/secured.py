"""A broker process whose listeners want a login, and clients that log in on the level of frames.

`admin` may do everything, `mallory` nothing: it is an ordinary user without ACLs. Passwords are the names with `-pw`.
"""

import socket
import ssl
from pathlib import Path
from struct import pack
from typing import Final

from ottla.metadata.configs.authorization_configs import STANDARD_AUTHORIZER
from ottla.protocol.apis import ApiKey
from ottla.testing.certificates import LOOPBACK, CertificateAuthority
from ottla.testing.free_ports import free_port
from tests.broker_process import BrokerProcess
from tests.hostile.sockets import CONNECT_TIMEOUT_S
from tests.wire.exchange import RawConnection, read_response, request_frame

PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
ADMIN: Final = "admin"
MALLORY: Final = "mallory"
FRAME_BYTES_MAX: Final = 524_288
"""The default of sasl.server.max.receive.size."""
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_USERS: Final = " ".join(f'user_{name}="{name}-pw"' for name in ("broker", ADMIN, MALLORY))
_JAAS: Final = f'{_PLAIN} required username="broker" password="broker-pw" {_USERS};'


class SecuredProcess(BrokerProcess):
    """`addresses` has the address of each listener, by protocol."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        authority = CertificateAuthority(folder / "certificates")
        self.addresses = {protocol: f"127.0.0.1:{free_port()}" for protocol in PROTOCOLS}
        self.tls = ssl.create_default_context(cafile=str(authority.file))
        settings = {
            "listeners": ",".join(f"{protocol}://{address}" for protocol, address in self.addresses.items()),
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            **{f"listener.name.{each.lower()}.plain.sasl.jaas.config": _JAAS for each in PROTOCOLS},
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.issue("broker", LOOPBACK)),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "delegation.token.secret.key": "a key of the tests",
            "super.users": f"User:{ADMIN};User:broker",
            # Failed logins are delayed, which is tested elsewhere: here many of them are to be tried.
            "connection.failed.authentication.delay.ms": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        super().__init__(folder, settings=settings)

    def open(self, protocol: str, *, receive_bytes: int | None = None) -> socket.socket:
        """A blocking connection, after the handshake if the listener has TLS, before the login."""
        host, _, port = self.addresses[protocol].rpartition(":")
        opened = socket.socket()
        if receive_bytes is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        opened.settimeout(CONNECT_TIMEOUT_S)
        opened.connect((host, int(port)))
        return self.tls.wrap_socket(opened, server_hostname="localhost") if protocol.endswith("SSL") else opened

    def open_as(self, user: str, protocol: str, *, receive_bytes: int | None = None) -> socket.socket:
        """The same, logged in."""
        opened = self.open(protocol, receive_bytes=receive_bytes)
        try:
            _log_in(opened, user)
        except BaseException:
            opened.close()
            raise
        return opened

    def connection(self, user: str, protocol: str) -> RawConnection:
        """A connection of a user that keeps to the rules."""
        return _Opened(self.open_as(user, protocol))


class _Opened(RawConnection):
    def __init__(self, opened: socket.socket) -> None:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = opened


def handshake_frame(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    """A SaslHandshake."""
    return request_frame(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism})


def authenticate_frame(message: bytes, version: int = 2) -> bytes:
    """A SaslAuthenticate."""
    return request_frame(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": message})


def raw_frame(message: bytes) -> bytes:
    """A message of a mechanism after SaslHandshake v0."""
    return pack(">i", len(message)) + message


def plain_message(user: str, password: str | None = None) -> bytes:
    """The one message of PLAIN."""
    return f"\0{user}\0{user + '-pw' if password is None else password}".encode()


def _log_in(opened: socket.socket, user: str) -> None:
    for api_key, version, frame in (
        (ApiKey.SASL_HANDSHAKE, 1, handshake_frame()),
        (ApiKey.SASL_AUTHENTICATE, 2, authenticate_frame(plain_message(user))),
    ):
        opened.sendall(frame)
        size = int.from_bytes(_exactly(opened, 4), "big")
        _, answer = read_response(api_key, version, _exactly(opened, size))
        assert not answer.error_code, answer


def _exactly(opened: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = opened.recv(size - len(received))
        if not piece:
            raise EOFError("the connection was closed amid a login")
        received += piece
    return bytes(received)
