"""How a stream handles partitions that are new, missing or recreated, and where a micro-batch ends. Pure.

`look` compares the last offset of the stream with the cluster; `next_offset` makes the end of the next micro-batch.
`stream_reader.py` asks the cluster in between.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ottla.model.ids import TopicPartition
from ottla.spark.source.admission import Limits, Offsets, limited_end
from ottla.spark.source.offset_text import BadCheckpointError, StreamOffset, listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """How the partitions differ from those of the last offset."""

    new: frozenset[TopicPartition]
    """To be read from their first offset on: those that the last offset does not have, and recreated ones."""
    added_to_known: frozenset[TopicPartition]
    """New partitions of topics that were read before."""
    losses: tuple[str, ...]
    """What was lost, for messages."""


def look(start: StreamOffset, ends: Offsets, topic_ids: Mapping[str, str], query: str) -> Changes:
    """What changed since `start`. Raises `BadCheckpointError` if it has no topic in common with this query."""
    known = {each.topic for each in start.offsets}
    now = {each.topic for each in ends}
    if known and now and not known & now:
        raise BadCheckpointError(
            f"the checkpoint belongs to a query that reads {', '.join(sorted(known))}, but this query reads "
            f"{', '.join(sorted(now))} ({query}); use another checkpointLocation"
        )
    losses: list[str] = []
    gone = frozenset(start.offsets) - frozenset(ends)
    if gone:
        losses.append(f"{listed(gone)} {'was' if len(gone) == 1 else 'were'} deleted")
    recreated = {
        topic for topic, topic_id in start.topic_ids.items() if topic in topic_ids and topic_ids[topic] != topic_id
    }
    losses += [f"topic {topic} was deleted and recreated" for topic in sorted(recreated)]
    shrunk = [each for each, end in ends.items() if end < start.offsets.get(each, 0) and each.topic not in recreated]
    losses += [
        f"{each} was read up to offset {start.offsets[each]}, but now ends at {ends[each]}" for each in sorted(shrunk)
    ]
    added = frozenset(ends) - frozenset(start.offsets)
    return Changes(
        new=added | {each for each in ends if each.topic in recreated},
        added_to_known=frozenset(each for each in added if each.topic in known and each.topic not in recreated),
        losses=tuple(losses),
    )


def late_losses(changes: Changes, firsts: Offsets) -> list[str]:
    """New partitions that lost records before they were read; `firsts` has their first offsets."""
    return [
        f"the new partition {each} begins at offset {firsts[each]}, not at 0"
        for each in sorted(changes.added_to_known)
        if firsts.get(each, 0) > 0
    ]


def next_offset(
    start: StreamOffset,
    ends: Offsets,
    firsts: Offsets,
    limits: Limits,
    bytes_per_offset: Mapping[TopicPartition, float] | None,
    *,
    pins: bool,
    template: StreamOffset,
) -> StreamOffset | None:
    """The end of the next micro-batch; None if there is nothing to read.

    `firsts` has where new partitions begin. With `pins`, the first batch of a query is made even if it is empty: it
    writes down where the query began, which would be somewhere else after a restart. `template` has what is the same in
    all offsets of the query.
    """
    begins = {**start.offsets, **firsts}
    # A new partition joins once it has records; one that is shorter than before stays at its present end.
    there = {each: end for each, end in ends.items() if each in start.offsets or end > begins.get(each, end)}
    stop = limited_end(begins, there, limits, bytes_per_offset)
    advances = any(stop[each] > begins[each] for each in stop)
    changed = set(stop) != set(start.offsets) or any(stop[each] < start.offsets.get(each, 0) for each in stop)
    if not advances and not changed and not (pins and start.is_initial):
        return None
    pinned = (
        {each: begins[each] for each in stop}
        if start.is_initial
        else {each: first for each, first in firsts.items() if each in stop}
    )
    return replace(template, offsets=stop, first=pinned)


def begins_of(start: StreamOffset, end: StreamOffset) -> dict[TopicPartition, int]:
    """The first offset of each partition in the micro-batch between two offsets."""
    return {**start.offsets, **end.first}
