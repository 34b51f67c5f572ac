"""Keys and values of the metadata store: round trips, fields of the future, damage."""

from uuid import UUID

import pytest

from ottla.metadata.image import BrokerImage, PartitionImage
from ottla.metadata.records import (
    BrokerRecord,
    ClaimsRecord,
    ClusterRecord,
    ConfigsRecord,
    ControllerRecord,
    DeletedTopicRecord,
    FolderClaim,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RecoveryRecord,
    TopicRecord,
    broker_configs_key,
    broker_key,
    broker_record,
    decode,
    encode,
    partition_image,
    partition_key,
    partition_record,
    topic_configs_key,
    topic_key,
)
from ottla.model.errors import CorruptError
from ottla.model.ids import BrokerId, LeaderEpoch

PARTITION = PartitionImage(
    replicas=(BrokerId(1), BrokerId(2)),
    isr=(BrokerId(1),),
    leader=BrokerId(1),
    leader_epoch=LeaderEpoch(4),
    partition_epoch=7,
    adding=(BrokerId(2),),
    removing=(BrokerId(3),),
)


@pytest.mark.parametrize(
    "record",
    [
        ClusterRecord(id="c"),
        BrokerRecord(host="h", port=1, rack="r"),
        BrokerRecord(host="h", port=1),
        ControllerRecord(broker=BrokerId(3)),
        TopicRecord(id=UUID(int=5)),
        partition_record(PARTITION),
        ConfigsRecord(configs={"a": "ü"}),
        ProducerIdsRecord(next_id=2**62),
        ClusterRecord(id="c", history="h"),
        DeletedTopicRecord(name="t"),
        RecoveryRecord(awaited=(BrokerId(0), BrokerId(2)), adopts_topics=True),
        ClaimsRecord(
            folders=(FolderClaim("t", 3, UUID(int=5), 7, 100, 8), FolderClaim("u", 0, None, -1, 0)), next_producer_id=4
        ),
    ],
    ids=lambda record: type(record).__name__,
)
def test_round_trip(record: Record) -> None:
    assert record == decode("k", encode(record), type(record))


def test_values_are_readable() -> None:
    """A person with the sqlite3 shell, or an older version, reads these: they are not to change."""
    assert b'{"id":"00000000-0000-0000-0000-000000000005"}' == encode(TopicRecord(id=UUID(int=5)))
    assert b'{"replicas":[0],"isr":[0],"leader":0,"leader_epoch":0}' == encode(
        PartitionRecord(replicas=(BrokerId(0),), isr=(BrokerId(0),), leader=BrokerId(0), leader_epoch=LeaderEpoch(0))
    )
    assert b'{"host":"h","port":9092}' == encode(broker_record(BrokerImage(id=BrokerId(1), host="h", port=9092)))


def test_partition_as_image() -> None:
    assert PARTITION == partition_image(partition_record(PARTITION))


def test_unknown_fields_are_ignored() -> None:
    assert ClusterRecord(id="c") == decode("cluster", b'{"id":"c","colour":"green"}', ClusterRecord)


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"{}", b'{"id":5}', b'{"id":"\xff"}', b"null"])
def test_broken_value_names_its_key(value: bytes) -> None:
    with pytest.raises(CorruptError, match="'topics/orders' is not a TopicRecord"):
        decode("topics/orders", value, TopicRecord)


def test_keys() -> None:
    assert "brokers/7" == broker_key(BrokerId(7))
    assert "topics/a.b" == topic_key("a.b")
    assert "partitions/a/3" == partition_key("a", 3)
    assert "configs/topics/a" == topic_configs_key("a")
    assert ["configs/brokers/7", "configs/brokers/default"] == [broker_configs_key("7"), broker_configs_key("")]
