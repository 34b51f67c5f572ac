"""How a client's connections are encrypted and log in: `ClientSecurity`, and the TLS handshake of a client.

The client's mechanisms are in `ottla.security.sasl`; `client_connection.py` sends their messages.
"""

import asyncio
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.env.ports import Socket
from ottla.model.errors import DeniedError, MisuseError
from ottla.security.sasl.client import ClientMechanism, PlainClient
from ottla.security.sasl.oauthbearer_client import OAuthBearerClient, TokenProvider
from ottla.security.sasl.scram_client import ScramClient
from ottla.security.scram_credential import ScramMechanism
from ottla.security.security_protocol import SecurityProtocol
from ottla.transport.tls import TlsSocket

SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_NONCE_BYTES: Final = 24


class TlsError(DeniedError):
    """The TLS handshake failed: one side does not accept the other. The message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientSecurity:
    """What a connection to a broker needs besides the address. `PLAINTEXT` needs nothing."""

    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    ssl_context: ssl.SSLContext | None = None
    """For SSL and SASL_SSL. It decides which certificates are trusted, and whether host names are checked."""
    server_name: str | None = None
    """The host name in the broker's certificate; None for the one that is connected to."""
    sasl: Callable[[], ClientMechanism] | None = None
    """For SASL_PLAINTEXT and SASL_SSL: makes the mechanism of one login."""

    def __post_init__(self) -> None:
        if self.security_protocol.is_encrypted != (self.ssl_context is not None):
            raise MisuseError(f"{self.security_protocol}: an SSL context is required with TLS, and not allowed without")
        if self.security_protocol.has_login != (self.sasl is not None):
            raise MisuseError(
                f"{self.security_protocol}: a SASL mechanism is required with SASL, and not allowed without"
            )


async def encrypted(socket: Socket, context: ssl.SSLContext, host: str) -> TlsSocket:
    """The socket after a TLS handshake with a broker of this name. Raises `ssl.SSLError`, or another OSError.

    Cancelling it, as a timeout does, closes the socket.
    """
    wrapped = TlsSocket(socket, context, server_side=False, host=host)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_readable() -> None:
        if done.done():
            return
        try:
            if wrapped.shake_hands():
                done.set_result(None)
        except OSError as error:
            done.set_exception(error)

    wrapped.on_readable(on_readable)
    try:
        await done
    except BaseException:
        wrapped.close()
        raise
    wrapped.on_readable(None)
    return wrapped


def sasl_login(
    mechanism: str,
    *,
    username: str | None = None,
    password: str | None = None,
    is_token: bool = False,
    token_provider: TokenProvider | None = None,
    extensions: Mapping[str, str] | None = None,
) -> Callable[[], ClientMechanism]:
    """Makes the mechanism of each login. Raises `MisuseError` if the mechanism is unknown or something is missing.

    `is_token` says that user name and password are the id and the HMAC of a delegation token.
    """
    match mechanism:
        case "OAUTHBEARER":
            if token_provider is None:
                raise MisuseError("OAUTHBEARER needs a token provider; set sasl_oauth_token_provider")
            return lambda: OAuthBearerClient(token_provider, extensions=extensions)
        case "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512":
            if not username or not password:
                raise MisuseError(
                    f"{mechanism} needs a user name and a password; set sasl_plain_username and sasl_plain_password, or"
                    " username and password in sasl.jaas.config"
                )
            if mechanism == "PLAIN":
                return lambda: PlainClient(username, password)
            return lambda: ScramClient(
                ScramMechanism(mechanism), username, password, new_nonce=_new_nonce, is_token=is_token
            )
    raise MisuseError(f"the SASL mechanism {mechanism!r} is not supported; use one of {', '.join(SASL_MECHANISMS)}")


def _new_nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)
