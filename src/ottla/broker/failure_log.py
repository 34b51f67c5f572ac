"""Logs failures of the disk, once for each message: a broken disk fails each request in the same way."""

import logging
from typing import Final

from ottla.model.errors import OttlaError, RemovedLogError

_LOGGER: Final = logging.getLogger(__name__)
_REMEMBERED_MAX: Final = 1000


class FailureLog:
    """Remembers which messages were logged."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def report(self, error: OttlaError) -> None:
        """Logs an error unless the same message was logged before; not that a log was deleted while it was used."""
        if isinstance(error, RemovedLogError):
            return
        text = str(error)
        if text not in self._logged:
            if len(self._logged) >= _REMEMBERED_MAX:
                self._logged.clear()
            self._logged.add(text)
            _LOGGER.error("%s", text)
