"""Batches as four real clients sent them, read by Ottla's batch view, record reader and columnar kernel."""

from array import array
from typing import Any

import pytest

from ottla.records.batch import Batch, find_batch, scan, whole_bytes
from ottla.records.columns import decode
from ottla.records.control import marker_batch, read_marker
from ottla.records.decode import decode_records
from ottla.records.header_edit import HeaderNames, find_headers, replace_headers
from ottla.records.layout import Codec, Marker
from ottla.records.payload import read_payload
from ottla.records.picking import RecordBlock, pick_batch
from ottla.records.recompress import recompress
from tests.golden import readings
from tests.golden.manifest import BATCHES, ExpectedPartition, load

CLIENTS = ("aiokafka", "java", "kafka-python", "librdkafka")


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    """Each client that wrote golden batches."""
    name: str = request.param
    return name


@pytest.fixture
def log(client: str) -> bytes:
    """The batches as the client sent them."""
    return (BATCHES / f"{client}.log").read_bytes()


@pytest.fixture
def expected(client: str) -> ExpectedPartition:
    """What other readers found in them."""
    return load(BATCHES / f"{client}.json")[client]


def _aborted(expected: ExpectedPartition) -> list[tuple[int, int]]:
    """(producer id, first offset) of each aborted transaction, as a fetch answer has them."""
    found: list[Any] = [row for name, rows in expected.files.items() if name.endswith(".txnindex") for row in rows]
    return [(row["producer_id"], row["first_offset"]) for row in found]


def test_headers_are_as_the_dump_tool_says(log: bytes, expected: ExpectedPartition) -> None:
    batches, end, problem = scan(log)

    assert problem is None
    assert len(log) == end
    found = [readings.header(batch, batch.position) for batch in batches]
    assert [{name: value for name, value in row.items() if name != "file"} for row in expected.batches] == found


def test_records_are_as_a_consumer_sees_them(log: bytes, expected: ExpectedPartition) -> None:
    batches, _, _ = scan(log)

    assert list(expected.records) == readings.records(batches)


def test_headers_are_found_and_replaced_and_records_picked_as_a_consumer_sees_them(log: bytes) -> None:
    batches = [batch for batch in scan(log)[0] if not batch.is_control]
    for batch in batches:
        records = decode_records(batch)
        names = sorted({name for record in records for name, _ in record.headers if "\ufffd" not in name})[:32]
        known = HeaderNames(*(name for name in names if len(name.encode()) <= 62))
        found = dict(find_headers(read_payload(batch), batch.count, known))
        for at, record in enumerate(records):
            values = {name: value or b"" for name, value in record.headers if name in known.names}
            assert tuple(values.get(name) for name in known.names) == found.get(at, (None,) * len(known.names))
        edited = Batch(replace_headers(batch, drop=known, added={0: (("first", b"1"),)}))
        edited.check()
        kept = [
            record._replace(headers=tuple(header for header in record.headers if header[0] not in known.names))
            for record in records
        ]
        kept[0] = kept[0]._replace(headers=(*kept[0].headers, ("first", b"1")))
        assert kept == decode_records(edited)
    picked = [record for batch in batches for record in decode_records(batch)][::-3]
    blocks = [RecordBlock(batch) for batch in batches]
    made = pick_batch(blocks, array("q", [record.offset for record in picked]), drop=HeaderNames())
    assert [record._replace(offset=at) for at, record in enumerate(picked)] == decode_records(Batch(made))


def test_every_codec_is_there(expected: ExpectedPartition) -> None:
    """The other tests prove little about a codec that the client did not use after all."""
    assert {"none", "gzip", "snappy", "lz4", "zstd"} == {batch["codec"] for batch in expected.batches}
    assert len(expected.committed_offsets) < len(expected.records)


def test_columns_are_as_a_consumer_sees_them(log: bytes, expected: ExpectedPartition) -> None:
    columns = decode(log)

    assert columns.error is None
    assert expected.end_offset == columns.next_offset
    assert len(log) == columns.consumed_bytes
    assert list(expected.records) == readings.column_records(columns)


def test_columns_without_aborted_transactions_are_as_a_read_committed_consumer_sees_them(
    log: bytes, expected: ExpectedPartition
) -> None:
    aborted = _aborted(expected)
    assert aborted

    columns = decode(log, aborted=aborted)

    assert list(expected.committed_offsets) == list(memoryview(columns.offsets).cast("B").cast("q"))


def test_columns_from_the_middle(log: bytes, expected: ExpectedPartition) -> None:
    """A fetch starts at the batch that holds the wanted offset, so records before it must be dropped."""
    for wanted in (record.offset for record in expected.records[::7]):
        batch = find_batch(log, wanted)
        assert batch is not None

        columns = decode(log, batch.position, start_offset=wanted, end_offset=wanted + 5)

        within = [record for record in expected.records if wanted <= record.offset < wanted + 5]
        assert within == readings.column_records(columns)


def test_whole_batches_of_a_cut_off_answer(log: bytes, expected: ExpectedPartition) -> None:
    ends = [row["position"] + row["size_bytes"] for row in expected.batches]
    for cut in range(0, len(log), 97):
        whole = max((end for end in ends if end <= cut), default=0)
        assert whole == whole_bytes(log[:cut])


def test_markers(log: bytes, expected: ExpectedPartition) -> None:
    """The three transactions committed, aborted and committed; our markers have the bytes that Kafka's have."""
    markers = [batch for batch in scan(log)[0] if batch.is_control]

    assert [Marker.COMMIT, Marker.ABORT, Marker.COMMIT] == [_kind(batch) for batch in markers]
    for batch in markers:
        ours = marker_batch(
            _kind(batch),
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            coordinator_epoch=0,
            timestamp=batch.max_timestamp,
            base_offset=batch.base_offset,
            leader_epoch=batch.leader_epoch,
        )
        assert bytes(batch.buffer) == ours


def _kind(batch: Batch) -> Marker:
    marker = read_marker(batch)
    assert marker is not None
    return marker[0]


@pytest.mark.parametrize("codec", Codec)
def test_recompressed_batches_hold_the_same_records(log: bytes, expected: ExpectedPartition, codec: Codec) -> None:
    data = [batch for batch in scan(log)[0] if not batch.is_control]

    again = b"".join(recompress(batch, codec) for batch in data)

    batches, end, problem = scan(again)
    assert (len(again), None) == (end, problem)
    assert {codec} == {batch.codec for batch in batches}
    assert list(expected.records) == readings.records(batches)


def test_a_flipped_bit_is_found(log: bytes, expected: ExpectedPartition) -> None:
    """Everything that the CRC covers, in the first batch of each codec."""
    by_codec = {row["codec"]: row for row in reversed(expected.batches) if row["count"] > 1}
    for row in by_codec.values():
        position, size = row["position"], row["size_bytes"]
        for at in range(21, size, 11):
            damaged = bytearray(log)
            damaged[position + at] ^= 0x10
            batches, end, problem = scan(damaged)
            assert problem is not None
            assert position == end
            assert [each["base_offset"] for each in expected.batches if each["position"] < position] == [
                batch.base_offset for batch in batches
            ]
