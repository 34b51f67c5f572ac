"""What clients know about records that a queue owes: delayed, handed back, or with a TTL.

Workloads write it, checkers read it. A name identifies a record for good: the value of a delayed record, or value and
attempt of one that was handed back.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from ottla.model.dead_letters import DELIVERY_COUNT
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import RETRY_ATTEMPT, dead_letter_topic, redelivery_topic
from ottla.sim.clock import START_MS
from ottla.sim.machine_clock import MachineClock

ORDERS = "orders"
"""Its records may be delayed."""
JOBS = "jobs"
"""Its records may be handed back by the group."""
OFFERS = "offers"
"""Its records may expire."""
TRANSFERS = "transfers"
"""Its records may be prepared, and committed or rolled back later."""
GROUP = "workers"
REDELIVERED = redelivery_topic(JOBS, GROUP)
REJECTED = dead_letter_topic(JOBS)
EXPIRED = dead_letter_topic(OFFERS)
SINKS = (ORDERS, dead_letter_topic(ORDERS), REDELIVERED, REJECTED, EXPIRED, TRANSFERS, dead_letter_topic(TRANSFERS))
"""The topics that queues deliver to."""
Headers = Iterable[tuple[str, bytes | None]]


@dataclass(slots=True, kw_only=True)
class Owed:
    """One record, as its producer knows it.

    `outcome` is "arrives" once it was acknowledged or its transaction committed, "aborted", or "unknown".
    """

    name: bytes
    sink: str
    """The topic where it arrives."""
    parked_in: TopicPartition
    sent_at: float
    """When it was sent, in seconds of the world's time."""
    delay_ms: int = 0
    """How long it is held at least, unless `at_ms` says when it is due."""
    at_ms: int | None = None
    key: bytes | None = None
    id: bytes | None = None
    transaction: str | None = None
    outcome: str = "unknown"
    acked_at: float | None = None
    cancelled_at: float | None = None
    """When a cancel of it was acknowledged."""
    is_cancel_transactional: bool = False
    """Whether the cancel was in a transaction: it counts when the marker is written, some time after the commit."""
    is_half: bool = False
    """Whether it is a half message, which is delivered if committed, and a dead letter if not decided in time."""
    decided_at: float | None = None
    """When the first decision about a half message was sent."""
    may_be_cancelled: bool = False
    """Whether a cancel of it was sent; the client does not know whether it was written."""
    offset: int | None = None
    """Its offset where it is parked, once it was acknowledged outside of a transaction."""
    released_at: float | None = None
    """When it was first asked to be due at once; None again if that was aborted."""
    release_acked_at: float | None = None
    """When that was acknowledged."""

    def due_from(self, clocks: Iterable[MachineClock]) -> float:
        """The earliest moment at which a broker may hold it for due, in seconds of the world's time."""
        due = self.parked_until(clocks)
        return due if self.released_at is None else min(due, self.released_at)

    def parked_until(self, clocks: Iterable[MachineClock]) -> float:
        """The same if it was never released.

        A broker stamps when a record is due by its clock, and another broker may deliver it by its own.
        """
        if self.is_half:
            return inf if self.decided_at is None else self.decided_at
        leads = [clock.leads_ms() for clock in clocks]
        least, most = min(low for low, _ in leads), max(high for _, high in leads)
        if self.at_ms is not None:
            return max(self.sent_at, (self.at_ms - START_MS - most) / 1000)
        return max(self.sent_at, self.sent_at + (self.delay_ms - (most - least)) / 1000)

    @property
    def must_arrive(self) -> bool:
        """Whether it must be delivered in the end."""
        return self.outcome == "arrives" and self.cancelled_at is None and not self.may_be_cancelled


class Arrival(NamedTuple):
    """A record in a topic that queues deliver to."""

    name: bytes
    partition: TopicPartition
    offset: int
    headers: tuple[tuple[str, bytes | None], ...]

    def header(self, name: str) -> str:
        """The value of a header; "" if it is missing."""
        return next(((value or b"").decode() for found, value in self.headers if found == name), "")


class QueueHistory:
    """The records of one run that queues owed."""

    def __init__(self) -> None:
        self.owed: dict[bytes, Owed] = {}
        self.expiry_ms: dict[bytes, int] = {}
        """When each record of the topic with TTLs expires."""
        self.offers_acked: dict[bytes, tuple[TopicPartition, int]] = {}
        """Where each acknowledged record of that topic is."""
        self.seen_at: dict[bytes, float] = {}
        """When each record was first seen in its sink."""
        self.handed_back: set[bytes] = set()
        """Names of records that the group has handed back again, or is done with."""
        self.answered: dict[TopicPartition, int] = {}
        """How far questions about half messages were answered."""
        self.grew_at: tuple[float, float] | None = None
        """When the delayed topic's growth was asked for, and when it was acknowledged."""


def name_of(topic: str, value: bytes, headers: Headers) -> bytes:
    """The name of a record that arrived."""
    count = {REDELIVERED: RETRY_ATTEMPT, REJECTED: DELIVERY_COUNT}.get(topic)
    if count is None:
        return value
    return retry_name(value, int(dict(headers).get(count) or b"0"))


def retry_name(value: bytes, attempt: int) -> bytes:
    """The name of a record that was handed back for this time."""
    return value + b"#%d" % attempt
