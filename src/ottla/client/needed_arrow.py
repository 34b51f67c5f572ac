"""Imports pyarrow, which is optional, or raises an error that says how to install it.

Every module of the clients that needs pyarrow imports `pa` from here.
"""

from ottla.model.errors import MisuseError


class MissingArrowError(MisuseError, ImportError):
    """pyarrow is needed and not installed: `pip install 'ottla[arrow]'`."""


try:
    import pyarrow as pa
except ImportError as error:
    raise MissingArrowError(
        "tables and ranges (send_table, poll_arrow, poll_table, RangeReader) need pyarrow, which cannot be imported:"
        f" {error}; install it with pip install 'ottla[arrow]'"
    ) from error

__all__ = ["MissingArrowError", "pa"]
