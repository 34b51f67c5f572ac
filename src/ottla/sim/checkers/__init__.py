"""What must hold in every life. Each file is one promise; `CHECKERS` has them all.

`look` is called all the time and may look into brokers; `finish` once at the end, when everything has been read back
from a healed cluster. What can be seen in a single event (one record for each offset, one owner for each generation,
offsets that never go back) is checked by the history as it is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.sim.life import Life


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """All records of the topics that clients wrote to, as (offset, value), read back at the end."""

    everything: dict[TopicPartition, list[tuple[int, bytes]]]
    committed: dict[TopicPartition, list[tuple[int, bytes]]]


class Checker(Protocol):
    """One promise."""

    name: str

    def look(self, life: "Life") -> None:
        """Looks at the cluster as it is now."""

    def finish(self, life: "Life", contents: Contents) -> None:
        """Looks at what is left at the end."""


def all_checkers() -> Sequence[Checker]:
    """One of each, new."""
    from ottla.sim.checkers.acked_kept import AckedKept
    from ottla.sim.checkers.acked_survive import AckedSurvive
    from ottla.sim.checkers.copies_once import CopiesOnce
    from ottla.sim.checkers.folders_kept import FoldersKept
    from ottla.sim.checkers.logs_equal import LogsEqual
    from ottla.sim.checkers.no_duplicates import NoDuplicates
    from ottla.sim.checkers.one_leader import OneLeader
    from ottla.sim.checkers.remains_kept import RemainsKept
    from ottla.sim.checkers.store_not_older import StoreNotOlder
    from ottla.sim.checkers.transactions_whole import TransactionsWhole

    return [
        AckedKept(),
        AckedSurvive(),
        CopiesOnce(),
        FoldersKept(),
        LogsEqual(),
        NoDuplicates(),
        OneLeader(),
        RemainsKept(),
        StoreNotOlder(),
        TransactionsWhole(),
    ]
