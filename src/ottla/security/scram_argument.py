"""A user with a SCRAM password, as `kafka-storage format --add-scram` takes it. Pure.

    SCRAM-SHA-256=[name=alice,password=secret]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt="base64",saltedpassword="base64"]

Values may be in double quotes, and must be if they contain a comma, a bracket or a quote (`\\"`).
"""

import base64
import binascii
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.model.errors import InvalidConfigError, InvalidRequestError
from ottla.security.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    credential_of_salted,
    make_credential,
)

_WHOLE: Final = re.compile(r"(?P<mechanism>[^=\[\]]+)=\[(?P<pairs>.*)\]", re.DOTALL)
_PAIR: Final = re.compile(r'\s*(?P<key>[a-z]+)=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^",\[\]]*))\s*(?:,|\Z)')
_KEYS: Final = frozenset({"name", "password", "iterations", "salt", "saltedpassword"})


class ScramUser(NamedTuple):
    """A user to be created."""

    mechanism: ScramMechanism
    name: str
    credential: ScramCredential
    password: str | None
    """None if the argument had a salted password."""

    def __repr__(self) -> str:
        return f"ScramUser({self.mechanism}, {self.name!r})"


def parse_scram_user(text: str, random_bytes: Callable[[int], bytes]) -> ScramUser:
    """Raises `InvalidConfigError`, whose message has no value of the argument."""
    whole = _WHOLE.fullmatch(text.strip())
    if whole is None:
        raise _malformed()
    try:
        mechanism = ScramMechanism(whole["mechanism"].strip())
    except ValueError:
        raise InvalidConfigError(f"--add-scram: the mechanism must be {' or '.join(ScramMechanism)}") from None
    found = _pairs(whole["pairs"])
    name, password = found.get("name", ""), found.get("password")
    if not name or not name.isascii() or not name.isprintable():
        raise InvalidConfigError("--add-scram: name is missing or not printable ASCII text")
    if (password is None) == ("saltedpassword" not in found):
        raise InvalidConfigError(f"--add-scram for {name}: write either password or saltedpassword")
    iterations = found.get("iterations", str(ITERATIONS_MIN))
    if not iterations.isdecimal() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise InvalidConfigError(
            f"--add-scram for {name}: iterations must be a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    if password is None and "salt" not in found:
        raise InvalidConfigError(f"--add-scram for {name}: a saltedpassword needs its salt")
    salt = _decoded(name, found["salt"]) if "salt" in found else random_bytes(SALT_BYTES)
    try:
        if password is not None:
            credential = make_credential(mechanism, password, salt=salt, iterations=int(iterations))
        else:
            salted = _decoded(name, found["saltedpassword"])
            credential = credential_of_salted(mechanism, salted, salt, int(iterations))
    except InvalidRequestError as error:
        raise InvalidConfigError(f"--add-scram for {name}: {error}") from None
    return ScramUser(mechanism, name, credential, password)


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None or pair["key"] not in _KEYS or pair["key"] in found:
            raise _malformed()
        quoted = pair["quoted"]
        found[pair["key"]] = pair["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = pair.end()
    return found


def _decoded(name: str, text: str) -> bytes:
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if not content:
        raise InvalidConfigError(f"--add-scram for {name}: salt and saltedpassword must be base64")
    return content


def _malformed() -> InvalidConfigError:
    return InvalidConfigError("--add-scram: write it as SCRAM-SHA-256=[name=alice,password=secret]")
