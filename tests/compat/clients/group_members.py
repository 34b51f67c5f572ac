"""Groups of foreign clients: their members, what is awaited of all of them together, and stories told side by side.

A group needs seconds where a single client needs milliseconds, and most of that is waiting. So a story is a function of
one flavour, and a module runs it for all flavours at once; each outcome is one test's.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tests.compat.clients.foreign_client import ForeignClient
from tests.compat.clients.group_flavours import Flavour
from tests.compat.clients.shapes import small
from tests.waiting import wait_until

LOOK_SECONDS: Final = 0.1
ROUND: Final = 10
"""How many records a partition gets at a time."""

Place = tuple[str, int]
"""Topic and partition."""
Record = tuple[str, int, int]
"""Topic, partition and offset."""

_numbers = itertools.count(1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Partitions came to a member or went; `kind` is assigned, revoked or lost, and the time is the machine's."""

    kind: str
    places: frozenset[Place]
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberState:
    """What a member told of itself."""

    owned: frozenset[Place]
    events: tuple[Event, ...]
    records: tuple[Record, ...]
    error: dict[str, Any] | None


class Member:
    """A member of a group, inside a client program; it reads and commits by itself from the moment it is made."""

    def __init__(
        self,
        client: ForeignClient,
        flavour: Flavour,
        group: str,
        *,
        topics: Sequence[str] | None = None,
        pattern: str | None = None,
        instance: str | None = None,
        reset: str = "earliest",
        commits: bool = True,
    ) -> None:
        self._client = client
        self._number = next(_numbers)
        client.call(
            "join_group",
            id=self._number,
            group=group,
            topics=topics,
            pattern=pattern,
            protocol=flavour.protocol,
            assignor=flavour.assignor,
            instance=instance,
            reset=reset,
            commits=commits,
        )

    def state(self) -> MemberState:
        """What happened to it until now; also behind its end."""
        told = self._client.call("member", id=self._number)
        return MemberState(
            owned=_places(told["owned"]),
            events=tuple(Event(kind=kind, places=_places(rows), at_ms=at) for kind, rows, at in told["events"]),
            records=tuple((topic, partition, offset) for topic, partition, offset in told["records"]),
            error=told["failure"],
        )

    def leave(self) -> None:
        """Closes the consumer: it leaves the group, or only goes away when it is static."""
        self._client.call("leave_group", id=self._number)

    def commit(self, offsets: Iterable[tuple[str, int, int, str]]) -> None:
        """Topic, partition, offset and metadata of each."""
        self._client.call("commit_offsets", id=self._number, offsets=list(offsets))

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Where it reads on."""
        self._client.call("seek", id=self._number, topic=topic, partition=partition, offset=offset)


@contextmanager
def leaving(members: list[Member]) -> Iterator[list[Member]]:
    """A list to put members into; those still in it leave in the end."""
    try:
        yield members
    finally:
        for member in members:
            member.leave()


def committed(client: ForeignClient, group: str, topic: str, partitions: int) -> list[tuple[int, int, str]]:
    """Partition, offset and metadata as the client finds them; the offset is -1 where nothing is committed."""
    answer = client.call("committed_offsets", group=group, topic=topic, wanted=list(range(partitions)))
    # confluent-kafka commits the zero that ends its string with it.
    return sorted((partition, offset, metadata.rstrip("\0")) for partition, offset, metadata in answer["offsets"])


def places(topic: str, partitions: int) -> set[Place]:
    """All partitions of the topic."""
    return {(topic, partition) for partition in range(partitions)}


def send_round(writer: ForeignClient, topic: str, partitions: int) -> None:
    """The next `ROUND` records of each partition."""
    writer.send(topic, [record for partition in range(partitions) for record in small(ROUND, partition=partition)])


def each_once(topic: str, partitions: int, *, rounds: int) -> Counter[Record]:
    """What is read when nothing of these rounds is lost or doubled."""
    return Counter((topic, partition, offset) for partition in range(partitions) for offset in range(rounds * ROUND))


def wait_shared(members: Sequence[Member], wanted: set[Place]) -> list[MemberState]:
    """Returns once each partition has one owner, and no member has two more than another."""

    def is_shared(states: list[MemberState]) -> bool:
        counts = [len(state.owned) for state in states]
        everything = [place for state in states for place in state.owned]
        return sorted(wanted) == sorted(everything) and max(counts) - min(counts) <= 1

    return wait_states(members, is_shared, f"the members share {len(wanted)} partitions")


def wait_read(members: Sequence[Member], count: int) -> Counter[Record]:
    """How often each record was read by all of them together, once that are `count` in all."""
    states = wait_states(
        members,
        lambda states: sum(len(state.records) for state in states) >= count,
        f"{count} records are read",
    )
    return Counter(record for state in states for record in state.records)


def wait_committed(client: ForeignClient, group: str, topic: str, offsets: Sequence[int]) -> None:
    """Returns once these offsets of the topic's partitions are committed."""

    def found() -> list[int]:
        return [row[1] for row in committed(client, group, topic, len(offsets))]

    wait_until(lambda: found() == list(offsets), lambda: f"{offsets} are committed in {group}, not {found()}")


def wait_failed(member: Member) -> int | None:
    """Kafka's code of the error by which the member ended."""
    error = wait_until(lambda: member.state().error, "the member ends")
    assert error is not None
    code: int | None = error["code"]
    return code


def check_never_shared(members: Sequence[Member]) -> None:
    """A member is assigned a partition only when whoever had it before has given it up."""
    events = [
        (event, index, number)
        for index, member in enumerate(members)
        for number, event in enumerate(member.state().events)
    ]
    owners: dict[Place, int] = {}
    given_up: dict[tuple[int, Place], int] = {}
    # What happened in the same millisecond is taken in the order that is right; a member's own events have an order.
    for event, index, number in sorted(events, key=lambda each: (each[0].at_ms, each[0].kind == "assigned")):
        for place in event.places:
            if event.kind != "assigned":
                owners.pop(place, None)
                given_up[index, place] = number
            elif given_up.get((index, place), -1) > number:
                continue
            elif (other := owners.setdefault(place, index)) != index:
                raise AssertionError(f"member {index} got {place} while member {other} had it: {events}")


def wait_states(
    members: Sequence[Member], condition: Callable[[list[MemberState]], bool], what: str
) -> list[MemberState]:
    """Looks until it is so; a member that fails meanwhile, or time that runs out, is a failure of the test."""
    states: list[MemberState] = []

    def look() -> bool:
        states[:] = [member.state() for member in members]
        errors = [state.error for state in states if state.error]
        assert not errors, f"waited until {what}, but {errors}"
        return condition(states)

    wait_until(look, lambda: f"{what}: {states}")
    return states


Told = TypeVar("Told")
Outcomes = dict[str, Future[Told]]
"""How the story of each flavour ended; `result()` is what it returned, or raises what went wrong."""


def side_by_side(story: Callable[[Flavour], Told], flavours: Iterable[Flavour]) -> Outcomes[Told]:
    """Runs the story for all flavours at once, and returns when all have ended."""
    told = list(flavours)
    with ThreadPoolExecutor(len(told)) as pool:
        return {flavour.name: pool.submit(story, flavour) for flavour in told}


def _places(rows: Iterable[Sequence[Any]]) -> frozenset[Place]:
    return frozenset((topic, partition) for topic, partition in rows)
