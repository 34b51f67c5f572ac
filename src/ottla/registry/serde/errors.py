"""Errors of the registry's client and of serializers, named by what the caller should do."""

from ottla.model.errors import InvalidRequestError, RetriableError


class RegistryAnswerError(InvalidRequestError):
    """The registry refused a request: `status` of HTTP, and its own `error_code`."""

    def __init__(self, status: int, error_code: int, message: str) -> None:
        super().__init__(f"{message} (error {error_code})")
        self.status = status
        self.error_code = error_code


class RegistryUnavailableError(RetriableError):
    """No registry could be reached, or all of them failed. Try again later."""


class ValueNotSerializableError(InvalidRequestError):
    """The value does not fit its schema, or no schema can be used for it."""


class ValueNotReadableError(InvalidRequestError):
    """The bytes have no schema id, or are not a value of their schema."""
