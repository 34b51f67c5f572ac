"""Records of streams groups, byte for byte as Kafka 4.3 wrote them for the requests of `tests/wire`."""

from pathlib import Path
from typing import Final

import pytest

from ottla.coordination.groups.streams.records import CurrentRecord, EpochRecord, MemberRecord, decode, encode
from ottla.coordination.groups.streams.requests import Endpoint
from ottla.coordination.runtime.effects import CoordinatorRecord

GOLDEN: Final = Path(__file__).parents[4] / "golden" / "coordination" / "streams_group_records.txt"


def golden() -> dict[str, CoordinatorRecord]:
    records = {}
    for line in GOLDEN.read_text().splitlines():
        name, key, value = line.split()
        records[name] = CoordinatorRecord(bytes.fromhex(key), None if value == "null" else bytes.fromhex(value))
    return records


KAFKA: Final = golden()


@pytest.mark.parametrize("name", KAFKA)
def test_written_as_kafka_does(name: str) -> None:
    record = decode(KAFKA[name])
    assert record is not None
    assert KAFKA[name] == encode(record)


def test_what_kafka_wrote_is_understood() -> None:
    epoch, member, current = (decode(KAFKA[name]) for name in ("epoch", "member", "current"))
    assert isinstance(epoch, EpochRecord)
    assert epoch.value is not None
    assert (2, {"num.standby.replicas": "1"}) == (epoch.value.epoch, epoch.value.assignment_configs)
    assert isinstance(member, MemberRecord)
    assert member.value is not None
    assert ("a-process", Endpoint("app.example", 50_000), (("zone", "a"),)) == (
        member.value.process_id,
        member.value.user_endpoint,
        member.value.client_tags,
    )
    assert isinstance(current, CurrentRecord)
    kinds = {type(decode(record)).__name__ for record in KAFKA.values()}
    assert {
        "EpochRecord",
        "MemberRecord",
        "TargetEpochRecord",
        "TargetRecord",
        "CurrentRecord",
        "TopologyRecord",
    } == kinds
