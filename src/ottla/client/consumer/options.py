"""The options of `Consumer` and `AsyncConsumer`, with their defaults.

Names are those of kafka-python; where its defaults differ from Java's, the defaults are Java's.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ottla.client.group.assignors.assignor import Assignor
from ottla.client.group.assignors.range_assignor import RangeAssignor
from ottla.client.group.assignors.roundrobin_assignor import RoundRobinAssignor
from ottla.client.group.assignors.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from ottla.client.options import ClientConfig, ClientOptions, OptionError, option
from ottla.client.serializers import Deserializer
from ottla.protocol.fetch_frames import READ_COMMITTED, READ_UNCOMMITTED

ASSIGNORS: Final[dict[str, Callable[[], Assignor]]] = {
    RangeAssignor.name: RangeAssignor,
    RoundRobinAssignor.name: RoundRobinAssignor,
    StickyAssignor.name: StickyAssignor,
    CooperativeStickyAssignor.name: CooperativeStickyAssignor,
}
_TOPIC_PART: Final = re.compile(r"[a-zA-Z0-9._-]+")
ISOLATION_LEVELS: Final = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


class ConsumerOptions(ClientOptions, total=False):
    """The options of a consumer; `ConsumerConfig` documents them."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str | None
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    max_poll_interval_ms: int
    auto_offset_reset: Literal["earliest", "latest", "none"]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    partition_assignment_strategy: Sequence[Any]
    isolation_level: Literal["read_uncommitted", "read_committed"]
    check_crcs: bool
    client_rack: str
    interceptors: Sequence[Any]
    exclude_internal_topics: bool
    allow_auto_create_topics: bool
    default_api_timeout_ms: int
    consumer_timeout_ms: float
    enable_retry: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The options of a consumer."""

    group_id: str | None = None
    """The consumer group, which shares partitions and keeps committed offsets; None to read without a group."""
    group_instance_id: str | None = None
    """Makes this a static member: the group does not rebalance while it restarts within `session_timeout_ms`."""
    group_protocol: Literal["classic", "consumer"] = "classic"
    """How partitions are assigned: by a member ("classic"), or by the coordinator ("consumer", KIP-848; Kafka 4.0 or
    newer)."""
    group_remote_assignor: str | None = None
    """The coordinator's assignor, with `group_protocol="consumer"`: "uniform" or "range"; None for its default."""
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    """Called with the bytes of a key or value; or a `RecordDeserializer`, such as those for schemas. A null key or
    value stays None and is not passed to it."""
    fetch_min_bytes: int = option(1, least=0)
    """A broker answers a fetch once this many bytes are there, or after `fetch_max_wait_ms`."""
    fetch_max_wait_ms: int = option(500, least=0)
    fetch_max_bytes: int = option(52_428_800, least=1)
    """The most bytes in one response; a larger batch is returned alone."""
    max_partition_fetch_bytes: int = option(1_048_576, least=1)
    max_poll_records: int = option(500, least=1)
    """The most records that one `poll` returns."""
    max_poll_interval_ms: int = option(300_000, least=1)
    """The longest time between two polls; after that the member leaves its group."""
    auto_offset_reset: Literal["earliest", "latest", "none"] = "latest"
    """Where to begin without a committed offset, or if the offset is out of range; "none" raises an error instead."""
    enable_auto_commit: bool = True
    """Whether the records of earlier polls are committed in later polls, before rebalances, and at `close`."""
    auto_commit_interval_ms: int = option(5_000, least=0)
    session_timeout_ms: int = option(45_000, least=1)
    """After this long without a heartbeat the coordinator removes the member from the group."""
    heartbeat_interval_ms: int = option(3_000, least=1)
    partition_assignment_strategy: Sequence[Any] = ("range", "cooperative-sticky")
    """Names of assignors ("range", "roundrobin", "sticky", "cooperative-sticky"), or your own `Assignor`s, in order of
    preference. Partitions are kept during rebalances only if all of them are cooperative."""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    """"read_committed" leaves out records of open and aborted transactions."""
    check_crcs: bool = True
    client_rack: str = ""
    """The rack of this consumer, so that it can read from a replica in the same rack."""
    interceptors: Sequence[Any] = ()
    """Objects with any of `on_consume(records)`, `on_commit(offsets)` and `close()`; their errors are logged."""
    exclude_internal_topics: bool = True
    """Whether a pattern leaves out internal topics."""
    allow_auto_create_topics: bool = True
    """Whether the broker may create a topic that is subscribed to, if `auto.create.topics.enable` is set."""
    default_api_timeout_ms: int = option(60_000, least=1)
    """The timeout of methods that ask a broker, unless they are called with another."""
    consumer_timeout_ms: float = option(float("inf"), least=0)
    """How long iteration waits for the next record before it ends."""
    enable_retry: bool = False
    """Whether records that the group handed back with `retry` are read too: those of the topics subscribed to that have
    the config `ottla.retry.enable`. They are in the topics `<topic>.<group>.redelivery`."""

    def assignors(self) -> list[Assignor]:
        """New instances of the assignors. Raises `OptionError`."""
        found: list[Assignor] = []
        for each in self.partition_assignment_strategy:
            if isinstance(each, str):
                if each not in ASSIGNORS:
                    raise OptionError(f"unknown assignor {each!r}; known are {', '.join(ASSIGNORS)}")
                found.append(ASSIGNORS[each]())
                continue
            made = each() if isinstance(each, type) else each
            if not isinstance(made, Assignor):
                raise OptionError(f"partition_assignment_strategy: {each!r} is neither an Assignor nor the name of one")
            found.append(made)
        if not found:
            raise OptionError("partition_assignment_strategy is empty; name at least one assignor")
        return found

    def check(self) -> None:
        """Raises `OptionError` for options that do not fit each other."""
        if self.group_id == "":
            raise OptionError("group_id must not be empty; omit it to read without a group")
        if self.heartbeat_interval_ms >= self.session_timeout_ms and self.group_protocol == "classic":
            raise OptionError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be less than "
                f"session_timeout_ms={self.session_timeout_ms}; a third of it is usual"
            )
        if self.group_remote_assignor is not None and self.group_protocol != "consumer":
            raise OptionError('group_remote_assignor needs group_protocol="consumer"')
        if self.enable_retry and self.group_id is None:
            raise OptionError("enable_retry needs a group_id: a record that is handed back returns to its group")
        if self.enable_retry and not _TOPIC_PART.fullmatch(self.group_id or ""):
            raise OptionError(
                f"enable_retry: group_id {self.group_id!r} is part of topic names, so it may have only ASCII letters,"
                " digits, '.', '_' and '-'"
            )
        self.assignors()
