"""The messages of a SCRAM exchange (RFC 5802), read as strictly as Kafka reads them. Pure.

Only the gs2 flag `n` is accepted: there is no channel binding. User names are ASCII, with `=2C` for a comma and `=3D`
for an equals sign.
"""

import base64
import binascii
import re
from typing import Final, NamedTuple

from ottla.security.sasl.authentication_error import AuthenticationError

MESSAGE_BYTES_MAX: Final = 16 * 1024
"""No message is longer: names, nonces and proofs are short."""
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"[A-Za-z0-9+/]+={0,2}"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS})),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class ClientFirst(NamedTuple):
    """The client's first message. `bare` is the part that is signed."""

    name: str
    authzid: str
    """Empty if there is none."""
    nonce: str
    extensions: dict[str, str]
    bare: str


class BrokerFirst(NamedTuple):
    """The broker's first message."""

    nonce: str
    salt: bytes
    iterations: int
    text: str

    @classmethod
    def of(cls, nonce: str, salt: bytes, iterations: int) -> "BrokerFirst":
        """The message with its text."""
        return cls(nonce, salt, iterations, f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}")


class ClientFinal(NamedTuple):
    """The client's last message. `bare` is the part that is signed."""

    nonce: str
    proof: bytes
    bare: str


def sasl_name(name: str) -> str:
    """A user name as it is written in a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _username(sasl_name: str) -> str:
    return sasl_name.replace("=2C", ",").replace("=3D", "=")


def read_client_first(message: bytes) -> ClientFirst:
    """Raises `AuthenticationError`."""
    found = _match(_CLIENT_FIRST, message)
    extensions: dict[str, str] = {}
    for pair in found["extensions"].split(",")[1:]:
        key, _, value = pair.partition("=")
        if key in extensions:
            raise _malformed()
        extensions[key] = value
    return ClientFirst(
        name=_username(found["name"]),
        authzid=_username(found["authzid"] or ""),
        nonce=found["nonce"],
        extensions=extensions,
        bare=found["bare"],
    )


def read_broker_first(message: bytes) -> BrokerFirst:
    """Raises `AuthenticationError`."""
    found = _match(_SERVER_FIRST, message)
    return BrokerFirst(found["nonce"], _decode(found["salt"]), int(found["iterations"]), found[0])


def read_client_final(message: bytes) -> ClientFinal:
    """Raises `AuthenticationError`."""
    found = _match(_CLIENT_FINAL, message)
    return ClientFinal(found["nonce"], _decode(found["proof"]), found["bare"])


def read_broker_final(message: bytes) -> bytes:
    """The broker's signature. Raises `AuthenticationError`, also for an error that the broker reports."""
    found = _match(_SERVER_FINAL, message)
    if found["error"] is not None:
        raise AuthenticationError(f"the broker refused the login: {found['error']}")
    return _decode(found["signature"])


def _match(pattern: re.Pattern[str], message: bytes) -> re.Match[str]:
    if len(message) > MESSAGE_BYTES_MAX or not message.isascii():
        raise _malformed()
    found = pattern.fullmatch(message.decode("ascii"))
    if found is None:
        raise _malformed()
    return found


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise _malformed() from None


def _malformed() -> AuthenticationError:
    return AuthenticationError("malformed SCRAM message")
