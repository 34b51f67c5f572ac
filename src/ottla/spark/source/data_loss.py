"""Records that a query should have read and that are gone: told as an error, or as a warning if the query allows it."""

import logging
from typing import Final

from ottla.model.errors import OttlaError

logger: Final = logging.getLogger("ottla.spark")

_ADVICE: Final = (
    "Records may have been lost: they were deleted before they were read. To go on with what is left, set the option "
    "failOnDataLoss to false"
)


class DataLossError(OttlaError):
    """Records are gone before the query has read them; says which, and how to go on without."""


def report_data_loss(what: str, *, fails: bool) -> None:
    """Raises `DataLossError`, or warns."""
    if fails:
        raise DataLossError(f"{what}. {_ADVICE}")
    logger.warning("%s; going on with what is left", what)
