"""What a fetch session (KIP-227) saves a consumer of many partitions: one record at a time, to one of 1,000 partitions.

Both rivals are the same consumer against the same broker process; one asks its broker to remember what it wants, the
other names every partition in every request. What is timed is the way of a record from its producer to the consumer,
which for so small a record is the handling of one fetch on both sides.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from benchmarks.measure import Goal, Result, interleaved, report
from ottla.client.admin.topic_requests import create_topic
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.fetch import fetcher
from ottla.client.fetch.fetch_session_state import FetchSessionState
from ottla.client.network.cluster import Cluster
from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.ids import TopicPartition
from ottla.transport.addresses import parse_bootstrap
from tests.broker_process import BrokerProcess

PARTITIONS: Final = 1_000
RECORDS: Final = 200
RECORDS_QUICK: Final = 20
TOPIC: Final = "many"


class _Standalone(FetchSessionState):
    """Has every request name everything."""

    def __init__(self, *, is_lasting: bool = True) -> None:
        super().__init__(is_lasting=False)


async def _race(address: str, records: int, turn: Callable[[Callable[[str], float]], Awaitable[None]]) -> None:
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    consumers: dict[str, AsyncConsumer] = {}
    async with Cluster(parse_bootstrap(address)) as cluster:
        await create_topic(cluster, TOPIC, partitions=PARTITIONS)
    async with AsyncProducer(bootstrap_servers=address, linger_ms=0) as producer:
        for name, kind in (("session", FetchSessionState), ("every partition", _Standalone)):
            fetcher.FetchSessionState = kind  # type: ignore[attr-defined]
            consumer = consumers[name] = AsyncConsumer(bootstrap_servers=address, auto_offset_reset="latest")
            consumer.assign(partitions)
            for partition in partitions:
                await consumer.position(partition)
        loop = asyncio.get_running_loop()

        async def pass_records(name: str) -> float:
            for other, consumer in consumers.items():
                (consumer.resume if other == name else consumer.pause)(*partitions)
            consumer = consumers[name]
            for number in range(records):
                await producer.send_and_wait(TOPIC, b"x" * 100, partition=number * 7 % PARTITIONS)
                while not await consumer.poll(1000):
                    pass
            return float(records)

        await turn(lambda name: asyncio.run_coroutine_threadsafe(pass_records(name), loop).result())
        for consumer in consumers.values():
            await consumer.close()


def run(quick: bool = False) -> list[Result]:
    """Records a second, from producer to consumer."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, BrokerProcess(Path(folder)) as broker:

        async def turn(pass_records: Callable[[str], float]) -> None:
            results.append(
                await asyncio.to_thread(
                    interleaved,
                    {
                        "session": lambda: pass_records("session"),
                        "every partition": lambda: pass_records("every partition"),
                    },
                    title=f"one record at a time, {PARTITIONS} partitions assigned",
                    unit="records",
                    baseline="every partition",
                    goals=[Goal(rival="session", at_least=1.5)],
                    quick=quick,
                )
            )

        asyncio.run(_race(broker.address, RECORDS_QUICK if quick else RECORDS, turn))
    return results


if __name__ == "__main__":
    report(run())
