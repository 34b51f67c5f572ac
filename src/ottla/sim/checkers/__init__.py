"""Invariants of every run. Each file checks one; `CHECKERS` has them all.

`look` is called all the time and may look into brokers; `finish` once at the end, when everything has been read back
from a healed cluster. What can be seen in a single event (one record for each offset, one owner for each generation,
offsets that never go back) is checked by the history as it is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ottla.model.ids import TopicPartition
from ottla.sim.queue_history import Arrival

if TYPE_CHECKING:
    from ottla.sim.simulated_world import SimulatedWorld


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """All records of the topics that clients wrote to, as (offset, value), read back at the end."""

    everything: dict[TopicPartition, list[tuple[int, bytes]]]
    committed: dict[TopicPartition, list[tuple[int, bytes]]]
    arrivals: Sequence[Arrival] = ()
    """What queues delivered, by partition and offset."""
    read_ms: int = 0
    """A wall-clock time after all of it was read."""


class Checker(Protocol):
    """One promise."""

    name: str

    def look(self, world: "SimulatedWorld") -> None:
        """Looks at the cluster as it is now."""

    def finish(self, world: "SimulatedWorld", contents: Contents) -> None:
        """Looks at what is left at the end."""


def all_checkers() -> Sequence[Checker]:
    """One of each, new."""
    from ottla.sim.checkers.acked_kept import AckedKept
    from ottla.sim.checkers.acked_survive import AckedSurvive
    from ottla.sim.checkers.copies_once import CopiesOnce
    from ottla.sim.checkers.delivered_once import DeliveredOnce, WithdrawnStayAway
    from ottla.sim.checkers.folders_kept import FoldersKept
    from ottla.sim.checkers.logs_equal import LogsEqual
    from ottla.sim.checkers.never_early import NeverEarly
    from ottla.sim.checkers.no_duplicates import NoDuplicates
    from ottla.sim.checkers.one_leader import OneLeader
    from ottla.sim.checkers.owed_arrive import OwedArrive, ReleasedArrive
    from ottla.sim.checkers.remains_kept import RemainsKept
    from ottla.sim.checkers.share_delivery_counts import ShareDeliveryCounts
    from ottla.sim.checkers.share_finished_stay import ShareFinishedStay
    from ottla.sim.checkers.share_nothing_lost import ShareNothingLost
    from ottla.sim.checkers.share_one_holder import ShareOneHolder
    from ottla.sim.checkers.share_start_offsets import ShareStartOffsets
    from ottla.sim.checkers.store_not_older import StoreNotOlder
    from ottla.sim.checkers.ties_in_order import TiesInOrder
    from ottla.sim.checkers.transactions_whole import TransactionsWhole

    return [
        AckedKept(),
        AckedSurvive(),
        CopiesOnce(),
        DeliveredOnce(),
        FoldersKept(),
        LogsEqual(),
        NeverEarly(),
        NoDuplicates(),
        OneLeader(),
        OwedArrive(),
        ReleasedArrive(),
        RemainsKept(),
        ShareDeliveryCounts(),
        ShareFinishedStay(),
        ShareNothingLost(),
        ShareOneHolder(),
        ShareStartOffsets(),
        StoreNotOlder(),
        TiesInOrder(),
        TransactionsWhole(),
        WithdrawnStayAway(),
    ]
