"""Values that are text, UTF-8, as one column."""

from typing import Any

import pyarrow as pa

from ottla.registry.serde.arrow.row_decoding import BadValueError, BlockRefusedError


class StringValues:
    """Decodes text to the only field of the struct `kind`."""

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind

    def decode_block(self, values: pa.Array) -> pa.StructArray:
        """Decodes all values at once."""
        try:
            text = values.cast(pa.string())
        except pa.ArrowException as error:
            raise BlockRefusedError(str(error)) from error
        return pa.StructArray.from_arrays([text] if self.type.num_fields else [], fields=list(self.type))

    def is_plausible(self, value: bytes) -> bool:
        """Always true: only decoding shows it."""
        return True

    def decode_row(self, value: bytes) -> dict[str, Any] | None:
        """Decodes one value."""
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            raise BadValueError(f"the value is not UTF-8: {error.reason} at byte {error.start}") from error
        return {each.name: text for each in self.type}
