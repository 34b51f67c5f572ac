"""Interceptors: they see records before the program does, and offsets after they were committed.

An interceptor has any of `on_consume(records)`, which returns the records to pass on, `on_commit(offsets)` and
`close()`. An error in one is logged, and the next one gets the records unchanged: it does not break the consumer.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.client.fetch.fetch_plan_state import Records
from ottla.client.values import OffsetAndMetadata
from ottla.model.ids import TopicPartition

log: Final = logging.getLogger(__name__)


class ConsumerInterceptors:
    """A chain of interceptors, called in order."""

    def __init__(self, chain: Sequence[Any]) -> None:
        self._chain = tuple(chain)

    def on_consume(self, records: Records) -> Records:
        """The records that the program gets."""
        for interceptor in self._chain:
            hook = getattr(interceptor, "on_consume", None)
            if hook is not None:
                try:
                    records = hook(records)
                except Exception:
                    log.exception("interceptor %r failed in on_consume", interceptor)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tells all that offsets were committed."""
        for interceptor in self._chain:
            hook = getattr(interceptor, "on_commit", None)
            if hook is not None:
                try:
                    hook(dict(offsets))
                except Exception:
                    log.exception("interceptor %r failed in on_commit", interceptor)

    def close(self) -> None:
        """Closes all."""
        for interceptor in self._chain:
            hook = getattr(interceptor, "close", None)
            if hook is not None:
                try:
                    hook()
                except Exception:
                    log.exception("interceptor %r failed in close", interceptor)

    def __bool__(self) -> bool:
        return bool(self._chain)
