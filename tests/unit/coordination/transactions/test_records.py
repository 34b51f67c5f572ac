"""The records of `__transaction_state` against bytes that Kafka's own classes wrote, and against damage."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.transactions.records import (
    TransactionEntry,
    TransactionStatus,
    decode_key,
    decode_value,
    encode_value,
    entry_record,
    tombstone_record,
)
from ottla.model.errors import CorruptError
from ottla.model.ids import ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from tests.effort import effort

GOLDEN = Path(__file__).parents[3] / "golden" / "coordination" / "transactions.json"
RECORDS: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))


def expected_entry(fields: dict[str, Any]) -> TransactionEntry:
    return TransactionEntry(
        producer_id=ProducerId(fields["producerId"]),
        previous_producer_id=ProducerId(fields.get("previousProducerId", -1)),
        next_producer_id=ProducerId(fields.get("nextProducerId", -1)),
        producer_epoch=ProducerEpoch(fields["producerEpoch"]),
        next_producer_epoch=ProducerEpoch(fields.get("nextProducerEpoch", -1)),
        timeout_ms=fields["transactionTimeoutMs"],
        status=TransactionStatus(fields["transactionStatus"]),
        partitions=tuple(
            TopicPartition(topic["topic"], partition)
            for topic in fields["transactionPartitions"] or []
            for partition in topic["partitionIds"]
        ),
        last_update_ms=TimestampMs(fields["transactionLastUpdateTimestampMs"]),
        start_ms=TimestampMs(fields["transactionStartTimestampMs"]),
        client_version=fields.get("clientTransactionVersion", 0),
    )


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record['transactionalId']}-{record['valueVersion']}")
def test_kafkas_bytes_are_read_and_written(record: dict[str, Any]) -> None:
    entry = expected_entry(record["fields"])
    value = bytes.fromhex(record["value"])
    assert entry == decode_value(value)
    assert record["value"] == encode_value(entry, record["valueVersion"]).hex()
    assert record["transactionalId"] == decode_key(bytes.fromhex(record["key"]))
    assert record["key"] == tombstone_record(record["transactionalId"]).key.hex()


@pytest.mark.parametrize("record", [record for record in RECORDS if record["transactionVersion"] is not None])
def test_the_clusters_version_decides_the_values_version(record: dict[str, Any]) -> None:
    written = entry_record(record["transactionalId"], expected_entry(record["fields"]), record["transactionVersion"])
    assert (record["key"], record["value"]) == (written.key.hex(), (written.value or b"").hex())


def test_what_a_version_2_client_did_is_kept_in_an_older_cluster() -> None:
    (prepared,) = (record for record in RECORDS if record["fields"].get("nextProducerId") == 99)
    entry = expected_entry(prepared["fields"])
    assert entry == decode_value(entry_record("rotates", entry, 0).value or b"")


def test_unknown_kinds_of_records_are_skipped() -> None:
    assert decode_key(b"\0\7whatever") is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "a field claims 2 bytes"),
        (b"\0\2" + bytes(40), "version 2 is not known"),
        (b"\0\0" + bytes(8) + bytes(6) + b"\x08" + bytes(30), "unknown transaction state 8"),
        (b"\0\0" + bytes(15) + b"\xff\xff\xff\xfe" + bytes(30), "an array claims -2 elements"),
        (b"\0\1" + bytes(15) + b"\0" + bytes(16) + b"\1\0\4\0\0\0\1", "the tagged field 0 has 4 bytes, not 8"),
    ],
)
def test_damage_is_refused(value: bytes, message: str) -> None:
    with pytest.raises(CorruptError, match=message):
        decode_value(value)


partitions = st.lists(
    st.builds(TopicPartition, st.text(max_size=20), st.integers(0, 2**31 - 1)), unique=True, max_size=8
).map(lambda found: tuple(sorted(found)))
entries = st.builds(
    TransactionEntry,
    producer_id=st.integers(0, 2**63 - 1),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    next_producer_epoch=st.integers(-1, 2**15 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    status=st.sampled_from([status for status in TransactionStatus if status is not TransactionStatus.EMPTY]),
    partitions=partitions,
    last_update_ms=st.integers(0, 2**62),
    start_ms=st.integers(-1, 2**62),
    client_version=st.integers(0, 2),
)


@given(entries)
@effort(100)
def test_what_is_written_is_read(entry: TransactionEntry) -> None:
    assert entry == decode_value(encode_value(entry, 1))


@given(st.sampled_from(RECORDS), st.data())
@effort(300)
def test_no_bytes_do_worse_than_an_error(record: dict[str, Any], data: st.DataObject) -> None:
    value = bytearray.fromhex(record["value"])
    for _ in range(data.draw(st.integers(0, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    del value[data.draw(st.integers(0, len(value))) :]
    try:
        entry = decode_value(bytes(value))
    except CorruptError:
        return
    assert len(entry.partitions) <= len(value)


@given(st.binary(max_size=20))
@effort(100)
def test_no_key_does_worse_than_an_error(key: bytes) -> None:
    with contextlib.suppress(CorruptError):
        assert decode_key(key) is None or key[:2] == b"\0\0"
