"""Where a group's offsets are reset to, as people say it, and what that means for one partition. Pure.

The words and their meaning are those of Kafka's own tool: an offset outside of a partition becomes its nearest bound.
`resetting.py` asks for what is needed here, and commits what comes out.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from ottla.model.errors import InvalidRequestError, MisuseError
from ottla.model.ids import TopicPartition


class BadResetError(MisuseError):
    """What was written says nothing that offsets could be reset to."""


class NothingToShiftError(InvalidRequestError):
    """An offset shall move on from where none is."""


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The first record that is still there."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """Behind the last record that is there now."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """What is committed, so that bounds alone can change it; the end where nothing is."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """An offset, the same in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """So many records on, or back if negative."""

    count: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record that is at least as young, in ms since 1970; the end where none is."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class ToListed:
    """An offset for each partition, as a file lists them."""

    offsets: Mapping[TopicPartition, int]


Target = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime | ToListed


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """What is known of a partition: what the group committed, its bounds, and what a time was looked up as."""

    committed: int | None
    start: int
    end: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReset:
    """What one partition's offset becomes; `note` says why it is not what was asked for, or is empty."""

    partition: TopicPartition
    current: int | None
    new: int
    note: str = ""


def plan_reset(target: Target, partition: TopicPartition, facts: PartitionFacts) -> PlannedReset:
    """What becomes of one partition; raises `NothingToShiftError`."""
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
    """A moment as ISO 8601 writes it; without a zone it is UTC, as for Kafka's own tool."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadResetError(f"{text!r} is not a valid time; write one such as 2024-05-01T12:00:00.000") from None
    return ToTime(int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def parse_listed(lines: Iterable[str], name: str, group_id: str) -> ToListed:
    """Lines of `topic,partition,offset`, or with the group in front, where other groups' lines are passed over."""
    offsets: dict[TopicPartition, int] = {}
    for number, fields in enumerate(csv.reader(lines), start=1):
        if not fields:
            continue
        rest = [field.strip() for field in fields]
        if len(rest) == 4 and rest.pop(0) != group_id:
            continue
        if len(rest) != 3 or not rest[0] or not all(part.isascii() and part.isdecimal() for part in rest[1:]):
            raise BadResetError(f"{name}, line {number}: {','.join(fields)!r} is not topic,partition,offset")
        offsets[TopicPartition(rest[0], int(rest[1]))] = int(rest[2])
    if not offsets:
        raise BadResetError(f"{name} has no partitions of group {group_id}; write lines of topic,partition,offset")
    return ToListed(offsets)
