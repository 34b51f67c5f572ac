"""The error of a login that failed."""

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import DeniedError


class AuthenticationError(DeniedError):
    """The login failed, on either side. The message never contains a secret, and is shown to the peer."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED
