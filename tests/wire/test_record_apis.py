"""The APIs about records, in every version: what they carry, and that not a byte is left over."""

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from tests.wire.exchange import RawConnection, every_version
from tests.wire.world import (
    FIRST_TIMESTAMP,
    RECORDS,
    TIMEOUT,
    World,
    batch,
    create_topic,
    produce,
    unused_name,
    wanted,
)

_EPOCH_BYTES = slice(12, 16)
"""Where the leader stamps its epoch into a batch."""


@every_version(ApiKey.PRODUCE)
def test_produce(connection: RawConnection, version: int) -> None:
    name = unused_name()
    topic_id = create_topic(connection, name, 2)
    part = {"records": batch()}
    good, bad = wanted(name, topic_id, index=1, **part), wanted(name, topic_id, index=7, **part)
    request = {"acks": 1, "timeout": TIMEOUT, "transactional_id": None}
    for base_offset in (0, RECORDS):
        answer = connection.ask(ApiKey.PRODUCE, version, {**request, "topic_data": [good]})
        (topic,) = answer.responses
        (found,) = topic.partition_responses
        assert (topic_id if version >= 13 else name) == (topic.topic_id if version >= 13 else topic.name)
        assert (ErrorCode.none, 1, base_offset) == (found.error_code, found.index, found.base_offset)
        assert found.log_append_time is None
        if version >= 5:
            assert 0 == found.log_start_offset
        if version >= 8:
            assert ((), None) == (found.record_errors, found.error_message)
    answer = connection.ask(ApiKey.PRODUCE, version, {**request, "topic_data": [bad]})
    (found,) = answer.responses[0].partition_responses
    assert (ErrorCode.unknown_topic_or_partition, -1) == (found.error_code, found.base_offset)


@every_version(ApiKey.FETCH)
def test_fetch(connection: RawConnection, world: World, version: int) -> None:
    request = {"max_wait": TIMEOUT, "min_bytes": 1, "max_bytes": 2**20, "session_epoch": -1, "replica_id": -1}
    part = {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 2**20, "log_start_offset": -1}
    answer = connection.ask(ApiKey.FETCH, version, {**request, "topics": world.wanted(**part)})
    (topic,) = answer.responses
    (found,) = topic.partitions
    assert (world.topic_id if version >= 13 else world.topic) == (topic.topic_id if version >= 13 else topic.topic)
    assert (ErrorCode.none, 0) == (found.error_code, found.partition_index)
    assert (RECORDS, RECORDS) == (found.high_watermark, found.last_stable_offset)
    records = bytearray(found.records)
    records[_EPOCH_BYTES] = batch()[_EPOCH_BYTES]
    assert batch() == bytes(records)
    if version >= 5:
        assert 0 == found.log_start_offset
    if version >= 7:
        assert (ErrorCode.none, 0) == (answer.error_code, answer.session_id)
    if version >= 11:
        assert -1 == found.preferred_read_replica


@every_version(ApiKey.FETCH)
def test_fetch_out_of_range(connection: RawConnection, world: World, version: int) -> None:
    part = {"partition": 0, "fetch_offset": RECORDS + 1, "partition_max_bytes": 2**20, "log_start_offset": -1}
    request = {"max_bytes": 2**20, "session_epoch": -1, "replica_id": -1}
    answer = connection.ask(ApiKey.FETCH, version, {**request, "topics": world.wanted(**part)})
    (found,) = answer.responses[0].partitions
    assert ErrorCode.offset_out_of_range is found.error_code
    assert b"" == bytes(found.records)


@every_version(ApiKey.LIST_OFFSETS)
def test_list_offsets(connection: RawConnection, world: World, version: int) -> None:
    cases = {-1: (RECORDS, -1), -2: (0, -1), FIRST_TIMESTAMP + 2: (2, FIRST_TIMESTAMP + 2), 2**61: (-1, -1)}
    if version >= 7:
        cases[-3] = (RECORDS - 1, FIRST_TIMESTAMP + RECORDS - 1)
    if version >= 8:
        cases[-4] = (0, -1)
    if version >= 9:
        cases[-5] = (-1, -1)
    if version >= 11:
        cases[-6] = (-1, -1)
    for timestamp, expected in cases.items():
        part = {"partition_index": 0, "timestamp": timestamp}
        request = {"replica_id": -1, "timeout": TIMEOUT, "topics": world.wanted(**part)}
        answer = connection.ask(ApiKey.LIST_OFFSETS, version, request)
        (topic,) = answer.topics
        (found,) = topic.partitions
        assert (world.topic, ErrorCode.none, 0) == (topic.name, found.error_code, found.partition_index)
        assert expected == (found.offset, found.timestamp)
        if version >= 4:
            assert (0 if expected[0] >= 0 else -1) == found.leader_epoch


@every_version(ApiKey.LIST_OFFSETS)
def test_list_offsets_of_timestamps_that_a_version_does_not_know(
    connection: RawConnection, world: World, version: int
) -> None:
    since = {-3: 7, -4: 8, -5: 9, -6: 11, -7: 99}
    for timestamp, first_version in since.items():
        if version >= first_version:
            continue
        part = {"partition_index": 0, "timestamp": timestamp}
        request = {"replica_id": -1, "timeout": TIMEOUT, "topics": world.wanted(**part)}
        answer = connection.ask(ApiKey.LIST_OFFSETS, version, request)
        (found,) = answer.topics[0].partitions
        assert (ErrorCode.unsupported_version, -1) == (found.error_code, found.offset)


@every_version(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def test_offset_for_leader_epoch(connection: RawConnection, world: World, version: int) -> None:
    cases = {
        (0, -1, 0): (ErrorCode.none, 0, RECORDS),
        (0, 0, 5): (ErrorCode.none, -1, -1),
        (0, 7, 0): (ErrorCode.unknown_leader_epoch, -1, -1),
        (9, -1, 0): (ErrorCode.unknown_topic_or_partition, -1, -1),
    }
    for (index, current, epoch), expected in cases.items():
        part = {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
        request = {"replica_id": -1, "topics": world.wanted(**part)}
        answer = connection.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
        (topic,) = answer.topics
        (found,) = topic.partitions
        assert (world.topic, index) == (topic.topic, found.partition)
        assert expected == (found.error_code, found.leader_epoch, found.end_offset)


@every_version(ApiKey.DELETE_RECORDS)
def test_delete_records(connection: RawConnection, version: int) -> None:
    name = unused_name()
    topic_id = create_topic(connection, name)
    produce(connection, topic_id, batch())
    cases = {
        (0, 1): (ErrorCode.none, 1),
        (0, 0): (ErrorCode.none, 1),
        (0, RECORDS + 1): (ErrorCode.offset_out_of_range, -1),
        (0, -2): (ErrorCode.offset_out_of_range, -1),
        (5, 0): (ErrorCode.unknown_topic_or_partition, -1),
        (0, -1): (ErrorCode.none, RECORDS),
    }
    for (index, offset), expected in cases.items():
        part = {"partition_index": index, "offset": offset}
        request = {"timeout": TIMEOUT, "topics": [wanted(name, topic_id, **part)]}
        (topic,) = connection.ask(ApiKey.DELETE_RECORDS, version, request).topics
        (found,) = topic.partitions
        assert (name, index) == (topic.name, found.partition_index)
        assert expected == (found.error_code, found.low_watermark)


@every_version(ApiKey.INIT_PRODUCER_ID)
def test_init_producer_id(connection: RawConnection, version: int) -> None:
    request = {"transactional_id": None, "transaction_timeout": TIMEOUT}
    first = connection.ask(ApiKey.INIT_PRODUCER_ID, version, request)
    second = connection.ask(ApiKey.INIT_PRODUCER_ID, version, request)
    assert (ErrorCode.none, 0) == (first.error_code, first.producer_epoch)
    assert 0 <= first.producer_id < second.producer_id
    refused = connection.ask(ApiKey.INIT_PRODUCER_ID, version, {**request, "transactional_id": ""})
    assert (ErrorCode.invalid_request, -1, -1) == (refused.error_code, refused.producer_id, refused.producer_epoch)
    if version >= 3:
        refused = connection.ask(ApiKey.INIT_PRODUCER_ID, version, {**request, "producer_id": 5})
        assert ErrorCode.invalid_request is refused.error_code
        known = {"producer_id": first.producer_id, "producer_epoch": 0}
        again = connection.ask(ApiKey.INIT_PRODUCER_ID, version, {**request, **known})
        assert (ErrorCode.none, 0) == (again.error_code, again.producer_epoch)
        assert second.producer_id < again.producer_id


@every_version(ApiKey.DESCRIBE_PRODUCERS)
def test_describe_producers(connection: RawConnection, version: int) -> None:
    name = unused_name()
    topic_id = create_topic(connection, name)
    identity = connection.ask_newest(ApiKey.INIT_PRODUCER_ID, {"transactional_id": None})
    produce(connection, topic_id, batch(identity.producer_id))
    request = {"topics": [{"name": name, "partition_indexes": [0, 9]}, {"name": "no such", "partition_indexes": [0]}]}
    answer = connection.ask(ApiKey.DESCRIBE_PRODUCERS, version, request)
    here, missing = answer.topics[0].partitions
    (producer,) = here.active_producers
    assert (ErrorCode.none, identity.producer_id, 0) == (
        here.error_code,
        producer.producer_id,
        producer.producer_epoch,
    )
    assert (RECORDS - 1, FIRST_TIMESTAMP + RECORDS - 1) == (producer.last_sequence, producer.last_timestamp)
    assert (-1, -1) == (producer.coordinator_epoch, producer.current_txn_start_offset)
    assert ErrorCode.unknown_topic_or_partition is missing.error_code
    assert ErrorCode.invalid_topic_exception is answer.topics[1].partitions[0].error_code
