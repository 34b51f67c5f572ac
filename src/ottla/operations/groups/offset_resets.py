"""What the offsets of a group can be reset to, and the new offset of one partition. Pure.

The targets are those of Kafka's own tool: an offset outside of a partition becomes the nearest bound. `reset.py` reads
the offsets that are needed here, and commits the result.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ottla.model.errors import InvalidRequestError, MisuseError
from ottla.model.ids import TopicPartition

_NUMBER: Final = re.compile("[0-9]{1,18}")


class BadResetError(MisuseError):
    """The text is not a target that offsets can be reset to."""


class NothingToShiftError(InvalidRequestError):
    """There is no committed offset to shift."""


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The start offset of each partition."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """The end offset of each partition."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """The committed offset, moved into the bounds of the partition; the end if there is none."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """An offset, the same in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """Forward from the committed offset, or back if negative."""

    count: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record at or after a time, in ms since 1970; the end if there is none."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class ToListed:
    """The offsets that a file lists."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ToGroup:
    """The offsets of another group, in the partitions that it has offsets in; `reset.py` makes them `ToListed`."""

    group_id: str


Target = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime | ToListed


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """The offsets of a partition: committed by the group, its bounds, and the offset found for a time."""

    committed: int | None
    start: int
    end: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReset:
    """The new offset of a partition; `note` says why it differs from the target, or is empty."""

    partition: TopicPartition
    current: int | None
    new: int
    note: str = ""


def plan_reset(target: Target, partition: TopicPartition, facts: PartitionFacts) -> PlannedReset:
    """The new offset of one partition; raises `NothingToShiftError`."""
    wanted, note = _wanted(target, partition, facts)
    new = min(max(wanted, facts.start), facts.end)
    if new > wanted:
        note = f"{wanted} is before the start offset {new}"
    elif new < wanted:
        note = f"{wanted} is after the end offset {new}"
    return PlannedReset(partition=partition, current=facts.committed, new=new, note=note)


def _wanted(target: Target, partition: TopicPartition, facts: PartitionFacts) -> tuple[int, str]:
    match target:
        case ToEarliest():
            return facts.start, ""
        case ToLatest():
            return facts.end, ""
        case ToCurrent():
            return (facts.end, "no committed offset") if facts.committed is None else (facts.committed, "")
        case ToOffset(offset):
            return offset, ""
        case ShiftBy(count):
            if facts.committed is None:
                raise NothingToShiftError(
                    f"{partition}: no committed offset to shift; "
                    "leave the partition out, or pass --to-earliest, --to-latest or --to-offset"
                )
            return facts.committed + count, ""
        case ToTime():
            return (facts.end, "no record at or after that time") if facts.at_time is None else (facts.at_time, "")
        case ToListed(offsets):
            return offsets[partition], ""


def parse_datetime(text: str) -> ToTime:
    """An ISO 8601 time; without a zone it is UTC, as in Kafka's own tool."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadResetError(f"{text!r} is not a valid time; write one such as 2024-05-01T12:00:00.000") from None
    return ToTime(int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def parse_listed(lines: Iterable[str], name: str, group_id: str) -> ToListed:
    """Lines of `topic,partition,offset`, or with the group first; lines of other groups are skipped."""
    offsets: dict[TopicPartition, int] = {}
    for number, fields in enumerate(csv.reader(lines), start=1):
        if not fields:
            continue
        rest = [field.strip() for field in fields]
        if len(rest) == 4 and rest.pop(0) != group_id:
            continue
        if len(rest) != 3 or not rest[0] or not all(_NUMBER.fullmatch(part) for part in rest[1:]):
            raise BadResetError(f"{name}, line {number}: {','.join(fields)!r} is not topic,partition,offset")
        offsets[TopicPartition(rest[0], int(rest[1]))] = int(rest[2])
    if not offsets:
        raise BadResetError(f"{name} has no partitions of group {group_id}; write lines of topic,partition,offset")
    return ToListed(offsets)
