"""Errors that services raise, and that have a page of their own besides those of the clients."""

from ottla.model.errors import InvalidRequestError


class NotFoundError(InvalidRequestError):
    """The page is about something that does not exist: status 404."""


class InvalidFormError(InvalidRequestError):
    """A form has a field that cannot be used; the message says which, and what is allowed. Status 422."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field
        """The name of the field, so that the form can show the message beside it; "" if it is not about one field."""
