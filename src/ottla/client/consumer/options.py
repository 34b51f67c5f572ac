"""What a consumer may be told: the keyword arguments of `Consumer` and `AsyncConsumer`, with their defaults.

Names are kafka-python's; the defaults are those of Java's consumer where the two differ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ottla.client.group.assignors.assignor import Assignor
from ottla.client.group.assignors.range_assignor import RangeAssignor
from ottla.client.group.assignors.roundrobin_assignor import RoundRobinAssignor
from ottla.client.group.assignors.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from ottla.client.options import ClientConfig, ClientOptions, OptionError, option
from ottla.protocol.fetch_frames import READ_COMMITTED, READ_UNCOMMITTED

Deserializer = Callable[[bytes], Any]

ASSIGNORS: Final[dict[str, Callable[[], Assignor]]] = {
    RangeAssignor.name: RangeAssignor,
    RoundRobinAssignor.name: RoundRobinAssignor,
    StickyAssignor.name: StickyAssignor,
    CooperativeStickyAssignor.name: CooperativeStickyAssignor,
}
ISOLATION_LEVELS: Final = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


class ConsumerOptions(ClientOptions, total=False):
    """What a consumer may be told; see `ConsumerConfig`."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """What a consumer was told."""

    group_id: str | None = None
    """The group to share partitions and keep offsets with; None to read alone, without commits."""
    group_instance_id: str | None = None
    """A name that this member keeps across restarts: the group does not rebalance while it is away for a moment."""
    group_protocol: Literal["classic", "consumer"] = "classic"
    """Who assigns: a member ("classic"), or the coordinator ("consumer", KIP-848), which needs a newer broker."""
    group_remote_assignor: str | None = None
    """The coordinator's assignor, with `group_protocol="consumer"`: "uniform" or "range"; None leaves it to it."""
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    """Called with bytes, never with None: a null stays None."""
    fetch_min_bytes: int = option(1, least=0)
    """How much a broker waits for, up to `fetch_max_wait_ms`, before it answers."""
    fetch_max_wait_ms: int = option(500, least=0)
    fetch_max_bytes: int = option(52_428_800, least=1)
    """About the most in one answer; a batch that is larger comes alone."""
    max_partition_fetch_bytes: int = option(1_048_576, least=1)
    max_poll_records: int = option(500, least=1)
    """The most records that one `poll` gives."""
    max_poll_interval_ms: int = option(300_000, least=1)
    """The longest time between two polls; a member that takes longer leaves its group."""
    auto_offset_reset: Literal["earliest", "latest", "none"] = "latest"
    """Where to begin without a committed offset, and where to go on if an offset is gone; "none" raises instead."""
    enable_auto_commit: bool = True
    """Commits what earlier polls gave, in later polls, at rebalances and at the end."""
    auto_commit_interval_ms: int = option(5_000, least=0)
    session_timeout_ms: int = option(45_000, least=1)
    """After this long without a sign of life the group goes on without the member."""
    heartbeat_interval_ms: int = option(3_000, least=1)
    partition_assignment_strategy: Sequence[Any] = ("range", "cooperative-sticky")
    """Names of assignors ("range", "roundrobin", "sticky", "cooperative-sticky"), or `Assignor`s of your own, in order
    of preference. Partitions are kept during rebalances only if all of them are cooperative."""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    """Whether records of open and aborted transactions are left out."""
    check_crcs: bool = True
    client_rack: str = ""
    """Where this consumer is, so that a replica near it can be read."""
    interceptors: Sequence[Any] = ()
    """Objects with any of `on_consume(records)`, `on_commit(offsets)` and `close()`; what they raise is logged."""
    exclude_internal_topics: bool = True
    """Whether a pattern passes over the broker's own topics."""
    allow_auto_create_topics: bool = True
    """Whether a topic that is subscribed to may be made by the broker, if it does such things."""
    default_api_timeout_ms: int = option(60_000, least=1)
    """How long whatever asks a broker tries, unless it is told otherwise."""
    consumer_timeout_ms: float = option(float("inf"), least=0)
    """How long iterating waits for a record before it ends."""

    def assignors(self) -> list[Assignor]:
        """The assignors, made anew; raises `OptionError` for what is none."""
        found: list[Assignor] = []
        for each in self.partition_assignment_strategy:
            if isinstance(each, str):
                if each not in ASSIGNORS:
                    raise OptionError(f"there is no assignor {each!r}; there are {', '.join(ASSIGNORS)}")
                found.append(ASSIGNORS[each]())
                continue
            made = each() if isinstance(each, type) else each
            if not isinstance(made, Assignor):
                raise OptionError(f"{each!r} in partition_assignment_strategy is no Assignor and no name of one")
            found.append(made)
        if not found:
            raise OptionError("partition_assignment_strategy is empty; name one assignor at least")
        return found

    def check(self) -> None:
        """Refuses options that do not fit each other."""
        if self.group_id == "":
            raise OptionError("group_id='' is no group; leave it out to read without one")
        if self.heartbeat_interval_ms >= self.session_timeout_ms and self.group_protocol == "classic":
            raise OptionError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be less than "
                f"session_timeout_ms={self.session_timeout_ms}, a third at most"
            )
        if self.group_remote_assignor is not None and self.group_protocol != "consumer":
            raise OptionError('group_remote_assignor needs group_protocol="consumer"')
        self.assignors()
