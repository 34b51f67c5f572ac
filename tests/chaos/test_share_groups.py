"""A share group under faults: nothing lost, nothing acknowledged twice, no start offset that goes back.

Members are Ottla's and Java's share consumers; librdkafka and Java write. `CHAOS_SECONDS` and `CHAOS_SEED` are those of
`test_faults.py`.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.arena import Arena, arena, java_load, librdkafka_load, share_load
from tests.chaos.checker import check
from tests.chaos.faults import FAULTS, TRANSACTION_COORDINATOR_KILLED, Fault, coordinator_killed
from tests.chaos.ordeal import undergo
from tests.chaos.share_violations import share_violations
from tests.chaos.test_faults import many

CONFIGS: Final = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
}
# There are no transactions, and so no transaction coordinator.
SHARE_FAULTS: Final = (
    *(each for each in FAULTS if each is not TRANSACTION_COORDINATOR_KILLED),
    coordinator_killed("share", "__share_group_state"),
    coordinator_killed("group", "__consumer_offsets"),
)


def share_under(made: Arena, folder: Path, faults: Iterable[Fault]) -> None:
    """The loads, the faults, and what comes of them."""
    made.start_load("rd", librdkafka_load("writer"))
    made.start_load("ottla", share_load("watcher,sharer,sharer,sharer"))
    made.start_load("java", java_load(folder / "classes", "writer,sharer"))
    undergo(made, faults)
    events = made.end_loads()
    contents = made.contents()
    kinds = {event.who.split("-")[0] for event in events if event.what == "acknowledged"}
    assert {"ottla", "java"} == kinds
    # Share consumers do not read in order.
    assert [] == check([event for event in events if event.what != "acquired"], contents)[:20]
    assert [] == share_violations(events, contents)[:20]


@pytest.mark.long
def test_a_share_group_on_one_machines_store(tmp_path: Path) -> None:
    chosen = [each for each in SHARE_FAULTS if not each.needs_zookeeper]
    with arena(tmp_path, "sqlite", configs=CONFIGS) as made:
        share_under(made, tmp_path, many(chosen))


@pytest.mark.long
def test_a_share_group_on_zookeeper(tmp_path: Path) -> None:
    with arena(tmp_path, "zookeeper", configs=CONFIGS) as made:
        share_under(made, tmp_path, many(SHARE_FAULTS))
