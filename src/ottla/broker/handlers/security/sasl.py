"""SaslHandshake and SaslAuthenticate where no login is expected: without SASL, or in a session that does not expire.

Logins do not get here: `ottla.transport.authentication` answers them before there is a connection.
"""

from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.model.error_codes import ErrorCode
from ottla.protocol.messages import wire_error

_ILLEGAL_STATE = wire_error(ErrorCode.ILLEGAL_SASL_STATE)


def sasl_handshake(services: Services, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """ILLEGAL_SASL_STATE, as Kafka answers."""
    return SaslHandshakeResponse(error_code=_ILLEGAL_STATE, mechanisms=())


def sasl_authenticate(
    services: Services, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """ILLEGAL_SASL_STATE, as Kafka answers."""
    return SaslAuthenticateResponse(
        error_code=_ILLEGAL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
