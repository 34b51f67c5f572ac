"""Reading the broker's own files: the same records as by fetching, and none at all where anything is doubtful."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.client.options import OptionError
from ottla.client.producer.blocking_producer import Producer
from ottla.model.ids import TopicPartition
from ottla.spark.source.options import SourceOptions, parse_source_options
from ottla.spark.source.segment_scan import SegmentHint, SegmentScan
from ottla.spark.source.span_plan import OffsetSpan
from ottla.spark.source.span_scan import scan_plan, scan_span
from ottla.spark.source.topic_offsets import TopicOffsets
from ottla.testing import InProcessBroker

TOPIC = "orders"
PARTITION = TopicPartition(TOPIC, 0)
END = 400


class Written(NamedTuple):
    """A broker with some hundred records in several segments, and where its files are said to be."""

    broker: InProcessBroker
    hint: SegmentHint
    folder: Path

    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    with InProcessBroker(tmp_path) as broker:
        broker.create_topic(TOPIC, configs={"segment.bytes": "1048576"})
        with Producer(bootstrap_servers=broker.bootstrap, batch_size=100_000, linger_ms=50) as producer:
            for number in range(END):
                producer.send(TOPIC, value_of(number))
        asked = TopicOffsets(options(broker.bootstrap))
        try:
            hint = asked.segment_hints([PARTITION])[PARTITION]
        finally:
            asked.close()
        found = Written(broker, hint, Path(hint.log_dir) / f"{TOPIC}-0")
        assert len(found.segments()) > 3
        yield found


def value_of(number: int) -> bytes:
    return b"%020000d" % number


def options(bootstrap: str, **further: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, **further}
    return parse_source_options(given, is_stream=False)


def from_files(hint: SegmentHint, start: int = 0, end: int = END, *, committed: bool = False) -> tuple[list[int], int]:
    """The offsets that were read from files alone, and where they end."""
    scan = SegmentScan(hint, OffsetSpan(PARTITION, start, end), stops_at_transactions=committed)
    offsets = [
        offset
        for piece in scan.pieces()
        for batch in piece.batches
        for offset in range(max(batch.base_offset, piece.start), min(batch.next_offset, end))
    ]
    return offsets, min(scan.position, end)


def whole(written: Written, start: int = 0, end: int = END, **further: str) -> list[int]:
    """The offsets that a task gives, from files and by fetching."""
    plan = scan_plan(options(written.broker.bootstrap, **{"segments": "always", **further}), ("offset", "value"))
    batches = scan_span(plan, OffsetSpan(PARTITION, start, end), written.hint)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert all(row["value"] == value_of(row["offset"]) for row in rows)
    return [row["offset"] for row in rows]


@pytest.mark.parametrize(("start", "end"), [(0, END), (1, 2), (137, 301), (399, END), (0, 1), (200, 200)])
def test_files_have_what_was_written(written: Written, start: int, end: int) -> None:
    assert (list(range(start, end)), end) == from_files(written.hint, start, end)
    assert list(range(start, end)) == whole(written, start, end)


def test_a_file_that_is_gone_is_fetched_instead(written: Written) -> None:
    third = written.segments()[2]
    first_of_third = int(third.stem)
    third.rename(third.with_suffix(".log.deleted"))
    assert (list(range(first_of_third)), first_of_third) == from_files(written.hint)


def test_a_gap_ends_what_is_believed(written: Written) -> None:
    segments = written.segments()
    # As if a later segment had taken the place of one before: its batches do not follow.
    segments[1].write_bytes(segments[2].read_bytes())
    end = int(segments[1].stem)
    assert (list(range(end)), end) == from_files(written.hint)


def test_damage_ends_what_is_believed(written: Written) -> None:
    second = written.segments()[1]
    data = bytearray(second.read_bytes())
    data[len(data) // 2] ^= 0xFF
    second.write_bytes(data)
    offsets, end = from_files(written.hint)
    assert list(range(end)) == offsets
    assert int(second.stem) <= end < int(written.segments()[2].stem)


def test_a_file_cut_short_ends_what_is_believed(written: Written) -> None:
    second = written.segments()[1]
    second.write_bytes(second.read_bytes()[: second.stat().st_size // 2])
    offsets, end = from_files(written.hint)
    assert list(range(end)) == offsets
    assert int(second.stem) <= end < int(written.segments()[2].stem)


def test_an_index_that_lies_costs_time_only(written: Written) -> None:
    for index in written.folder.glob("*.index"):
        index.write_bytes(b"\0\0\0\1\0\0\0\0" * 4)
    assert list(range(100, END)) == from_files(written.hint, 100)[0]
    for index in written.folder.glob("*.index"):
        index.unlink()
    assert list(range(100, END)) == from_files(written.hint, 100)[0]


def test_files_of_another_broker_or_topic_are_not_read(written: Written) -> None:
    hint = written.hint
    other_broker = SegmentHint(log_dir=hint.log_dir, broker=hint.broker + 1, topic_id=hint.topic_id)
    other_topic = SegmentHint(log_dir=hint.log_dir, broker=hint.broker, topic_id="00000000-0000-0000-0000-000000000001")
    elsewhere = SegmentHint(log_dir="/not/here", broker=hint.broker, topic_id=hint.topic_id)
    for wrong in (other_broker, other_topic, elsewhere):
        assert ([], 0) == from_files(wrong)
    with pytest.raises(OptionError, match="segments=always: /not/here/orders-0 cannot be read here"):
        whole(Written(written.broker, elsewhere, written.folder))
    auto = Written(written.broker, elsewhere, written.folder)
    assert list(range(END)) == whole(auto, segments="auto")


def test_readers_of_committed_records_stop_at_transactions(written: Written) -> None:
    with Producer(bootstrap_servers=written.broker.bootstrap, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, value_of(END))
        producer.flush()
        producer.abort_transaction()
    assert (list(range(END)), END) == from_files(written.hint, 0, END + 1, committed=True)
    assert list(range(END + 1)) == whole(written, 0, END + 1)
    committed = {"kafka.isolation.level": "read_committed"}
    assert list(range(END)) == whole(written, 0, END + 1, **committed)


@pytest.mark.parametrize("configs", [{"ottla.ttl.enable": "true"}, {"ottla.ttl.ms": "60000"}])
def test_files_of_a_topic_with_a_ttl_are_not_read(written: Written, configs: dict[str, str]) -> None:
    """They have the expired records, which a broker does not deliver."""
    name = written.broker.create_topic("timed", configs=configs)
    expired, now = TopicPartition(name, 0), time.time_ns() // 1_000_000
    with Producer(bootstrap_servers=written.broker.bootstrap) as producer:
        for age_ms, value in ((0, b"live"), (120_000, b"expired"), (0, b"live too"), (120_000, b"expired too")):
            headers = (("ottla.ttl-ms", b"60000"),)
            producer.send(name, value, headers=headers, timestamp_ms=now - age_ms).get(60)
    given = options(written.broker.bootstrap, segments="always", subscribe=name)
    asked = TopicOffsets(given)
    try:
        assert {PARTITION: written.hint} == asked.segment_hints([PARTITION, expired])
    finally:
        asked.close()
    span = OffsetSpan(expired, 0, 4)
    with pytest.raises(OptionError, match="or its records have a TTL"):
        list(scan_span(scan_plan(given, ("offset", "value")), span))
    auto = scan_plan(options(written.broker.bootstrap, subscribe=name), ("offset", "value"))
    rows = [row for batch in scan_span(auto, span) for row in batch.to_pylist()]
    assert [{"offset": 0, "value": b"live"}, {"offset": 2, "value": b"live too"}] == rows
