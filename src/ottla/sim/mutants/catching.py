"""Which seed finds each planted bug, in its own scenario.

Some bugs need a moment that random lives seldom meet: `tests/simulation/stories.py` tells of these.
"""

from typing import Final

CAUGHT_BY: Final = {
    "every marker commits": 0,
    "readers skip a record": 0,
    "losing the lead acknowledges": 2,
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
    "epoch not noted": 8,
    "epochs forgotten": 7,
    "same epoch for the next leader": 0,
    "anybody is elected": 0,
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
}
"""The seed, by the bug's name; the first that does."""

UNSEEN: Final = {
    "leader epoch unchecked": "a second lock on one door: a broker that leads no more cannot commit anything, since"
    " those in sync ask the next leader, and its ISR is changed by compare-and-set; what it still shows is committed",
}
"""Bugs that break no promise by themselves, and why."""
