"""pyarrow for the clients' Arrow parts, or an error that says how to get it: it is an optional part of Ottla.

Every module of this room that needs pyarrow takes it from here, as `pa`.
"""

from ottla.model.errors import MisuseError


class MissingArrowError(MisuseError, ImportError):
    """pyarrow is not installed, and what was asked for needs it: `pip install 'ottla[arrow]'`."""


try:
    import pyarrow as pa
except ImportError as error:
    raise MissingArrowError(
        "tables and ranges (send_table, poll_arrow, poll_table, RangeReader) need pyarrow, which cannot be imported:"
        f" {error}; install it with pip install 'ottla[arrow]'"
    ) from error

__all__ = ["MissingArrowError", "pa"]
