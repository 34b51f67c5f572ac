"""What is wrong with a filter, and where."""

from ottla.model.errors import InvalidRequestError


class FilterError(InvalidRequestError):
    """A filter that cannot be read. `column` counts from 1; `pointer` shows it below the text."""

    def __init__(self, message: str, text: str, position: int) -> None:
        self.reason = message
        self.text = text
        self.column = position + 1
        super().__init__(f"column {self.column}: {message}")

    @property
    def pointer(self) -> str:
        """The filter, and a line with a caret at the column."""
        return f"{self.text}\n{' ' * (self.column - 1)}^"
