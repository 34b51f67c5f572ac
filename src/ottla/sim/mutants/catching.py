"""Which seed finds each planted bug, in its own scenario.

Bugs of `planted.py` that are not here have not been found by the seeds that were tried.
"""

from typing import Final

CAUGHT_BY: Final = {
    "every marker commits": 0,
    "readers skip a record": 0,
    "losing the lead acknowledges": 1,
    "coordinator forgets what it writes": 0,
    "high watermark of the leader alone": 1,
    "high watermark by the fastest": 4,
    "acks before replication": 1,
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
    "sequence check dropped": 0,
    "followers forget producers": 0,
    "new leaders forget producers": 0,
    "marker before prepare is durable": 2,
    "coordinator answers early": 0,
    "coordinator without memory": 0,
    "open transactions are shown": 0,
    "aborted transactions are shown": 0,
    "uncommitted records are shown": 4,
}
"""The seed, by the bug's name; the first that does."""
