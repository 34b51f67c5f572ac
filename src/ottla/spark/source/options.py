"""The options of the source, parsed once into a frozen value: those of Spark's Kafka connector, and some of our own.

Names, defaults and precedence are the connector's: a timestamp for all partitions precedes timestamps by partition,
which precede offsets. Unknown options are refused with the nearest name. Pure. `kafka.` options are in
`option_names.py`; positions are resolved in `topic_offsets.py`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from ottla.client.consumer.topic_pattern import TopicPattern
from ottla.client.options import OptionError
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.spark.option_names import bootstrap_of, client_options, refuse_unknown
from ottla.spark.source.offset_text import EARLIEST, LATEST, parse_numbers, parse_partitions

T = TypeVar("T")

SELECTIONS: Final = ("assign", "subscribe", "subscribePattern")
CONNECTOR_OPTIONS: Final = (
    *SELECTIONS,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
)
"""The options of Spark's Kafka connector, without `kafka.` ones."""
OWN_OPTIONS: Final = ("bytesPerTrigger", "maxBytesPerPartition", "groupId", "segments")
SPARK_OPTIONS: Final = ("path",)
"""Options that Spark adds to those of a table in its catalog."""

_REFUSED: Final = {
    "kafka.auto.offset.reset": "set startingOffsets to earliest or latest instead: the query keeps its own offsets",
    "kafka.enable.auto.commit": "the query keeps its own offsets; groupId=NAME makes a consumer group follow them",
    "kafka.key.deserializer": "keys are read as bytes; decode them with CAST(key AS STRING) or a function of Spark",
    "kafka.value.deserializer": "values are read as bytes; decode them with valueFormat or a function of Spark",
    "kafka.interceptor.classes": "interceptors cannot be loaded; work on the DataFrame instead",
}
_DELAY_UNITS_MS: Final = {
    "us": 0.001,
    "ms": 1,
    "": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_POLL_TIMEOUT_MS: Final = 120_000
_TRIGGER_DELAY: Final = "15m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which partitions are read; exactly one of the three is set."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    """An RE2 regular expression for the whole name of a topic."""
    partitions: tuple[TopicPartition, ...] | None = None

    def __str__(self) -> str:
        if self.topics is not None:
            return f"subscribe={','.join(self.topics)}"
        if self.pattern is not None:
            return f"subscribePattern={self.pattern}"
        return f"assign={', '.join(map(str, self.partitions or ()))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where to begin or to end: one place for all partitions, or one for each."""

    kind: Literal["earliest", "latest", "offsets", "timestamps", "timestamp"]
    numbers: Mapping[TopicPartition, int] = field(default_factory=dict)
    """For "offsets", where -2 is the earliest and -1 the latest, and for "timestamps", in ms."""
    timestamp: int = -1
    option: str = ""
    """The name of the option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one query."""

    bootstrap: str
    client: Mapping[str, Any] = field(repr=False)
    """Options of the clients, which may contain secrets."""
    selection: Selection
    starting: Position
    ending: Position
    """Only for batches; a stream has no end."""
    no_match: Literal["error", "latest"] = "error"
    """Where to begin in a partition without a record at or after the starting timestamp."""
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = _POLL_TIMEOUT_MS
    """How long a task waits for records."""
    offset_tries: int = 3
    offset_retry_ms: int = 10
    partitions_max_age_ms: int | None = None
    """After how long the list of partitions is refreshed; None for the default."""
    offsets_max: int | None = None
    """The most offsets and bytes in a micro-batch, the least offsets, and how long to wait for these."""
    bytes_max: int | None = None
    offsets_min: int | None = None
    trigger_delay_ms: int = 15 * 60_000
    partitions_min: int | None = None
    """About the least number of tasks, and the most that one task reads."""
    records_per_task_max: int | None = None
    bytes_per_task_max: int | None = None
    headers: bool = False
    group_id: str | None = None
    """The group at whose committed offsets a new query begins, and to which it commits."""
    segments: Literal["auto", "never", "always"] = "auto"
    """Whether tasks read the broker's segment files if these are on the same machine."""
    value_format: str | None = None
    raw: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def isolation_level(self) -> Literal["read_uncommitted", "read_committed"]:
        """The value of `kafka.isolation.level`."""
        level: Literal["read_uncommitted", "read_committed"] = self.client.get("isolation_level", "read_uncommitted")
        return level


def parse_source_options(raw: Mapping[str, str], *, is_stream: bool, further: tuple[str, ...] = ()) -> SourceOptions:
    """Parses the options of a query; `further` are options of other parts. Raises `OptionError`."""
    given = {name.lower(): value for name, value in raw.items()}
    refuse_unknown(given, (*CONNECTOR_OPTIONS, *OWN_OPTIONS, *SPARK_OPTIONS, *further), "the source ottla")
    for name, advice in _REFUSED.items():
        if name in given:
            raise OptionError(f"{name} cannot be set: {advice}")
    bootstrap = bootstrap_of(given)
    starting, ending = _starting(given, is_stream=is_stream), _ending(given, is_stream=is_stream)
    _check_order(starting, ending)
    offsets_max, offsets_min = _number(given, "maxOffsetsPerTrigger"), _number(given, "minOffsetsPerTrigger", least=0)
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise OptionError(
            f"minOffsetsPerTrigger={offsets_min} is more than maxOffsetsPerTrigger={offsets_max}; lower the one, or "
            "raise the other"
        )
    tries = _number(given, "fetchOffset.numRetries")
    retry_ms = _number(given, "fetchOffset.retryIntervalMs", least=0)
    max_age_ms = _number(given, "partition.metadata.cache.ttl.ms", least=-1)
    if max_age_ms == 0:
        raise OptionError("partition.metadata.cache.ttl.ms=0 is not allowed; -1 leaves it out")
    return SourceOptions(
        bootstrap=bootstrap,
        client=client_options(given),
        selection=_selection(given),
        starting=starting,
        ending=ending,
        no_match=_choice(given, "startingOffsetsByTimestampStrategy", ("error", "latest")) or "error",
        fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
        poll_timeout_ms=_number(given, "kafkaConsumer.pollTimeoutMs") or _POLL_TIMEOUT_MS,
        offset_tries=3 if tries is None else tries,
        offset_retry_ms=10 if retry_ms is None else retry_ms,
        partitions_max_age_ms=None if max_age_ms == -1 else max_age_ms,
        offsets_max=offsets_max,
        offsets_min=offsets_min,
        bytes_max=_number(given, "bytesPerTrigger"),
        trigger_delay_ms=parse_delay_ms(given.get("maxtriggerdelay", _TRIGGER_DELAY), "maxTriggerDelay"),
        partitions_min=_number(given, "minPartitions"),
        records_per_task_max=_number(given, "maxRecordsPerPartition"),
        bytes_per_task_max=_number(given, "maxBytesPerPartition"),
        headers=_flag(given, "includeHeaders", default=False),
        group_id=_text(given, "groupId"),
        segments=_choice(given, "segments", ("auto", "never", "always")) or "auto",
        value_format=_text(given, "valueFormat"),
        raw=given,
    )


def parse_delay_ms(text: str, option: str) -> int:
    """A duration as Spark writes it: `15m`, `30s`, `500ms`; a number alone is in milliseconds."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _DELAY_UNITS_MS:
        raise OptionError(f"{option}={text} is not a valid duration; write it as 15m, 30s or 500ms")
    return int(int(match[1]) * _DELAY_UNITS_MS[match[2]])


def _selection(given: Mapping[str, str]) -> Selection:
    names = [name for name in SELECTIONS if name.lower() in given]
    if len(names) != 1:
        found = f"{' and '.join(names)} are set" if names else "none is set"
        raise OptionError(f"set exactly one of {', '.join(SELECTIONS)}; {found}")
    (name,) = names
    text = given[name.lower()].strip()
    if not text:
        raise OptionError(f"{name} is empty; name the topics to read")
    if name == "assign":
        return Selection(partitions=parse_partitions(text, name))
    if name == "subscribe":
        topics = tuple(sorted({each.strip() for each in text.split(",")} - {""}))
        if not topics:
            raise OptionError(f"{name}={text} does not name a topic")
        return Selection(topics=topics)
    try:
        TopicPattern(text)
    except MisuseError as error:
        raise OptionError(f"{name}: {error}") from error
    return Selection(pattern=text)


def _position(given: Mapping[str, str], which: Literal["starting", "ending"]) -> Position | None:
    """The start or the end, by precedence of the options."""
    option = f"{which}Timestamp"
    if (text := given.get(option.lower())) is not None:
        return Position(kind="timestamp", timestamp=_whole(text, option, least=0), option=option)
    option = f"{which}OffsetsByTimestamp"
    if (text := given.get(option.lower())) is not None:
        numbers = parse_numbers(text, option)
        if any(number < 0 for number in numbers.values()):
            raise OptionError(f"{option}={text} has a negative timestamp; use milliseconds since 1970")
        return Position(kind="timestamps", numbers=numbers, option=option)
    option = f"{which}Offsets"
    if (text := given.get(option.lower())) is None:
        return None
    word = text.strip().lower()
    if word == "earliest":
        return Position(kind="earliest", option=option)
    if word == "latest":
        return Position(kind="latest", option=option)
    if not word.startswith("{"):
        raise OptionError(f'{option}={text} is not allowed; give earliest, latest or {{"orders":{{"0":17}}}}')
    numbers = parse_numbers(text, option)
    if any(number < EARLIEST for number in numbers.values()):
        raise OptionError(f"{option}={text} has an offset below -2; -2 is the earliest, -1 the latest")
    return Position(kind="offsets", numbers=numbers, option=option)


def _starting(given: Mapping[str, str], *, is_stream: bool) -> Position:
    found = _position(given, "starting") or Position(kind="latest" if is_stream else "earliest")
    if not is_stream and (found.kind == "latest" or _has(found, LATEST)):
        raise OptionError(
            f"{found.option} cannot be latest (-1) for a batch, which would be empty; use earliest, or read a stream"
        )
    return found


def _ending(given: Mapping[str, str], *, is_stream: bool) -> Position:
    found = _position(given, "ending")
    if is_stream and found is not None:
        raise OptionError(f"{found.option} is for batches only, a stream has no end; omit it, or use spark.read")
    if found is not None and (found.kind == "earliest" or _has(found, EARLIEST)):
        raise OptionError(f"{found.option} cannot be earliest (-2): nothing would be read")
    return found or Position(kind="latest")


def _has(position: Position, number: int) -> bool:
    return position.kind == "offsets" and number in position.numbers.values()


def _check_order(starting: Position, ending: Position) -> None:
    if starting.kind == ending.kind == "timestamp" and starting.timestamp > ending.timestamp:
        raise OptionError(
            f"startingTimestamp={starting.timestamp} is after endingTimestamp={ending.timestamp}; the range is empty"
        )
    if starting.kind == ending.kind and starting.kind in ("offsets", "timestamps"):
        for partition, start in starting.numbers.items():
            end = ending.numbers.get(partition, start)
            if start >= 0 and end >= 0 and start > end:
                raise OptionError(
                    f"{starting.option} {start} of {partition} is after {ending.option} {end}; the range is empty"
                )


def _text(given: Mapping[str, str], option: str) -> str | None:
    text = given.get(option.lower(), "").strip()
    return text or None


def _whole(text: str, option: str, *, least: int) -> int:
    try:
        found = int(text.strip())
    except ValueError:
        raise OptionError(f"{option}={text} must be a whole number") from None
    if found < least:
        raise OptionError(f"{option}={text} must be at least {least}")
    return found


def _number(given: Mapping[str, str], option: str, *, least: int = 1) -> int | None:
    return _maybe(given, option, lambda text: _whole(text, option, least=least))


def _flag(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = given.get(option.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"{option}={text} must be true or false")
    return text.strip().lower() == "true"


def _choice(given: Mapping[str, str], option: str, allowed: tuple[Any, ...]) -> Any:
    def read(text: str) -> str:
        if text.strip().lower() not in allowed:
            raise OptionError(f"{option}={text} must be {' or '.join(allowed)}")
        return text.strip().lower()

    return _maybe(given, option, read)


def _maybe(given: Mapping[str, str], option: str, read: Callable[[str], T]) -> T | None:
    text = given.get(option.lower())
    return None if text is None else read(text)
