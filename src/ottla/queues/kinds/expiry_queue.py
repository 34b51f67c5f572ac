"""Expired records of a topic: counted when they expire, and moved to the dead-letter topic if one is set. Pure.

Here the log is the topic's own: its records are not parked, and consumers read them until they expire. What was moved
is noted in the same log. A record is moved once; it stays in the log until retention or compaction removes it.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.model import dead_letters
from ottla.model.dead_letters import DeadLetterHeaders, Origin, story_headers
from ottla.model.errors import MisuseError
from ottla.model.ids import Offset, TimestampMs, TopicPartition
from ottla.model.queue_names import TTL_MS
from ottla.queues.dead_letters import DeadLetterPlace
from ottla.queues.kinds.kind import NOTHING, Consequence, DeadLetter, Drop, Found, Verdict
from ottla.queues.progress_records import Action, Plan, Settled
from ottla.queues.settled_offsets import SettledOffsets
from ottla.records.batch import Batch
from ottla.records.expiry import expiries
from ottla.records.record import Headers, Record

REASON: Final = "expired"


class ExpiryMark(NamedTuple):
    """What makes a topic one whose records expire."""

    topic: str
    ttl_ms: int
    """As `Partition.ttl_ms`."""
    dead_letters: str
    """The name of the dead-letter topic; empty for none."""


class ExpiryQueue:
    """The records of one partition that expire at some time.

    Without `dead_letters` they are only counted, those that expire after `since`: earlier ones were counted before.
    """

    name = "expiry"
    dropped_headers: Sequence[str] = ()
    # A dead letter does not expire by the TTL of its record.
    dropped_from_dead: Sequence[str] = (TTL_MS,)

    def __init__(
        self,
        source: TopicPartition,
        ttl_ms: int,
        dead_letters: Callable[[], DeadLetterPlace] | None,
        *,
        since: TimestampMs,
    ) -> None:
        self._source = source
        self._ttl_ms = ttl_ms
        self._dead_letters = dead_letters
        self._since = since
        self._verdict: Verdict = Drop() if dead_letters is None else DeadLetter(REASON)

    def begin(self, settled: SettledOffsets) -> None:
        """Its verdicts do not depend on other records."""

    def read(self, batch: Batch) -> Found:
        """Due is when the record expires."""
        pairs = expiries(batch, self._ttl_ms)
        due_ms, offsets = pairs[::2], pairs[1::2]
        if self._dead_letters is None and due_ms and min(due_ms) <= self._since:
            kept = [at for at, due in enumerate(due_ms) if due > self._since]
            due_ms, offsets = array("q", (due_ms[at] for at in kept)), array("q", (offsets[at] for at in kept))
        return Found(due_ms, offsets)

    def apply(self, found: Found) -> Consequence:
        """There are no instructions."""
        return NOTHING

    def on_progress(self, record: Plan | Settled) -> None:
        """Nothing to remember."""

    def uniform_verdict(self) -> Verdict:
        """The same for all records."""
        return self._verdict

    def verdict(self, record: Record, now_ms: int) -> Verdict:
        """The same for all records."""
        return self._verdict

    def dead_letter_sink(self) -> TopicPartition:
        """The partition of the dead-letter topic that belongs to this one."""
        if self._dead_letters is None:
            raise MisuseError(f"{self._source} has no dead-letter topic")
        return self._dead_letters().sink

    def is_stamping(self, action: Action) -> bool:
        """Dead letters tell where they come from."""
        return action is Action.DEAD

    def added_headers(self, action: Action, detail: str, record: Record) -> Headers:
        """Where the record was, and that it expired."""
        source = self._source
        origin = Origin(topic=source.topic, partition=source.partition, offset=record.offset)
        letter = dead_letters.DeadLetter(origin=origin, reason=detail)
        # A delivery may have been planned before the dead-letter topic was removed from the configs.
        style = DeadLetterHeaders.KIP1191 if self._dead_letters is None else self._dead_letters().headers
        return tuple(story_headers(letter, style))

    def on_partitions(self, partitions: int, grew_at: Offset) -> None:
        """Nothing is delivered by key."""

    def needed_from(self) -> int | None:
        """Nothing is remembered."""
        return None

    def on_start(self, start_offset: Offset) -> None:
        """Nothing is remembered."""
