"""A disk that refuses single appends does not make an idempotent producer send records twice.

librdkafka begins a new producer epoch if a sequence is refused as out of order, and sends in it all that is not
acknowledged; a log recognises a repeated batch within an epoch only.
"""

import asyncio
import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from ottla.env.real_disk import RealFile
from ottla.env.world import real_world
from tests.broker.queues.test_delayed_delivery import read
from tests.broker.running_broker import broker_on, make_topic
from tests.broker.sick_disk import SickDisk
from tests.waiting import until


class FullDisk(SickDisk):
    """Refuses the next `appends` to the log, and leader epochs as long as `has_no_epochs`."""

    def __init__(self) -> None:
        super().__init__()
        self.appends = 0
        self.has_no_epochs = False

    def check(self, operation: str, path: str) -> None:
        super().check(operation, path)
        if operation == "write" and self.appends and path.endswith(".log") and "/t-0/" in path:
            self.appends -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> RealFile:
        if self.has_no_epochs and "leader-epoch" in path and create:
            self.failed += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return super().open(path, create=create, writable=writable)


async def test_librdkafka_sends_no_record_twice(tmp_path: Path) -> None:
    disk = FullDisk()
    async with broker_on(tmp_path, world=replace(real_world(), disk=disk)) as broker:
        await make_topic(broker, "t", 1, flush_messages="1")
        await make_topic(broker, "u")
        (log,) = broker.partitions.of_topic("t")
        (other,) = broker.partitions.of_topic("u")
        options = {
            "bootstrap.servers": f"127.0.0.1:{broker.port}",
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "retry.backoff.ms": 500,
        }
        producer = Producer(options)
        outcomes: dict[bytes, Any] = {}

        def send(topic: str, value: bytes) -> None:
            producer.produce(topic, value, partition=0, on_delivery=lambda error, _: outcomes.update({value: error}))

        send("u", b"connected")
        await asyncio.to_thread(producer.flush)
        # The first record is written, and not acknowledged: its sync hangs.
        disk.hang("t-0")
        disk.has_no_epochs = True
        send("t", b"1")
        await until(lambda: disk.hung == 1)
        # The second is refused; the third arrives behind it.
        disk.appends = 1
        send("t", b"2")
        await until(lambda: disk.appends == 0)
        send("t", b"3")
        send("u", b"behind them")
        await until(lambda: other.high_watermark == 2)
        assert log.end_offset == 1
        # The sync ends, but not the flush: the producer is told that the first may be lost.
        disk.heal()
        await until(lambda: disk.failed > 0)
        disk.has_no_epochs = False
        await asyncio.to_thread(producer.flush)
        assert {b"connected": None, b"1": None, b"2": None, b"3": None, b"behind them": None} == outcomes
        stored = [record.value for record, _ in await read(broker, log.high_watermark)]
        assert [b"1", b"2", b"3"] == stored
