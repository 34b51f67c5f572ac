"""Interceptors: user code that is called for every record. Its errors are logged and never fail a send."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ottla.client.producer.batching.deliveries import Delivery
from ottla.client.values import Header, RecordMetadata

_LOG = logging.getLogger("ottla.client.producer.async_producer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRecord:
    """A record as the program sends it, before serialization."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Sequence[Header] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """The base class of interceptors; override what you need. What a method raises is logged.

    An object of another class is an interceptor too if it has `on_send` or `on_acknowledgement`.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called before a record is serialized, in the thread that sends it. Returns the record to send."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, exception: Exception | None) -> None:
        """Called when a record is written or failed, in the thread of the producer, which must not block."""

    def close(self) -> None:
        """Called when the producer is closed."""


class InterceptorChain:
    """The interceptors of one producer, called in the order given."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._sending = _having("on_send", interceptors)
        self._acknowledging = _having("on_acknowledgement", interceptors)
        self._closing = _having("close", interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record as the last interceptor returns it; one that fails is skipped."""
        for each in self._sending:
            try:
                made: object = each.on_send(record)
            except Exception:
                _log(each, "on_send")
                continue
            if isinstance(made, ProducerRecord):
                record = made
            else:
                _LOG.error(
                    "%s.on_send must return a ProducerRecord, not %s; the record is sent without its changes",
                    type(each).__name__,
                    type(made).__name__,
                )
        return record

    def watch(self, delivery: Delivery) -> None:
        """Calls `on_acknowledgement` when the delivery is done."""
        delivery.add_callback(self._on_written).add_errback(self.on_refused)

    def on_refused(self, error: Exception) -> None:
        """Calls `on_acknowledgement` for a record that failed, or was refused by `send`."""
        self._acknowledge(None, error)

    def _on_written(self, metadata: RecordMetadata) -> None:
        self._acknowledge(metadata, None)

    def _acknowledge(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        for each in self._acknowledging:
            try:
                each.on_acknowledgement(metadata, error)
            except Exception:
                _log(each, "on_acknowledgement")

    def close(self) -> None:
        """Closes all interceptors."""
        for each in self._closing:
            try:
                each.close()
            except Exception:
                _log(each, "close")


def _having(method: str, interceptors: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(each for each in interceptors if hasattr(each, method))


def _log(interceptor: object, method: str) -> None:
    _LOG.exception("interceptor %s.%s failed", type(interceptor).__name__, method)
