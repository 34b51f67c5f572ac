"""Kafka's JAAS configurations in configs such as sasl.jaas.config: one login module with its options. Pure.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" user_alice="secret";

The syntax is Java's: a class, a control flag, options with values (quoted if they contain anything but letters,
digits and `._-$`), and a semicolon. An error never contains a value, which may be a secret.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ottla.model.errors import InvalidConfigError

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "PLAIN": PLAIN_MODULE,
        "SCRAM-SHA-256": SCRAM_MODULE,
        "SCRAM-SHA-512": SCRAM_MODULE,
        "OAUTHBEARER": OAUTHBEARER_MODULE,
    }
)
"""The login module of each mechanism."""

_USER_PREFIX: Final = "user_"
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<word>[A-Za-z0-9_.$-]+)|"(?P<quoted>(?:[^"\\\r\n]|\\.)*)"|'(?P<single>(?:[^'\\\r\n]|\\.)*)'|(?P<sign>[=;]))"""
)
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|[0-7]{1,3}|.)")
_CONTROL: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass(frozen=True, slots=True)
class JaasModule:
    """A login module and its options."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasModule({self.module})"

    @property
    def username(self) -> str | None:
        """The user that this side logs in as."""
        return self.options.get("username")

    @property
    def password(self) -> str | None:
        """That user's password."""
        return self.options.get("password")

    @property
    def users(self) -> dict[str, str]:
        """The users that may log in with PLAIN, and their passwords: the options `user_NAME`."""
        return {
            name.removeprefix(_USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(_USER_PREFIX)
        }


def parse_jaas(text: str) -> JaasModule:
    """Raises `InvalidConfigError` with the part that is wrong, never with a value."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[0][0] != "word":
        raise InvalidConfigError("a JAAS configuration is: <login module class> required <options>;")
    module, flag = tokens[0][1], tokens[1][1]
    if flag.lower() not in _FLAGS:
        raise InvalidConfigError(f"JAAS: the login module {module} must be followed by required")
    if tokens[-1] != ("sign", ";"):
        raise InvalidConfigError(f"JAAS: the options of {module} must end with a semicolon")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    for at in range(0, len(rest), 3):
        group = rest[at : at + 3]
        kinds = tuple(kind for kind, _ in group)
        if len(group) < 3 or kinds[0] != "word" or group[1] != ("sign", "=") or kinds[2] == "sign":
            after = f" after {list(options)[-1]}" if options else ""
            raise InvalidConfigError(f'JAAS: {module}: expected name="value"{after}')
        name = group[0][1]
        if name in options:
            raise InvalidConfigError(f"JAAS: {module}: the option {name} is given twice")
        options[name] = group[2][1]
    return JaasModule(module, MappingProxyType(options))


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        token = _TOKEN.match(text, at)
        if token is None:
            raise InvalidConfigError(
                f"JAAS: cannot be read after {len(found)} words; quote values with special characters"
            )
        kind = token.lastgroup or ""
        value = token[kind]
        found.append(("value", _unescaped(value)) if kind in ("quoted", "single") else (kind, value))
        at = token.end()
    return found


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    escaped = found[1]
    if escaped[0] == "u" and len(escaped) == 5:
        return chr(int(escaped[1:], 16))
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _CONTROL.get(escaped, escaped)
