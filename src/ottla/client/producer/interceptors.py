"""Code of others around every record: called in the order given, and never able to break a send."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ottla.client.producer.deliveries import Delivery
from ottla.client.values import Header, RecordMetadata

_LOG = logging.getLogger("ottla.client.producer.async_producer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRecord:
    """A record as the program sends it, before the serializers."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Sequence[Header] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """Does nothing; subclasses override what they need. What they raise is logged, and the record goes its way."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """May change the record, before it is serialized; in the thread that sends."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, exception: Exception | None) -> None:
        """The record was written, or given up; in the producer's own thread, which must not wait."""

    def close(self) -> None:
        """The producer is closed."""


class InterceptorChain:
    """All interceptors of one producer."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record as the last one leaves it; one that fails passes on what it was given."""
        for each in self._interceptors:
            try:
                made: object = each.on_send(record)
            except Exception:
                _log(each, "on_send")
                continue
            if isinstance(made, ProducerRecord):
                record = made
            else:
                _LOG.error(
                    "%s.on_send returned %s, and must return a ProducerRecord; the record is sent without its changes",
                    type(each).__name__,
                    type(made).__name__,
                )
        return record

    def watch(self, delivery: Delivery) -> None:
        """Has all of them told what becomes of it."""
        delivery.add_callback(self._on_written).add_errback(self.on_refused)

    def on_refused(self, error: Exception) -> None:
        """A record was given up, perhaps before it was ever sent."""
        self._acknowledge(None, error)

    def _on_written(self, metadata: RecordMetadata) -> None:
        self._acknowledge(metadata, None)

    def _acknowledge(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        for each in self._interceptors:
            try:
                each.on_acknowledgement(metadata, error)
            except Exception:
                _log(each, "on_acknowledgement")

    def close(self) -> None:
        """Closes them all."""
        for each in self._interceptors:
            try:
                each.close()
            except Exception:
                _log(each, "close")


def _log(interceptor: ProducerInterceptor, method: str) -> None:
    _LOG.exception("%s.%s of a producer failed", type(interceptor).__name__, method)
