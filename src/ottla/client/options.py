"""The keyword arguments of the client classes: names, types, bounds and defaults.

Each kind of client has a frozen dataclass with its options and their defaults, and a `TypedDict` with the same names
for type checkers. An unknown option is refused with the nearest known name. Options that kafka-python has too are
called the same.
"""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final, TypedDict, TypeVar, get_type_hints

from ottla.client.arguments import mismatch
from ottla.client.network.backoff import Backoff
from ottla.client.security_options import security_of
from ottla.model.errors import MisuseError
from ottla.transport.client_security import ClientSecurity

C = TypeVar("C", bound="ClientConfig")


class OptionError(MisuseError, TypeError):
    """An option of a client is unknown, has the wrong type or is out of range; the message says what is allowed."""


class ClientOptions(TypedDict, total=False):
    """The options of every client; `ClientConfig` documents them."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    socket_connection_setup_timeout_ms: int
    security_protocol: str
    ssl_context: ssl.SSLContext | None
    ssl_check_hostname: bool
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_ciphers: str | None
    sasl_mechanism: str | None
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_delegation_token: bool
    sasl_oauth_token_provider: Any
    security_properties: tuple[tuple[str, str], ...]


def secret() -> Any:
    """A dataclass field for an option that is never shown; None if it is not given."""
    return field(default=None, repr=False, metadata={"is_secret": True})


def option(default: Any = MISSING, *, least: int | None = None, most: int | None = None) -> Any:
    """A dataclass field for a numeric option, with its bounds."""
    return field(default=default, metadata={"least": least, "most": most})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The options of every client."""

    bootstrap_servers: str | Sequence[str] = "localhost:9092"
    """Some of the cluster's brokers, as `host:port`; the client finds the others through them."""
    client_id: str = "ottla"
    """The name of this client in the logs and metrics of brokers."""
    request_timeout_ms: int = option(30_000, least=1)
    """How long the client waits for a response."""
    retry_backoff_ms: int = option(100, least=0)
    retry_backoff_max_ms: int = option(1_000, least=0)
    """The wait before the first retry, and the longest one; it doubles in between, with jitter."""
    metadata_max_age_ms: int = option(300_000, least=0)
    """After how long metadata is refreshed even if nothing failed."""
    socket_connection_setup_timeout_ms: int = option(10_000, least=1)
    """How long opening a connection may take."""
    security_protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL: whether connections are encrypted, and whether they log in."""
    ssl_context: ssl.SSLContext | None = None
    """Used as it is, instead of the other `ssl_` options."""
    ssl_check_hostname: bool = True
    """Whether the host name must be in the broker's certificate."""
    ssl_cafile: str | None = None
    """A PEM file with the certificates that are trusted; None for those that the system trusts."""
    ssl_certfile: str | None = None
    """A PEM file with this client's certificate, for brokers that ask for one."""
    ssl_keyfile: str | None = None
    """A PEM file with the private key of that certificate; None if it is in the same file."""
    ssl_password: str | None = secret()
    """The password of an encrypted private key."""
    ssl_ciphers: str | None = None
    """The ciphers of TLS 1.2 that are allowed, in OpenSSL's syntax."""
    sasl_mechanism: str | None = None
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."""
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = secret()
    """The user of PLAIN and SCRAM."""
    sasl_delegation_token: bool = False
    """Whether user name and password are the id and the HMAC of a delegation token; for SCRAM."""
    sasl_oauth_token_provider: Any = field(default=None, repr=False, metadata={"is_secret": True})
    """For OAUTHBEARER: a function that returns a token, or a coroutine function, or an object with such a `token`."""

    security_properties: tuple[tuple[str, str], ...] = field(default=(), repr=False, metadata={"is_secret": True})
    """Security configs by Kafka's names, such as sasl.jaas.config, instead of the options above. As text they can be
    sent to other processes; files are read where a client connects."""

    @property
    def security(self) -> ClientSecurity | None:
        """How connections are encrypted and log in; None for PLAINTEXT. Reads files. Raises `MisuseError`."""
        return security_of(self)

    @property
    def backoff(self) -> Backoff:
        """The waits between retries."""
        return Backoff(first_ms=self.retry_backoff_ms, most_ms=max(self.retry_backoff_ms, self.retry_backoff_max_ms))


def configured(kind: type[C], client: str, given: Mapping[str, Any]) -> C:
    """The config of a client from its keyword arguments; error messages name the client. Raises `OptionError`."""
    known = {each.name: each for each in fields(kind)}
    hints = get_type_hints(kind)
    for name, value in given.items():
        if name not in known:
            near = get_close_matches(name.lower().replace(".", "_"), known, n=1)
            advice = f"did you mean {near[0]}?" if near else f"its options are {', '.join(sorted(known))}"
            raise OptionError(f"{client} has no option {name}; {advice}")
        _check(client, known[name], hints[name], value)
    return kind(**given)


_TEXT_BYTES_MAX: Final = 32_767
"""The longest string in Kafka's protocol."""


def _check(client: str, known: "Field[Any]", hint: Any, value: object) -> None:
    problem = mismatch(hint, value, known.name)
    if problem is not None:
        if known.metadata.get("is_secret"):
            problem = f"{known.name} has the wrong type: {type(value).__name__}"
        raise OptionError(f"{client}: {problem}")
    if isinstance(value, str):
        _check_text(client, known.name, value)
    least, most = known.metadata.get("least"), known.metadata.get("most")
    if isinstance(value, int | float):
        if least is not None and value < least:
            raise OptionError(f"{client}: {known.name} must be at least {least}, not {value}")
        if most is not None and value > most:
            raise OptionError(f"{client}: {known.name} must be at most {most}, not {value}")


def _check_text(client: str, name: str, value: str) -> None:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise OptionError(f"{client}: {name} cannot be encoded as UTF-8: {value!r}") from None
    if size > _TEXT_BYTES_MAX:
        raise OptionError(f"{client}: {name} must be at most {_TEXT_BYTES_MAX} bytes as UTF-8, not {size}")
