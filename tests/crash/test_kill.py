"""kill -9 at random moments while producers write: what was acknowledged is there afterwards, once, in order."""

import os
import threading
from functools import partial
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from tests.broker_process import BrokerProcess
from tests.crash.load import Follower, Producer, fetch_all, new_producer_id
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.world import create_topic

KILLS = int(os.environ.get("OTTLA_CRASH_KILLS", "5"))
SEED = int(os.environ.get("OTTLA_CRASH_SEED", "1"))
PRODUCERS = 4

KINDS: dict[str, tuple[int, dict[str, str]]] = {
    "as it comes": (100, {}),
    "many segments": (10_000, {"segment_bytes": str(1 << 20), "index_interval_bytes": "4096"}),
    "flushed": (100, {"flush_messages": "1"}),
}
"""Size of values, and topic configs: one segment, many, and acknowledged only once it is on the disk."""


def producers(address: str, topic_id: UUID, value_bytes: int) -> list[Producer]:
    """Plain and idempotent, with acks=all and acks=1, each on its own partition."""
    kinds = [(acks, is_idempotent) for acks in (-1, 1) for is_idempotent in (False, True)]
    return [
        Producer(
            address=address,
            topic_id=topic_id,
            partition=partition,
            acks=acks,
            producer_id=new_producer_id(address) if is_idempotent else -1,
            value_bytes=value_bytes,
        )
        for partition, (acks, is_idempotent) in enumerate(kinds)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_acknowledged_survives(tmp_path: Path, kind: str) -> None:
    random = Random(f"{SEED}-{kind}")
    value_bytes, configs = KINDS[kind]
    with BrokerProcess(tmp_path) as broker:
        with RawConnection(broker.address) as connection:
            topic_id = create_topic(connection, "load", PRODUCERS, retention_ms="-1", **configs)
        writers = producers(broker.address, topic_id, value_bytes)
        readers = [Follower(address=broker.address, topic_id=topic_id, partition=each.partition) for each in writers]
        is_over = threading.Event()
        runs = [*(each.run for each in writers), *(each.run for each in readers)]
        threads = [threading.Thread(target=run, args=(is_over,)) for run in runs]
        for thread in threads:
            thread.start()
        try:
            for _ in range(KILLS):
                wanted = [len(each.acked) + random.randint(1, 300) for each in writers]
                wait_until(partial(any_reached, writers, wanted), "some batches are acknowledged")
                broker.kill()
                broker.start()
            before = [len(each.acked) for each in writers]
            wait_until(lambda: all(len(w.acked) > n for w, n in zip(writers, before, strict=True)), "all go on")
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        check(broker, topic_id, writers, readers)
        broker.stop()
        broker.start()
        check(broker, topic_id, writers, readers)
        assert [] == broker.alarms()
        segments = len(list((broker.data / "load-0").glob("*.log")))
        assert (kind == "many segments") == (segments > 1)


def any_reached(writers: list[Producer], wanted: list[int]) -> bool:
    return any(len(writer.acked) >= count for writer, count in zip(writers, wanted, strict=True))


def check(broker: BrokerProcess, topic_id: UUID, writers: list[Producer], readers: list[Follower]) -> None:
    for writer, reader in zip(writers, readers, strict=True):
        records = fetch_all(broker.address, topic_id, writer.partition)
        print(f"partition {writer.partition}: {len(writer.acked)} batches acknowledged, {len(records)} records")
        writer.check(records)
        # What a consumer had read before a kill is still what is there: nothing it saw was taken back.
        assert reader.read == records[: len(reader.read)]
        assert len(reader.read) > 0
