"""The requests of a SASL login, SaslHandshake and SaslAuthenticate: read, given to the login, and answered."""

from datetime import timedelta
from typing import NamedTuple

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError
from ottla.protocol.apis import SERVED, ApiKey
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
    from ottla.protocol.messages import read_request

    _check_version(ApiKey.SASL_HANDSHAKE, version)
    mechanism = read_request(ApiKey.SASL_HANDSHAKE, version, body).mechanism
    code = session.on_handshake(version, mechanism, now)
    frame = _handshake_frame(version, correlation_id, code, mechanisms)
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
    from ottla.protocol.messages import read_request

    _check_version(ApiKey.SASL_AUTHENTICATE, version)
    message = bytes(read_request(ApiKey.SASL_AUTHENTICATE, version, body).auth_bytes)
    try:
        answer = session.on_message(message, now, now_ms)
    except (AuthenticationError, UnexpectedRequestError) as error:
        frame = _authenticate_frame(version, correlation_id, error.code, str(error))
        return SaslAnswer(frame, str(error))
    lifetime_ms = answer.session_lifetime_ms
    return SaslAnswer(_authenticate_frame(version, correlation_id, ErrorCode.NONE, None, answer.reply, lifetime_ms))


def illegal_state(api_key: int, version: int, correlation_id: int, reason: str) -> SaslAnswer:
    """The response to another request amid the messages of a mechanism, if it has one that Kafka would send."""
    if api_key == ApiKey.SASL_HANDSHAKE and version in SERVED[ApiKey.SASL_HANDSHAKE]:
        return SaslAnswer(_handshake_frame(version, correlation_id, ErrorCode.ILLEGAL_SASL_STATE, ()), reason)
    return SaslAnswer(b"", reason)


def _handshake_frame(version: int, correlation_id: int, code: ErrorCode, mechanisms: tuple[str, ...]) -> bytes:
    from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

    from ottla.protocol.messages import wire_error, write_response

    response = SaslHandshakeResponse(error_code=wire_error(code), mechanisms=mechanisms)
    return write_response(ApiKey.SASL_HANDSHAKE, version, correlation_id, response)


def _authenticate_frame(
    version: int,
    correlation_id: int,
    code: ErrorCode,
    message: str | None,
    reply: bytes = b"",
    lifetime_ms: int = 0,
) -> bytes:
    from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
    from kio.static.primitive import i64Timedelta

    from ottla.protocol.messages import wire_error, write_response

    lifetime = i64Timedelta.parse(timedelta(milliseconds=lifetime_ms))
    response = SaslAuthenticateResponse(
        error_code=wire_error(code), error_message=message, auth_bytes=reply, session_lifetime=lifetime
    )
    return write_response(ApiKey.SASL_AUTHENTICATE, version, correlation_id, response)


def _check_version(api_key: ApiKey, version: int) -> None:
    if version not in SERVED[api_key]:
        raise InvalidRequestError(f"API {api_key} version {version} is not served")
