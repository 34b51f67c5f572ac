"""The requests of a SASL login, SaslHandshake and SaslAuthenticate: read, given to the login, and answered."""

from typing import NamedTuple

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError
from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.sasl_frames import authenticate_frame, handshake_frame, read_auth_bytes, read_mechanism
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.session import LoginSession, UnexpectedRequestError


class SaslAnswer(NamedTuple):
    """A response frame, and why the login failed with it."""

    frame: bytes
    failure: str | None = None
    """For the broker's log; None if the login goes on or is complete."""


def answer_handshake(
    session: LoginSession, version: int, correlation_id: int, body: memoryview, mechanisms: tuple[str, ...], now: float
) -> SaslAnswer:
    """Raises `InvalidRequestError` if the connection must close without a response."""
    _check_version(ApiKey.SASL_HANDSHAKE, version)
    mechanism = read_mechanism(version, body)
    code = session.on_handshake(version, mechanism, now)
    frame = handshake_frame(correlation_id, code, mechanisms)
    match code:
        case ErrorCode.NONE | ErrorCode.ILLEGAL_SASL_STATE:
            return SaslAnswer(frame)
        case ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            return SaslAnswer(frame, f"the mechanism {mechanism[:100]!r} is not enabled")
    return SaslAnswer(frame, f"a re-authentication must use {session.mechanism} and SaslHandshake v1")


def answer_authenticate(
    session: LoginSession, version: int, correlation_id: int, body: memoryview, now: float, now_ms: int
) -> SaslAnswer:
    """Raises `InvalidRequestError` if the connection must close without a response."""
    _check_version(ApiKey.SASL_AUTHENTICATE, version)
    message = read_auth_bytes(version, body)
    try:
        answer = session.on_message(message, now, now_ms)
    except (AuthenticationError, UnexpectedRequestError) as error:
        frame = authenticate_frame(version, correlation_id, error.code, str(error))
        return SaslAnswer(frame, str(error))
    lifetime_ms = answer.session_lifetime_ms
    return SaslAnswer(authenticate_frame(version, correlation_id, ErrorCode.NONE, None, answer.reply, lifetime_ms))


def illegal_state(api_key: int, version: int, correlation_id: int, reason: str) -> SaslAnswer:
    """The response to another request during the SASL exchange, if it has one that Kafka would send."""
    if api_key == ApiKey.SASL_HANDSHAKE and version in SERVED[ApiKey.SASL_HANDSHAKE]:
        return SaslAnswer(handshake_frame(correlation_id, ErrorCode.ILLEGAL_SASL_STATE, ()), reason)
    return SaslAnswer(b"", reason)


def _check_version(api_key: ApiKey, version: int) -> None:
    if version not in SERVED[api_key]:
        raise InvalidRequestError(f"API {api_key} version {version} is not served")
