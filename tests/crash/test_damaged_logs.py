"""A broker process whose files are damaged while it is down: what can be read is served, and every loss is logged.

One broker and one replica, so that nobody else has the records. With more replicas the damaged copy is set aside and
copied again: `tests/broker/replication/test_log_repairs.py`.
"""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from ottla.records.record import Record
from ottla.storage.data_dirs import names
from tests.broker_process import BrokerProcess
from tests.crash.load import Producer, RefusedError, ask, fetch
from tests.hostile.requests import SPAN
from tests.wire.exchange import RawConnection
from tests.wire.world import create_topic

BATCHES = 240
RECORDS = 5
COUNT = BATCHES * RECORDS
VALUE_BYTES = 2_000


def filled(broker: BrokerProcess) -> Producer:
    """A partition of about 1,200 acknowledged records in three segments or more."""
    with RawConnection(broker.address) as connection:
        topic_id = create_topic(connection, "t", 1, retention_ms="-1", segment_bytes=str(1 << 20))
    producer = Producer(
        address=broker.address, topic_id=topic_id, partition=0, acks=-1, records=RECORDS, value_bytes=VALUE_BYTES
    )
    for _ in range(BATCHES):
        producer.send_once()
    producer.close()
    return producer


def segments(broker: BrokerProcess) -> list[Path]:
    found = sorted((broker.data / "t-0").glob("*.log"))
    assert len(found) > 2
    return found


def readable(address: str, topic_id: UUID, end: int) -> list[Record]:
    """What a consumer gets that steps over each offset at which it is refused."""
    records: list[Record] = []
    offset = 0
    with RawConnection(address) as connection:
        while offset < end:
            try:
                more = fetch(connection, topic_id, 0, offset)
            except RefusedError as refused:
                if refused.code is not ErrorCode.corrupt_message:
                    raise
                offset += 1
                continue
            if not more:
                break
            records += more
            offset = records[-1].offset + 1
    return records


def earliest(address: str, topic: str) -> int:
    part = {"partition_index": 0, "timestamp": -2}
    answer = ask(address, ApiKey.LIST_OFFSETS, {"topics": [{"name": topic, "partitions": [part]}], "timeout": SPAN})
    return int(answer.topics[0].partitions[0].offset)


def check(broker: BrokerProcess, producer: Producer, gone: range) -> None:
    """All records are there but these; the next one gets an offset that none had; and the log says what is missing."""
    expected = [offset for offset in range(COUNT) if offset not in gone]
    records = readable(broker.address, producer.topic_id, COUNT)
    assert expected == [record.offset for record in records]
    for record in records:
        number, place = divmod(record.offset, RECORDS)
        assert (record.value or b"").startswith(f"0/{number}/{place} ".encode())
    assert f"offsets {gone[0]} to {gone[-1]} cannot be read ({len(gone)} records at most)" in broker.log()
    assert " ERROR " in "".join(line for line in broker.log().splitlines() if "cannot be read" in line)
    # A control batch follows lost records at the end.
    assert COUNT + (gone[-1] == COUNT - 1) == producer.send_once()


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
class TestOneBroker:
    @pytest.fixture
    def end(self, is_killed: bool) -> Callable[[BrokerProcess], None]:
        """How the broker ends."""
        return BrokerProcess.kill if is_killed else BrokerProcess.stop

    def test_a_missing_segment(self, tmp_path: Path, end: Callable[[BrokerProcess], None]) -> None:
        with BrokerProcess(tmp_path) as broker:
            producer = filled(broker)
            end(broker)
            _, second, third, *_ = segments(broker)
            for path in second.parent.glob(f"{second.stem}.*"):
                path.unlink()
            broker.start()
            check(broker, producer, range(int(second.stem), int(third.stem)))

    def test_it_is_told_again_at_the_next_start(self, tmp_path: Path, end: Callable[[BrokerProcess], None]) -> None:
        with BrokerProcess(tmp_path) as broker:
            filled(broker)
            end(broker)
            segments(broker)[1].unlink()
            for start in range(1, 4):
                broker.start()
                assert start == broker.log().count("cannot be read")
                end(broker)


def test_bytes_that_change_after_a_kill(tmp_path: Path) -> None:
    """Nothing had been flushed, and yet everything had been acknowledged: only what is damaged is lost."""
    with BrokerProcess(tmp_path) as broker:
        producer = filled(broker)
        broker.kill()
        before = segments(broker)
        content = bytearray(before[0].read_bytes())
        size = len(content) // (int(before[1].stem) // RECORDS)
        for position in range(10 * size + 300, 10 * size + 303):
            content[position] ^= 0xFF
        before[0].write_bytes(content)
        broker.start()
        check(broker, producer, range(10 * RECORDS, 11 * RECORDS))
        assert bytes(content) == before[0].read_bytes()
        assert set(before) <= set(segments(broker))
        broker.stop()
        broker.start()
        assert len(readable(broker.address, producer.topic_id, COUNT + RECORDS)) == COUNT


def test_the_first_segment_is_missing_after_a_stop(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        producer = filled(broker)
        broker.stop()
        first, second, *_ = segments(broker)
        for path in first.parent.glob(f"{first.stem}.*"):
            path.unlink()
        broker.start()
        assert 0 == earliest(broker.address, "t")
        check(broker, producer, range(int(second.stem)))


def test_a_log_seven_bytes_short_after_a_stop(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        producer = filled(broker)
        broker.stop()
        last = segments(broker)[-1]
        last.write_bytes(last.read_bytes()[:-7])
        broker.start()
        check(broker, producer, range(COUNT - RECORDS, COUNT))


def test_a_write_that_a_kill_cut_short(tmp_path: Path) -> None:
    """It was never acknowledged; its offsets are given to the next records, and the log says what was cut off."""
    with BrokerProcess(tmp_path) as broker:
        producer = filled(broker)
        broker.kill()
        last = segments(broker)[-1]
        size = last.stat().st_size
        last.write_bytes(last.read_bytes() + producer.batch(BATCHES)[:999])
        broker.start()
        assert COUNT == len(readable(broker.address, producer.topic_id, COUNT))
        assert f"{last}, byte {size}: " in broker.log()
        assert f"truncated a torn tail of 999 bytes, the log ends at offset {COUNT}" in broker.log()
        assert 999 == (last.parent / f"{last.name}.{size}{names.ASIDE}").stat().st_size
        assert size == last.stat().st_size
        assert COUNT == producer.send_once()
