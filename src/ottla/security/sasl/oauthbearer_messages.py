"""The messages of an OAUTHBEARER exchange (RFC 7628), read as strictly as Kafka reads them. Pure."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.security.sasl.authentication_error import AuthenticationError

KVSEP: Final = "\x01"
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_KEY: Final = r"[A-Za-z]+"
_VALUE: Final = r"[\x21-\x7e \t\r\n]*"
_TOKEN: Final = r"[-_.~+/A-Za-z0-9]+=*"  # the syntax of a bearer token, not a secret
_MESSAGE: Final = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:{_KEY}={_VALUE}\x01)*)\x01")
_BEARER: Final = re.compile(rf"(?i:bearer) +(?P<token>{_TOKEN})")


class BearerMessage(NamedTuple):
    """The client's first message."""

    token: str
    authzid: str
    """Empty if there is none."""
    extensions: dict[str, str]

    def __repr__(self) -> str:
        return f"BearerMessage(authzid={self.authzid!r})"


def is_token_text(text: str) -> bool:
    """Whether the text has the syntax of a bearer token."""
    return re.fullmatch(_TOKEN, text) is not None


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raises `AuthenticationError` for a name or value that a message cannot hold."""
    for key, value in extensions.items():
        if key == "auth" or not re.fullmatch(_KEY, key) or not re.fullmatch(_VALUE, value):
            raise AuthenticationError(f"the SASL extension {key!r} is not valid: names are letters, values printable")


def read_bearer_message(message: bytes) -> BearerMessage:
    """Raises `AuthenticationError`."""
    if not message.isascii():
        raise _malformed()
    found = _MESSAGE.fullmatch(message.decode("ascii"))
    if found is None:
        raise _malformed()
    pairs: dict[str, str] = {}
    for pair in found["pairs"].split(KVSEP)[:-1]:
        key, _, value = pair.partition("=")
        if key in pairs:
            raise _malformed()
        pairs[key] = value
    bearer = _BEARER.fullmatch(pairs.pop("auth", ""))
    if bearer is None:
        raise _malformed()
    authzid = (found["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return BearerMessage(bearer["token"], authzid, pairs)


def _malformed() -> AuthenticationError:
    return AuthenticationError("malformed OAUTHBEARER message")
