"""What the clients of a run observed, and the violations found.

Workloads write it, checkers read it. `trace` lists all events: two runs of one seed have the same trace.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.sim.loop import VirtualLoop
from ottla.sim.queue_history import QueueHistory
from ottla.sim.shares.history import ShareHistory


class Acked(NamedTuple):
    """A record that was acknowledged with acks=all."""

    value: bytes
    offset: int


@dataclass(slots=True, kw_only=True)
class Transaction:
    """One transaction. `outcome` is what its producer knows: committed, aborted or unknown."""

    name: str
    records: list[tuple[TopicPartition, bytes]] = field(default_factory=list)
    outcome: str = "unknown"


class History:
    """The history of one run."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.trace: list[str] = []
        self.violations: list[str] = []
        self.on_violation: Callable[[], object] = lambda: None
        self.checks = 0
        self.fault_counts: dict[str, int] = defaultdict(int)
        self.acked: dict[TopicPartition, list[Acked]] = defaultdict(list)
        self.reads: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        """The value read at an offset, by any consumer."""
        self.committed_reads: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        """The same, by read_committed consumers."""
        self.transactions: dict[str, Transaction] = {}
        self.owners: dict[tuple[str, int, TopicPartition], str] = {}
        self.group_offsets: dict[tuple[str, TopicPartition], int] = defaultdict(int)
        """The largest offset whose commit was confirmed."""
        self.queues = QueueHistory()
        self.shares = ShareHistory()
        self.sent = 0
        self.deleted: set[str] = set()
        """Topics that a client asked to delete."""
        self.moved: set[TopicPartition] = set()
        """Partitions that a client asked to move to other brokers."""

    def note(self, text: str) -> None:
        """Adds a line to the trace."""
        self.trace.append(f"{self._loop.time():11.6f} {text}")

    def violated(self, checker: str, what: str) -> None:
        """Records a violation."""
        self.note(f"VIOLATION {checker}: {what}")
        self.violations.append(f"{checker}: {what}")
        self.on_violation()

    def check(self, is_right: bool, checker: str, what: str) -> None:
        """Counts a check, and records a violation if it fails."""
        self.checks += 1
        if not is_right:
            self.violated(checker, what)

    # What clients saw

    def on_acked(self, partition: TopicPartition, value: bytes, offset: int) -> None:
        """The cluster acknowledged this record."""
        self.acked[partition].append(Acked(value, offset))
        self._see(self.reads, partition, offset, value, "an acknowledgement")

    def on_read(self, partition: TopicPartition, offset: int, value: bytes, reader: str, *, committed: bool) -> None:
        """A consumer read this record there."""
        self._see(self.reads, partition, offset, value, reader)
        if committed:
            self.committed_reads[partition][offset] = value

    def _see(
        self,
        seen: dict[TopicPartition, dict[int, bytes]],
        partition: TopicPartition,
        offset: int,
        value: bytes,
        who: str,
    ) -> None:
        before = seen[partition].setdefault(offset, value)
        self.check(
            before == value,
            "one record per offset",
            f"{partition} offset {offset} was {before!r}, but is {value!r} for {who}",
        )

    def on_owned(self, group: str, generation: int, member: str, partition: TopicPartition) -> None:
        """A member of a group was given a partition."""
        before = self.owners.setdefault((group, generation, partition), member)
        self.check(
            before == member,
            "one owner per generation",
            f"{partition} of group {group}, generation {generation}, belongs to {before} and to {member}",
        )

    def on_group_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        """The commit of an offset of a group was confirmed."""
        self.group_offsets[group, partition] = max(self.group_offsets[group, partition], offset)

    def on_group_offset_read(self, group: str, partition: TopicPartition, offset: int, floor: int) -> None:
        """The committed offset of a group was read; `floor` was confirmed before."""
        self.check(
            offset >= floor,
            "group offsets never go back",
            f"{partition} of group {group}: {floor} was committed, and then {offset} was read",
        )
