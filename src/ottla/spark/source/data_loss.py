"""Data loss: records that a query should have read are gone. An error, or a warning if the query allows it."""

import logging
from typing import Final

from ottla.model.errors import OttlaError

logger: Final = logging.getLogger("ottla.spark")

_ADVICE: Final = (
    "Records may have been lost: they were deleted before they were read. To continue with the remaining records, set "
    "the option failOnDataLoss to false"
)


class DataLossError(OttlaError):
    """Records were deleted before the query read them; the message says which, and how to go on without them."""


def report_data_loss(what: str, *, fails: bool) -> None:
    """Raises `DataLossError`, or logs a warning."""
    if fails:
        raise DataLossError(f"{what}. {_ADVICE}")
    logger.warning("%s; continuing with the remaining records", what)
