"""Followers copy expired records too, also while the leader does not know their registration yet."""

import asyncio
from pathlib import Path

import pytest

from ottla.protocol.apis import ApiKey
from ottla.records.batch import scan
from ottla.records.decode import decode_records
from tests.broker.inside import append
from tests.broker.running_broker import make_topic, running
from tests.unit.storage.rig import batch
from tests.wire.exchange import RawConnection

LONG_AGO = 1_000


def fetched(port: int, replica_id: int) -> list[bytes | None]:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 2**20, "log_start_offset": -1}
    request = {"max_bytes": 2**20, "session_epoch": -1, "replica_id": replica_id}
    with RawConnection(f"127.0.0.1:{port}") as connection:
        answer = connection.ask(ApiKey.FETCH, 12, {**request, "topics": [{"topic": "t", "partitions": [part]}]})
    (found,) = answer.responses[0].partitions
    return [
        record.value for each in scan(found.records or b"")[0] if not each.is_control for record in decode_records(each)
    ]


@pytest.mark.parametrize(("replica_id", "expected"), [(-1, []), (7, [b"a", b"b"])])
async def test_only_consumers_are_spared_expired_records(
    tmp_path: Path, replica_id: int, expected: list[bytes]
) -> None:
    async with running(tmp_path) as broker:
        await make_topic(broker, "t", ottla_ttl_ms="1000")
        append(broker.partitions.find("t", 0), batch(b"a", b"b", timestamp=LONG_AGO))
        assert expected == await asyncio.to_thread(fetched, broker.port, replica_id)
