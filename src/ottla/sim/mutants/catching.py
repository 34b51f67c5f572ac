"""Which seed finds each planted bug, in its own scenario.

Some bugs need a moment that random runs seldom reach: `tests/simulation/stories.py` has a story for each of these.
"""

from typing import Final

from ottla.sim.checkers.share_delivery_counts import ShareDeliveryCounts
from ottla.sim.checkers.share_finished_stay import ShareFinishedStay
from ottla.sim.checkers.share_nothing_lost import ShareNothingLost
from ottla.sim.checkers.share_one_holder import ShareOneHolder
from ottla.sim.checkers.share_start_offsets import ShareStartOffsets

CAUGHT_BY: Final = {
    "every marker commits": 0,
    "readers skip a record": 0,
    "losing the lead acknowledges": 18,
    "coordinator forgets what it writes": 0,
    "high watermark of the leader alone": 2,
    "high watermark by the fastest": 4,
    "acks before replication": 2,
    "flush forgotten": 0,
    "markers are forgotten": 2,
    "fetching counts as having": 0,
    "ISR change not fenced": 9,
    "truncation by high watermark": 0,
    "no truncation": 7,
    "truncation to the own end only": 1,
    "epoch not noted": 160,
    "epochs forgotten": 7,
    "same epoch for the next leader": 0,
    "any live replica is elected": 0,
    "lost disks are trusted": 6,
    "lost folders are not missed": 0,
    "older stores are trusted": 0,
    "damage ends the log": 1,
    "holes are not missed": 0,
    "sequence check dropped": 0,
    "followers forget producers": 0,
    "new leaders forget producers": 0,
    "coordinator answers early": 2,
    "coordinator without memory": 0,
    "open transactions are shown": 0,
    "aborted transactions are shown": 0,
    "uncommitted records are shown": 4,
    "queues deliver early": 0,
    "ties are reversed": 0,
    "deliveries are not idempotent": 0,
    "plans are not read": 0,
    "unfinished plans are forgotten": 1,
    "queues deliver aborted records": 0,
    "queues do not wait for markers": 0,
    "cancels are ignored": 0,
    "aborted cancels count": 3,
    "releases are ignored": 0,
    "cancels by offset are ignored": 0,
    "aborted instructions count": 0,
    "queues read the clock once": 4,
    "queues ignore growth": 0,
    "queues forget what they owe": 0,
    "refused records are forgotten": 0,
    "refused batches are not halved": 0,
    "attempts are not counted": 0,
    "undecided half messages are delivered": 0,
    "rollbacks are commits": 0,
    "expired records are shown": 0,
    "share locks never expire": 0,
    "share acknowledgements are answered early": 0,
    "share start offsets pass acquired records": 1,
    "share start offsets go back": 0,
    "share delivery counts are not loaded": 0,
    "share locks are ignored": 3,
}
"""The first seed that finds the bug, by its name."""

CHECKED_BY: Final = {
    "share locks are ignored": ShareOneHolder.name,
    "share start offsets pass acquired records": ShareNothingLost.name,
    "share start offsets go back": ShareStartOffsets.name,
    "share delivery counts are not loaded": ShareDeliveryCounts.name,
    "share acknowledgements are answered early": ShareFinishedStay.name,
}
"""The checker that must be among those that find the bug: it has no other planted bug."""

UNSEEN: Final = {
    "leader epoch unchecked": "the check is redundant: a broker that no longer leads cannot commit anything, since"
    " in-sync replicas fetch from the next leader, and its ISR changes by compare-and-set; what it serves is committed",
}
"""Bugs that break no guarantee by themselves, and why."""
