"""Offsets in options and checkpoints: JSON of topics, partitions and numbers. Pure.

A stream's offset has the form of Spark's Kafka connector, `{"orders":{"0":17,"1":4}}`, with one more key that no topic
can have, `EXTRA`, for what a restart needs. Spark compares offsets as strings, so the same offset is always written in
the same order. Which offsets a batch gets is decided in `admission.py` and `span_plan.py`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.client.options import OptionError
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition

EXTRA: Final = "@ottla"
EARLIEST: Final = -2
LATEST: Final = -1


class BadCheckpointError(MisuseError):
    """An offset in a checkpoint is not one of this source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """How far a stream has read: up to `offsets`, exclusive."""

    offsets: Mapping[TopicPartition, int]
    first: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the batch that ends here begins in partitions whose beginning the previous offset does not tell: in the
    first batch, where "latest" may have moved since, and in new partitions."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The topic ids: a topic that was deleted and recreated has another one."""
    group: str | None = None
    """The consumer group to which the stream commits."""
    bootstrap: str | None = None
    """The bootstrap servers of that group; only with a group."""
    is_initial: bool = False
    """Whether this is the start of a new query."""

    def as_json(self) -> dict[str, Any]:
        """The JSON for Spark; equal offsets give equal strings."""
        found: dict[str, Any] = _by_topic(self.offsets)
        extra: dict[str, Any] = {}
        if self.is_initial:
            extra["initial"] = True
        if self.first:
            extra["from"] = _by_topic(self.first)
        if self.topic_ids:
            extra["ids"] = dict(sorted(self.topic_ids.items()))
        if self.group is not None:
            extra["group"] = self.group
            extra["bootstrap"] = self.bootstrap
        if extra:
            found[EXTRA] = extra
        return found


def read_offset(given: Mapping[str, Any] | str) -> StreamOffset:
    """Parses a stream's offset from a checkpoint or from Spark's progress. Raises `BadCheckpointError`."""
    try:
        found = json.loads(given) if isinstance(given, str) else given
        extra = found.get(EXTRA, {})
        return StreamOffset(
            offsets=_offsets({topic: some for topic, some in found.items() if topic != EXTRA}),
            first=_offsets(extra.get("from", {})),
            topic_ids=dict(extra.get("ids", {})),
            group=extra.get("group"),
            bootstrap=extra.get("bootstrap"),
            is_initial=bool(extra.get("initial", False)),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise BadCheckpointError(
            f"{given!r} is not an offset of this source ({error}); a checkpoint belongs to one query: use another "
            "checkpointLocation for another query"
        ) from error


def parse_partitions(text: str, option: str) -> tuple[TopicPartition, ...]:
    """Parses `{"orders":[0,1]}`; sorted. Raises `OptionError`."""
    example = '{"orders":[0,1]}'
    found: set[TopicPartition] = set()
    for topic, indexes in _object(text, option, example).items():
        if not isinstance(indexes, list) or not all(_is_index(each) for each in indexes):
            raise OptionError(f"{option}: {indexes!r} of topic {topic} is not a list of partitions; write {example}")
        found.update(TopicPartition(topic, each) for each in indexes)
    if not found:
        raise OptionError(f"{option} does not name a partition; write it as {example}")
    return tuple(sorted(found))


def parse_numbers(text: str, option: str) -> dict[TopicPartition, int]:
    """Parses `{"orders":{"0":17,"1":-2}}`: offsets or timestamps by partition. Raises `OptionError`."""
    example = '{"orders":{"0":17,"1":4}}'
    found: dict[TopicPartition, int] = {}
    for topic, by_index in _object(text, option, example).items():
        if not isinstance(by_index, dict):
            raise OptionError(f"{option}: topic {topic} has no partitions; write it as {example}")
        for index, number in by_index.items():
            if not index.isdecimal() or isinstance(number, bool) or not isinstance(number, int):
                raise OptionError(
                    f"{option}: partition {index!r} of topic {topic} has {number!r}; write it as {example}"
                )
            found[TopicPartition(topic, int(index))] = number
    return dict(sorted(found.items()))


def listed(partitions: Mapping[TopicPartition, Any] | set[TopicPartition] | frozenset[TopicPartition]) -> str:
    """Partitions in a message, `orders-0, orders-1`; at most ten."""
    names = [f"{each.topic}-{each.partition}" for each in sorted(partitions)]
    return ", ".join(names if len(names) <= 10 else [*names[:9], f"… and {len(names) - 9} more"])


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    found: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return found


def _offsets(found: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(index)): int(offset)
        for topic, by_index in found.items()
        for index, offset in by_index.items()
    }


def _object(text: str, option: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{option}={text} is not valid JSON ({error}); write it as {example}") from error
    if not isinstance(found, dict):
        raise OptionError(f"{option}={text} does not name topics; write it as {example}")
    return found


def _is_index(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0
