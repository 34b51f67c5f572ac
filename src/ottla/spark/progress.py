"""What a streaming query is doing, read from Spark's progress events: rates, durations, and how far behind each topic
is.

Spark's event has rows and times; offsets are those of the source's own texts (`offset_text.py`). How far behind a
topic is: the end of each partition when the batch was planned, less the batch's end. Bytes cannot be counted where
Spark reports: they are estimated as offsets read times the average size of a record in the log, compressed as it is
there, which the source learns from the brokers' log directories. Pure; `group_offsets_listener.py` acts on what is
found here.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.model.ids import TopicPartition
from ottla.spark.source.offset_text import EXTRA, BadCheckpointError, StreamOffset, read_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProgress:
    """One topic in one micro-batch."""

    offsets_read: int
    """Offsets between the batch's start and its end; more than rows where the log has gaps or markers."""
    offsets_behind: int | None
    """Offsets after the batch's end when it was planned; None if Spark did not say."""
    bytes_read: float | None
    """An estimate; None if the average size of a record is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEnd:
    """Up to where a consumer group has read with this batch."""

    group: str
    bootstrap: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """One progress event of a query."""

    query_id: str
    run_id: str
    name: str | None
    timestamp: str
    """When the batch began, as Spark writes it."""
    batch_id: int
    rows: int
    rows_arriving_per_second: float
    """Rows of this batch by the time since the one before began."""
    rows_processed_per_second: float
    batch_ms: int
    phases_ms: Mapping[str, int]
    """The parts of the batch's duration, by Spark's names."""
    state_rows: int
    """Rows that stateful operators keep."""
    topics: Mapping[str, TopicProgress] = field(default_factory=dict)
    groups: tuple[GroupEnd, ...] = ()

    @property
    def offsets_behind(self) -> int | None:
        """Over all topics; None if it is not known of one."""
        found: int | None = _sum(each.offsets_behind for each in self.topics.values())
        return found

    @property
    def bytes_per_second(self) -> float | None:
        """Log bytes by the time that the batch took: an estimate; None if not known."""
        found = _sum(each.bytes_read for each in self.topics.values())
        return None if found is None or self.batch_ms <= 0 else found * 1000 / self.batch_ms


def stream_progress(progress: Any) -> StreamProgress:
    """Reads `query.lastProgress`, a listener's event, its dictionary or its JSON text.

    Sources that are not topics have no part in `topics`. Raises ValueError for anything else.
    """
    event = _as_mapping(progress)
    try:
        phases = {str(name): int(span) for name, span in (event.get("durationMs") or {}).items()}
        sources = [_read_source(each) for each in event.get("sources") or ()]
        return StreamProgress(
            query_id=str(event["id"]),
            run_id=str(event["runId"]),
            name=event.get("name"),
            timestamp=str(event["timestamp"]),
            batch_id=int(event["batchId"]),
            rows=int(event.get("numInputRows") or 0),
            rows_arriving_per_second=_rate(event.get("inputRowsPerSecond")),
            rows_processed_per_second=_rate(event.get("processedRowsPerSecond")),
            batch_ms=int(event.get("batchDuration") or phases.get("triggerExecution", 0)),
            phases_ms=phases,
            state_rows=sum(int(each.get("numRowsTotal") or 0) for each in event.get("stateOperators") or ()),
            topics=_merged(each for each in sources if each is not None),
            groups=tuple(each.group for each in sources if each is not None and each.group is not None),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the progress of a streaming query: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    topics: Mapping[str, TopicProgress]
    group: GroupEnd | None


def _read_source(source: Mapping[str, Any]) -> _Source | None:
    end = _offset(source.get("endOffset"))
    if end is None:
        return None
    start = _offset(source.get("startOffset"))
    newest = _offset(source.get("latestOffset"))
    sizes = _record_bytes(source.get("latestOffset"))
    first = {**(start.offsets if start is not None else {}), **end.first}
    read = _by_topic(
        {each: max(offset - first[each], 0) if each in first else None for each, offset in end.offsets.items()}
    )
    behind = _by_topic(
        {each: max(newest.offsets.get(each, at) - at, 0) if newest else None for each, at in end.offsets.items()}
    )
    topics = {
        topic: TopicProgress(
            offsets_read=count or 0,
            offsets_behind=behind[topic],
            bytes_read=count * sizes[topic] if count is not None and topic in sizes else None,
        )
        for topic, count in read.items()
    }
    return _Source(topics=topics, group=_group(end))


def _group(end: StreamOffset) -> GroupEnd | None:
    if end.group is None or end.bootstrap is None:
        return None
    return GroupEnd(group=end.group, bootstrap=end.bootstrap, offsets=end.offsets)


def _offset(text: Any) -> StreamOffset | None:
    """None for what other sources write: numbers, file logs, nothing at all."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
        return read_offset(found) if isinstance(found, Mapping) else None
    except (BadCheckpointError, ValueError):
        return None


def _record_bytes(text: Any) -> Mapping[str, float]:
    try:
        found = json.loads(text) if isinstance(text, str) else text
        sizes = found[EXTRA]["record_bytes"]
        return {str(topic): float(size) for topic, size in sizes.items()}
    except (TypeError, KeyError, ValueError, AttributeError):
        return {}


def _by_topic(counts: Mapping[TopicPartition, int | None]) -> dict[str, int | None]:
    """Sums over partitions; unknown for a topic if unknown for one of them."""
    found: dict[str, int | None] = {}
    for partition, count in counts.items():
        before = found.get(partition.topic, 0)
        found[partition.topic] = None if count is None or before is None else before + count
    return found


def _merged(sources: Iterable[_Source]) -> dict[str, TopicProgress]:
    """A query may read one topic twice: then its work counts twice, and the part that is further behind."""
    found: dict[str, TopicProgress] = {}
    for source in sources:
        for topic, more in source.topics.items():
            one = found.get(topic)
            if one is None:
                found[topic] = more
                continue
            behind = [each for each in (one.offsets_behind, more.offsets_behind) if each is not None]
            found[topic] = TopicProgress(
                offsets_read=one.offsets_read + more.offsets_read,
                offsets_behind=max(behind) if len(behind) == 2 else None,
                bytes_read=_sum((one.bytes_read, more.bytes_read)),
            )
    return found


def _sum(numbers: Iterable[Any]) -> Any:
    found = list(numbers)
    return None if not found or None in found else sum(found)


def _rate(number: Any) -> float:
    """Spark writes "NaN" and "Infinity" where a division had nothing to divide."""
    try:
        found = float(number)
    except (TypeError, ValueError):
        return 0.0
    return found if 0 <= found < float("inf") else 0.0


def _as_mapping(progress: Any) -> Mapping[str, Any]:
    text = progress if isinstance(progress, str) else getattr(progress, "json", None)
    found = json.loads(text) if isinstance(text, str) else progress
    if not isinstance(found, Mapping):
        raise ValueError(f"{type(progress).__name__} is not the progress of a streaming query")
    return found
