"""The snapshot file's bytes, and that damage in any of them is found."""

from dataclasses import replace

import pytest

from ottla.model.errors import CorruptError
from ottla.model.ids import Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs
from ottla.records.batch import crc32c
from ottla.storage.producers.producer_snapshot import EndedSegment, decode_snapshot, encode_snapshot, read_snapshot
from ottla.storage.producers.producer_state import BatchSpan, ProducerEntry
from tests.unit.storage.rig import flipped

ENTRY = ProducerEntry(
    producer_id=ProducerId(1),
    epoch=ProducerEpoch(2),
    batches=(BatchSpan(Sequence(3), Offset(4), 1, TimestampMs(6)),),
    coordinator_epoch=7,
    transaction_start=Offset(8),
    last_timestamp=TimestampMs(6),
)
BODY = bytes.fromhex(
    "0000000100000000000000010002000000030000000000000004000000010000000000000006000000070000000000000008"
)


def test_bytes() -> None:
    content = encode_snapshot([ENTRY])
    assert b"\0\1" + crc32c(BODY).to_bytes(4, "big") + BODY == content
    assert [ENTRY] == decode_snapshot("s", content)


def test_earlier_batches_follow_what_kafka_reads() -> None:
    earlier = [
        BatchSpan(Sequence(0), Offset(1), 0, TimestampMs(4)),
        BatchSpan(Sequence(1), Offset(2), 0, TimestampMs(5)),
    ]
    other = replace(ENTRY, producer_id=ProducerId(9))
    entry = replace(ENTRY, batches=(*earlier, *ENTRY.batches))
    content = encode_snapshot([other, entry])
    assert [other, entry] == decode_snapshot("s", content)
    assert encode_snapshot([other, ENTRY])[6:] == content[6 : 6 + 4 + 2 * 46]
    assert bytes.fromhex("00000002" + "0000000000000001" + "00000000" + "0000000000000001") in content
    for position in range(len(content)):
        with pytest.raises(CorruptError):
            decode_snapshot("s", flipped(content, position, 0))
        with pytest.raises(CorruptError):
            decode_snapshot("s", content[:position])


def test_the_segment_that_ends_here_follows_what_kafka_reads() -> None:
    ended = EndedSegment(partition_crc=1, base_offset=Offset(2), size_bytes=3, aborted_count=4)
    content = encode_snapshot([ENTRY], ended)
    assert ([ENTRY], ended) == read_snapshot("s", content)
    assert ([ENTRY], None) == read_snapshot("s", encode_snapshot([ENTRY]))
    assert encode_snapshot([ENTRY])[6:] == content[6 : 6 + 4 + 46]
    assert bytes.fromhex("00000000" + "00000001" + f"{2:016x}" + f"{3:016x}" + "00000004") == content[6 + 4 + 46 :]
    for position in range(len(content)):
        with pytest.raises(CorruptError):
            read_snapshot("s", flipped(content, position, 0))
        with pytest.raises(CorruptError):
            read_snapshot("s", content[:position])


def test_no_producers() -> None:
    assert [] == decode_snapshot("s", encode_snapshot([]))


def test_a_producer_that_wrote_nothing_yet() -> None:
    entry = ProducerEntry(
        producer_id=ProducerId(1), epoch=ProducerEpoch(0), coordinator_epoch=2, last_timestamp=TimestampMs(5)
    )
    assert [entry] == decode_snapshot("s", encode_snapshot([entry]))


def test_every_bit() -> None:
    content = encode_snapshot([ENTRY])
    for position in range(len(content)):
        for bit in range(8):
            with pytest.raises(CorruptError, match=r"^/p/1\.snapshot: "):
                decode_snapshot("/p/1.snapshot", flipped(content, position, bit))


def test_every_size() -> None:
    content = encode_snapshot([ENTRY, ENTRY])
    for size in range(len(content)):
        with pytest.raises(CorruptError):
            decode_snapshot("s", content[:size])
    with pytest.raises(CorruptError):
        decode_snapshot("s", content + b"\0")


def test_a_count_that_lies() -> None:
    for count, found in (
        (0, "42 bytes follow"),
        (2, "2 producers do not fit"),
        (-1, "-1 producers do not fit"),
        (2**31 - 1, "2147483647 producers do not fit"),
    ):
        body = count.to_bytes(4, "big", signed=True) + BODY[4:]
        with pytest.raises(CorruptError, match=found):
            decode_snapshot("s", b"\0\1" + crc32c(body).to_bytes(4, "big") + body)
