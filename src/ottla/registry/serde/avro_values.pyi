"""Types and promises of the codec of single Avro values."""

from collections.abc import Callable, Sequence
from typing import Any

class UnusualValueError(Exception):
    """The value may be valid, but is not of the class that is expected for its type."""

class ValueCodec:
    """One type of a schema. Made empty and filled later, because types may contain themselves."""

    def __init__(self, kind: str) -> None: ...
    def fill(
        self,
        *,
        parts: Sequence[ValueCodec] = (),
        names: Sequence[str] = (),
        size: int = 0,
        null_branch: int = -1,
        prepare: Callable[[Any, Any], Any] | None = None,
        restore: Callable[[Any, Any, Any], Any] | None = None,
        schema: Any = None,
    ) -> None:
        """Sets the types inside; names are those of fields or symbols.

        `null_branch` is for unions of null and one other type; other unions are not encoded. `prepare` and `restore`
        convert values of a logical type, whose `schema` they are given.
        """

    def encode(self, value: Any, prefix: bytes) -> bytes:
        """The bytes of a value after a prefix.

        Raises `UnusualValueError` if another encoder must decide, and `ValueError` for a number that is too large or a
        value that is nested too deep.
        """

    def decode(self, data: bytes, start: int) -> Any:
        """The value that begins at a position. Raises `ValueError` for bytes that are not a value of the type."""
