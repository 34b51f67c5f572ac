"""How long partitions could not be written after a fault, from a history. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.chaos.history import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """The longest time without an acknowledgement, of the partition that had the longest, in seconds."""

    cluster: float
    """Whoever it was that wrote there."""
    clients: float
    """Of the client that waited longest."""


def outage(events: Sequence[Event], start: float, until: float) -> Outage:
    """Between two moments. Clients must send all the time; transactions are not counted, since they may wait."""
    belongs = {event.value for event in events if event.what == "sent" and event.transaction is not None}
    by_partition: dict[str, list[float]] = defaultdict(list)
    by_client: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.what == "acked" and event.value not in belongs:
            by_partition[event.at].append(event.t)
            by_client[event.at, event.who].append(event.t)
    return Outage(
        cluster=max((_longest(times, start, until) for times in by_partition.values()), default=until - start),
        clients=max((_longest(times, start, until) for times in by_client.values()), default=until - start),
    )


def _longest(times: Iterable[float], start: float, until: float) -> float:
    inside = sorted(time for time in times if start < time < until)
    return max(later - earlier for earlier, later in pairwise([start, *inside, until]))
