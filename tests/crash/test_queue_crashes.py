"""The end of the broker at each step of a delayed delivery: the next one delivers every record, and none twice.

A batch of records is parked once, and at each step of its delivery the broker's files are copied (`watched_disk.py`).
A new broker opens each copy. Killed, the broker leaves all that it had written; a power cut takes what was not synced,
which with `log.flush.interval.messages=1` is nothing that was acknowledged or that a later step depends on.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from ottla import AsyncConsumer, AsyncProducer, ConsumerRecord
from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.values import NewTopic
from ottla.queues.progress_records import Done, Plan, Snapshot
from tests.crash.doomed_broker import DoomedBroker
from tests.crash.places import end_offsets
from tests.crash.queue_steps import noted
from tests.crash.watched_disk import Point, Sees, records_in
from tests.waiting import wait_until

TARGET: Final = "t"
COMPANION: Final = "t.delayed"
COUNT: Final = 20
SOON_SECONDS: Final = 30
QUIET_SECONDS: Final = 0.3
FLUSHED: Final = {"log.flush.interval.messages": "1"}


STEPS: Final[dict[str, Sees]] = {
    "parked": records_in(COMPANION),
    "producer id noted": noted(COMPANION, Snapshot),
    "planned": noted(COMPANION, Plan),
    "appended": records_in(TARGET),
    "progress noted": noted(COMPANION, Done),
}
MOMENTS: Final = [
    (f"{'after' if is_after else 'before'} {name}", sees, is_after)
    for name, sees in STEPS.items()
    for is_after in (False, True)
    if (name, is_after) != ("parked", False)
]


async def create(address: str) -> None:
    async with AsyncAdmin(bootstrap_servers=address) as admin:
        topic = NewTopic(TARGET, 1, 1, topic_configs={"ottla.delay.enable": "true"})
        (await admin.create_topics([topic])).checked()


async def park(address: str, delays_ms: Sequence[int]) -> None:
    async with AsyncProducer(bootstrap_servers=address, linger_ms=50) as producer:
        sends = [
            producer.send(COMPANION, b"%d" % number, partition=0, headers=[("ottla.delay-ms", b"%d" % delay_ms)])
            for number, delay_ms in enumerate(delays_ms)
        ]
        await asyncio.gather(*sends)


async def read(address: str, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    async with AsyncConsumer(
        TARGET, bootstrap_servers=address, group_id=None, auto_offset_reset="earliest"
    ) as consumer:
        async with asyncio.timeout(SOON_SECONDS):
            async for record in consumer:
                found.append(record)
                if len(found) == count:
                    break
    return found


def check_delivered_once(address: str) -> None:
    """All records are in the target, in the order of their due times, and stay the only ones."""
    found = asyncio.run(read(address, COUNT))
    assert [b"%d" % number for number in reversed(range(COUNT))] == [record.value for record in found]
    time.sleep(QUIET_SECONDS)  # in which a second delivery would come
    assert end_offsets(address, TARGET, 1, is_committed=False) == [COUNT]


@pytest.mark.parametrize("loses_unsynced", [False, True], ids=["killed", "power cut"])
def test_each_step(tmp_path: Path, loses_unsynced: bool) -> None:
    points = {
        name: Point(sees=sees, is_after=is_after, loses_unsynced=loses_unsynced)
        for name, sees, is_after in MOMENTS
        # Written, but not synced: a power cut takes what was not acknowledged.
        if not (loses_unsynced and name == "after parked")
    }
    with DoomedBroker(tmp_path / "data", settings=FLUSHED) as broker:
        asyncio.run(create(broker.address))
        broker.watch(points)
        # The last one is due first.
        asyncio.run(park(broker.address, [400 + 10 * (COUNT - number) for number in range(COUNT)]))
        check_delivered_once(broker.address)
        wait_until(lambda: all(broker.has_reached(name) for name in points), "every step was seen")
        copies = {name: broker.left_at(name) for name in points}
    for name in points:
        with DoomedBroker(copies[name], settings=FLUSHED) as broker:
            check_delivered_once(broker.address)
