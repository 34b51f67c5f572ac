"""What consumers get of a topic with a TTL: everything that has not expired, nothing that has, and always progress."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.env.ports import File
from ottla.model.errors import StorageError
from ottla.model.ids import Offset, ProducerEpoch, ProducerId
from ottla.model.queue_names import TTL_MS
from ottla.queues.expiry import PLACEHOLDER_TYPE, RANGE_BYTES_MAX, READ_PER_TURN_BYTES_MAX, ExpiryFilter, UnexpiredRead
from ottla.queues.expiry_index import CLOSED_REGIONS_MIN, ExpiryIndex
from ottla.records.batch import Batch, scan
from ottla.records.builder import BatchBuilder
from ottla.records.decode import decode_records
from ottla.records.expiry import NO_TTL
from ottla.records.layout import Codec, Marker
from ottla.replication.partition import Partition, TransactionEnd
from ottla.replication.partition_state import ALL_REPLICAS
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.storage.log_config import LogConfig
from ottla.storage.segments.segment import FileRange
from tests.unit.replication.rig import Noted, PartitionRig
from tests.unit.storage.rig import NOW

FOREVER = None
"""The TTL of a record without a header."""


def timed(*ttls: int | None, codec: Codec = Codec.NONE, value: bytes = b"v", **options: int | bool) -> Batch:
    """A batch with a record for each TTL."""
    builder = BatchBuilder(codec=codec, **options)  # type: ignore[arg-type]
    for ttl in ttls:
        builder.append(NOW, b"k", value, () if ttl is None else ((TTL_MS, str(ttl).encode()),))
    return Batch(bytearray(builder.build()))


def append(partition: Partition, *batches: Batch) -> None:
    for batch in batches:
        noted = Noted()
        partition.append_soon(batch, ALL_REPLICAS, noted, 0)
        partition.append_queued()
        assert [int] == [type(offset) for offset in noted.offsets().values()]


def content(read: UnexpiredRead) -> bytes:
    records = read.records
    if isinstance(records, FileRange):
        return records.file.read_at(records.position, records.size)
    return records or b""


def batches_of(read: UnexpiredRead) -> list[Batch]:
    batches, end, problem = scan(content(read))
    assert (read.size, None) == (end, problem)
    return batches


def offsets_of(read: UnexpiredRead) -> list[int]:
    """Of the records that a consumer sees."""
    return [record.offset for batch in batches_of(read) if not batch.is_control for record in decode_records(batch)]


class Reading(NamedTuple):
    """A partition with a TTL, and a filter with its clock."""

    partition: Partition
    clock: SimClock
    known: ExpiryIndex
    filter: ExpiryFilter

    def fetch(self, offset: int, max_bytes: int = 1 << 20, *, is_first: bool = True) -> UnexpiredRead | None:
        """As the handler fetches; None if there is nothing."""
        found = self.partition.read(Offset(offset), max_bytes, is_committed=False, at_least_one=is_first)
        if found is None:
            return None
        return self.filter.read(
            self.partition, Offset(offset), found, max_bytes, is_committed=False, at_least_one=is_first
        )

    def consume(self, offset: int = 0, max_bytes: int = 1 << 20) -> list[int]:
        """The offsets that a consumer sees until it has reached the end."""
        seen: list[int] = []
        while offset < self.partition.high_watermark:
            read = self.fetch(offset, max_bytes)
            assert read is not None
            batches = batches_of(read)
            assert batches, f"no progress at offset {offset}"
            seen += [each for each in offsets_of(read) if each >= offset]
            assert offset < batches[-1].next_offset
            offset = batches[-1].next_offset
        return seen


async def reading(
    *batches: Batch, ttl_ms: int = NO_TTL, config: LogConfig | None = None, region_bytes: int = 1 << 20
) -> Reading:
    rig = await PartitionRig.make(config)
    rig.partition.ttl_ms = ttl_ms
    append(rig.partition, *batches)
    clock, index = SimClock(), ExpiryIndex(region_bytes=region_bytes)
    return Reading(rig.partition, clock, index, ExpiryFilter(clock, index))


async def test_what_has_not_expired_is_sent_from_the_file_and_looked_at_once() -> None:
    made = await reading(timed(FOREVER, 1000), timed(2000))
    plain = made.partition.read(Offset(0), 1 << 20, is_committed=False, at_least_one=True)
    assert plain is not None
    assert UnexpiredRead(Offset(0), plain, plain, plain.size) == made.fetch(0)
    looked_at = made.known.read_bytes
    assert plain.size == looked_at
    assert made.fetch(0) is not None
    assert made.fetch(2) is not None
    assert looked_at == made.known.read_bytes
    append(made.partition, timed(3000))
    assert [0, 1, 2, 3] == made.consume()
    assert made.partition.log.size_bytes == made.known.read_bytes


@pytest.mark.parametrize("codec", Codec)
async def test_expired_records_are_left_out_from_their_moment_on(codec: Codec) -> None:
    made = await reading(timed(FOREVER, 1000, FOREVER, codec=codec), timed(2000, 3000, codec=codec))
    made.clock.advance(0.999)
    assert [0, 1, 2, 3, 4] == made.consume()
    made.clock.advance(0.001)
    assert [0, 2, 3, 4] == made.consume()
    made.clock.advance(1)
    assert [0, 2, 4] == made.consume()
    read = made.fetch(0)
    assert read is not None
    assert {codec} == {batch.codec for batch in batches_of(read)}
    made.clock.advance(1)
    assert [0, 2] == made.consume()


async def test_a_consumer_advances_over_records_that_have_all_expired() -> None:
    made = await reading(timed(1, 1), timed(1, 1, 1))
    made.clock.advance(1)
    read = made.fetch(1)
    assert read is not None
    (placeholder,) = batches_of(read)
    placeholder.check()
    assert (4, 4, 1, True) == (
        placeholder.base_offset, placeholder.last_offset, placeholder.count, placeholder.is_control,
    )  # fmt: skip
    (record,) = decode_records(placeholder)
    assert PLACEHOLDER_TYPE.to_bytes(4, "big") == record.key
    assert made.partition.leader_epoch == placeholder.leader_epoch
    assert made.fetch(5) is None


async def test_what_follows_expired_batches_is_sent_at_once() -> None:
    """Also from the next segment, and with limits that the expired batches fill."""
    config = LogConfig(segment_bytes=400)
    made = await reading(*(timed(1, 1) for _ in range(10)), timed(FOREVER), config=config)
    assert len(made.partition.log.segments) > 2
    made.clock.advance(1)
    read = made.fetch(0, 100)
    assert read is not None
    assert (20, [20]) == (read.offset, offsets_of(read))
    assert isinstance(read.records, FileRange)


async def test_a_batch_whose_end_expired_is_followed_by_a_placeholder() -> None:
    made = await reading(timed(FOREVER, 1, 1))
    made.clock.advance(1)
    read = made.fetch(0)
    assert read is not None
    first, second = batches_of(read)
    assert (0, 0, False) == (first.base_offset, first.last_offset, first.is_control)
    assert (2, 2, True) == (second.base_offset, second.last_offset, second.is_control)
    append(made.partition, timed(FOREVER))
    assert [0, 3] == made.consume()
    read = made.fetch(0)
    assert read is not None
    assert [False, False] == [batch.is_control for batch in batches_of(read)]


async def test_markers_stay() -> None:
    options: Any = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    made = await reading(timed(1, base_sequence=0, **options), timed(FOREVER, base_sequence=1, **options))
    end = TransactionEnd(Marker.ABORT, ProducerId(7), ProducerEpoch(0), 0, must_exceed_epoch=False)
    made.partition.append_marker(end, Noted(), 0)
    made.clock.advance(1)
    read = made.fetch(0)
    assert read is not None
    assert [(1, False), (2, True)] == [(batch.base_offset, batch.is_control) for batch in batches_of(read)]


async def test_the_ttl_of_the_topic_may_change() -> None:
    made = await reading(timed(FOREVER, 5000), ttl_ms=1000)
    made.clock.advance(1)
    assert [1] == made.consume()
    made.partition.ttl_ms = 2000
    assert [0, 1] == made.consume()
    made.partition.ttl_ms = 0
    assert [1] == made.consume()
    made.partition.ttl_ms = NO_TTL
    assert [0, 1] == made.consume()


async def test_a_truncated_log_is_looked_at_again() -> None:
    made = await reading(timed(FOREVER), timed(FOREVER))
    assert [0, 1] == made.consume()
    made.partition.log.truncate_to(Offset(1), now=NOW)
    append(made.partition, timed(1))
    made.partition.log.advance_high_watermark(Offset(2))
    made.clock.advance(1)
    assert [0] == made.consume()


async def test_a_batch_that_is_cut_off_by_the_limit_is_not_sent() -> None:
    """Its records may have expired: only whole batches are looked at."""
    made = await reading(timed(FOREVER), timed(1))
    first = timed(FOREVER).size_bytes
    made.clock.advance(1)
    read = made.fetch(0, first + 20)
    assert read is not None
    assert first == read.size == len(content(read))


async def test_a_batch_that_is_larger_than_the_limit_of_a_range() -> None:
    large = b"x" * (RANGE_BYTES_MAX + 1)
    config = LogConfig(max_message_bytes=1 << 25)
    made = await reading(timed(FOREVER, 1, value=large), timed(FOREVER, value=large), config=config)
    made.clock.advance(1)
    assert [0, 2] == made.consume(max_bytes=1 << 25)


async def test_damage_behind_expired_records_is_reported_when_the_consumer_comes_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = await reading(timed(1))
    made.clock.advance(1)

    def damaged(*_: object, **__: object) -> None:
        raise StorageError("the disk is gone")

    found = made.partition.read(Offset(0), 1 << 20, is_committed=False, at_least_one=True)
    assert found is not None
    monkeypatch.setattr(made.partition.log, "read", damaged)
    read = made.filter.read(made.partition, Offset(0), found, 1 << 20, is_committed=False, at_least_one=True)
    assert [(0, True)] == [(batch.last_offset, batch.is_control) for batch in batches_of(read)]


async def test_one_turn_of_the_loop_does_not_read_without_limit() -> None:
    value = b"x" * 900_000
    made = await reading(*(timed(1, value=value) for _ in range(30)))
    made.clock.advance(1)
    read = made.fetch(0)
    assert read is not None
    assert 0 < batches_of(read)[-1].next_offset < 30
    assert made.known.read_bytes < READ_PER_TURN_BYTES_MAX + 2 * RANGE_BYTES_MAX
    later = made.fetch(25, is_first=False)
    assert later is not None
    assert (None, 0) == (later.records, later.size)
    assert made.fetch(25) is not None
    await asyncio.sleep(0)
    later = made.fetch(20, is_first=False)
    assert later is not None
    assert later.size > 0
    assert [] == made.consume()


async def test_the_index_is_bounded() -> None:
    made = await reading(*(timed(1000) for _ in range(200)))
    index = ExpiryIndex(known_batches_max=50, region_bytes=1000)
    bounded = made._replace(known=index, filter=ExpiryFilter(made.clock, index))
    assert list(range(200)) == bounded.consume(max_bytes=2000)
    assert 0 < index.known_batches <= 50
    made.clock.advance(1)
    assert [] == bounded.consume(max_bytes=2000)
    assert 0 < index.known_batches <= 50


def test_the_index_forgets_files_that_are_closed() -> None:
    index, disk = ExpiryIndex(), SimDisk()
    kept: list[File] = []
    for number in range(3 * CLOSED_REGIONS_MIN):
        file = disk.open(f"/{number}", create=True)
        content = timed(1000).buffer
        file.write_at(0, [content])
        assert (len(content), ()) == index.survey(file, 0, len(content), ttl_ms=NO_TTL, now=NOW)
        kept = [*kept[:9], file]
    assert len(index) <= 2 * CLOSED_REGIONS_MIN
    assert index.known_batches == len(index)


ttls = st.none() | st.integers(0, 50)


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[Sequence[int | None], Codec]]:
    return draw(
        st.lists(
            st.tuples(st.lists(ttls, min_size=1, max_size=5), st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4])),
            min_size=1,
            max_size=30,
        )
    )


@given(
    logs(),
    st.sampled_from([NO_TTL, 0, 20, 45]),
    st.lists(st.tuples(st.integers(0, 200), st.integers(1, 1500), st.integers(0, 10)), min_size=1, max_size=12),
    st.sampled_from([100, 333, 1 << 20]),
    st.sampled_from([10, 1000]),
)
async def test_any_consumer_sees_exactly_what_has_not_expired(
    log: list[tuple[Sequence[int | None], Codec]],
    ttl_ms: int,
    fetches: list[tuple[int, int, int]],
    region_bytes: int,
    known_max: int,
) -> None:
    config = LogConfig(segment_bytes=1000, index_interval_bytes=1)
    made = await reading(*(timed(*ttls, codec=codec) for ttls, codec in log), ttl_ms=ttl_ms, config=config)
    index = ExpiryIndex(known_batches_max=known_max, region_bytes=region_bytes)
    made = made._replace(known=index, filter=ExpiryFilter(made.clock, index))
    flat = [ttl for ttls, _ in log for ttl in ttls]
    own = [ttl if ttl is not None else ttl_ms if ttl_ms >= 0 else 10**9 for ttl in flat]
    passed = 0
    for start, max_bytes, step in fetches:
        offset = start % len(flat)
        live = [at for at, ttl in enumerate(own) if ttl > passed and at >= offset]
        assert live == made.consume(offset, max_bytes)
        made.clock.jump(step)
        passed += step
