"""The frames of a SASL login, against kio: what one writes the other reads, whatever is odd in it."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.messages import BrokenMessageError, read_request, wire_error, write_request, write_response
from ottla.protocol.sasl_frames import authenticate_frame, handshake_frame, read_auth_bytes, read_mechanism
from ottla.protocol.scan import scan_requests

AUTHENTICATE_VERSIONS = range(SERVED[ApiKey.SASL_AUTHENTICATE].lowest, SERVED[ApiKey.SASL_AUTHENTICATE].highest + 1)
HANDSHAKE_VERSIONS = range(SERVED[ApiKey.SASL_HANDSHAKE].lowest, SERVED[ApiKey.SASL_HANDSHAKE].highest + 1)
CODES = (ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE)


def body_of(api_key: ApiKey, version: int, request: Any) -> memoryview:
    frame = write_request(api_key, version, 7, "client", request)
    ((scanned,), _, _) = scan_requests(bytearray(frame), 0, len(frame), 1 << 24)
    return memoryview(frame)[scanned.body_start : scanned.end]


@pytest.mark.parametrize("version", AUTHENTICATE_VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, 16_381, 16_382, 16_383, 16_384, 40_000])
def test_messages_of_every_length(version: int, size: int) -> None:
    message = bytes(index % 251 for index in range(size))
    body = body_of(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=message))
    assert message == read_auth_bytes(version, body)


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
@pytest.mark.parametrize("mechanism", ["", "PLAIN", "SCRAM-SHA-512", "é" * 40])
def test_mechanisms(version: int, mechanism: str) -> None:
    body = body_of(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism))
    assert mechanism == read_mechanism(version, body)


BODIES = st.binary(max_size=40) | st.builds(
    lambda start, content, end: start + content + end,
    st.sampled_from([b"\0\x05", b"\0\0\0\x05", b"\x06", b"\x86\0", b"\x86\x80\0", b"\xff\xff", b"\xff\xff\xff\xff"]),
    st.sampled_from([b"hello", b"hell", b"\xff\xfe\xfd\xfc\xfb", b"h\0l\0\0"]),
    st.sampled_from([b"", b"\0", b"\x01\x00\x01x", b"\x01\x07\x00", b"more"]),
)


def outcome(read: Any) -> object:
    try:
        return read()
    except BrokenMessageError:
        return BrokenMessageError


@given(version=st.sampled_from(AUTHENTICATE_VERSIONS), body=BODIES)
def test_any_bytes_are_read_as_the_general_codec_reads_them(version: int, body: bytes) -> None:
    view = memoryview(body)
    assert outcome(lambda: bytes(read_request(ApiKey.SASL_AUTHENTICATE, version, view).auth_bytes)) == outcome(
        lambda: read_auth_bytes(version, view)
    )
    if version in HANDSHAKE_VERSIONS:
        assert outcome(lambda: read_request(ApiKey.SASL_HANDSHAKE, version, view).mechanism) == outcome(
            lambda: read_mechanism(version, view)
        )


@pytest.mark.parametrize("version", AUTHENTICATE_VERSIONS)
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(
    ("message", "reply", "lifetime_ms"), [(None, b"", 0), ("wrong: é", b"", 0), (None, b"r=" + b"x" * 200, 3_600_000)]
)
def test_answers_to_messages(
    version: int, code: ErrorCode, message: str | None, reply: bytes, lifetime_ms: int
) -> None:
    expected = SaslAuthenticateResponse(
        error_code=wire_error(code),
        error_message=message,
        auth_bytes=reply,
        session_lifetime=timedelta(milliseconds=lifetime_ms),  # type: ignore[arg-type]
    )
    assert write_response(ApiKey.SASL_AUTHENTICATE, version, 7, expected) == authenticate_frame(
        version, 7, code, message, reply, lifetime_ms
    )


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
@pytest.mark.parametrize("mechanisms", [(), ("PLAIN",), ("SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")])
def test_answers_to_handshakes(version: int, mechanisms: tuple[str, ...]) -> None:
    for code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_SASL_MECHANISM):
        expected = SaslHandshakeResponse(error_code=wire_error(code), mechanisms=mechanisms)
        assert write_response(ApiKey.SASL_HANDSHAKE, version, 7, expected) == handshake_frame(7, code, mechanisms)
