"""The part of a broker that serves client telemetry: connects subscriptions, requests and series.

It is told about closed connections, and reads the subscriptions from the cluster's image when they have changed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Final, NamedTuple

from ottla.broker.telemetry.client_series import ClientSeries
from ottla.broker.telemetry.otlp import InvalidPayloadError, PayloadLimitError, PushedMetric, read_metrics
from ottla.broker.telemetry.subscriptions import TelemetryClient, WantedMetrics, read_subscriptions
from ottla.broker.telemetry.telemetry_state import Push, TelemetryState
from ottla.env.ports import Clock, Disk
from ottla.metadata.image import ClusterImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import BatchTooLargeError, CorruptBatchError
from ottla.records.compression import decompress

_DECOMPRESSED_RATIO_MAX: Final = 8
"""What a payload may decompress to, as a multiple of `telemetry.max.bytes`."""
_POINTS_PER_TURN: Final = 200
"""Data points that are taken before the event loop may do something else."""


class _Read(NamedTuple):
    """What a payload has, up to where it could be read."""

    metrics: list[PushedMetric]
    error: ErrorCode = ErrorCode.NONE
    is_cut: bool = False
    """Whether it has more fields than are read."""


class ClientTelemetry:
    """What clients of one broker push. `is_exposed` says whether /metrics is served: only then are the APIs advertised,
    as Kafka does with its plugins that receive telemetry."""

    def __init__(self, clock: Clock, disk: Disk, image: Callable[[], ClusterImage], *, is_exposed: bool) -> None:
        self.is_exposed: Final = is_exposed
        self.state: Final = TelemetryState()
        self.series: Final = ClientSeries()
        self.pushes: Final[Counter[ErrorCode]] = Counter()
        """Answered pushes by their error code."""
        self._clock = clock
        self._disk = disk
        self._reading = asyncio.Lock()
        """One payload is read at a time, so that telemetry uses one thread and the memory of one payload."""
        self._image = image
        self._seen = image().client_metrics
        self.state.replace_subscriptions(read_subscriptions(self._seen))

    def get(self, client: TelemetryClient, connection: Hashable) -> tuple[ErrorCode, WantedMetrics]:
        """What a client is asked for, or why it must wait."""
        self._refresh()
        return self.state.get(client, connection, self._now_ms())

    async def push(
        self, client: TelemetryClient, connection: Hashable, push: Push, payload: bytes, bytes_max: int
    ) -> ErrorCode:
        """Takes what a client has pushed, if it may."""
        self._refresh()
        error = self.state.push(client, connection, push, self._now_ms(), bytes_max)
        if error is ErrorCode.NONE and payload:
            error = await self._take(client, push.codec, payload, bytes_max * _DECOMPRESSED_RATIO_MAX)
            if error is not ErrorCode.NONE:
                self.state.on_rejected(client.instance_id, error)
        self.pushes[error] += 1
        return error

    def on_closed(self, connection: Hashable) -> None:
        """To be called when a connection was closed."""
        self.state.on_closed(connection)

    def expire(self) -> None:
        """Removes the series of clients that were silent for too long; to be called before they are shown."""
        self.series.expire(self._now_ms())

    async def _take(self, client: TelemetryClient, codec: int, payload: bytes, limit: int) -> ErrorCode:
        async with self._reading:
            # A few kilobytes may take a tenth of a second of CPU time.
            read = await self._disk.in_background(_read, codec, payload, limit)
            if read.error is not ErrorCode.NONE and not read.metrics:
                return read.error
            interval_ms = self.state.interval_ms_of(client.instance_id)
            if not self.series.begin(client, interval_ms, self._now_ms()):
                return ErrorCode.NONE
            points = 0
            for metric in read.metrics:
                for at in range(0, len(metric.points), _POINTS_PER_TURN):
                    part = metric.points[at : at + _POINTS_PER_TURN]
                    self.series.add(client, replace(metric, points=part))
                    points += len(part)
                    if points >= _POINTS_PER_TURN:
                        points = 0
                        await asyncio.sleep(0)
            if read.is_cut:
                self.series.dropped["payload"] += 1
            elif read.error is ErrorCode.NONE:
                self.series.end(client)
            return read.error

    def _refresh(self) -> None:
        subscriptions = self._image().client_metrics
        if subscriptions is not self._seen:
            self._seen = subscriptions
            self.state.replace_subscriptions(read_subscriptions(subscriptions))

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000


def _read(codec: int, payload: bytes, limit: int) -> _Read:
    """Decompresses and reads a payload; runs in a thread."""
    try:
        content = bytes(decompress(codec, payload, limit))
    except BatchTooLargeError:
        return _Read([], ErrorCode.TELEMETRY_TOO_LARGE)
    except CorruptBatchError:
        return _Read([], ErrorCode.INVALID_RECORD)
    metrics: list[PushedMetric] = []
    try:
        metrics.extend(read_metrics(content))
    except PayloadLimitError:
        return _Read(metrics, is_cut=True)
    except InvalidPayloadError:
        return _Read(metrics, ErrorCode.INVALID_RECORD)
    return _Read(metrics)
