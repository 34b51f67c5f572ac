"""Percentiles, and what a result says."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.bench.loads import LoadShape, make_batch
from ottla.cli.bench.results import BenchResult, Latencies
from ottla.records.batch import Batch
from ottla.records.layout import Codec
from ottla.sim.random import SimRandom


@given(st.lists(st.floats(1e-6, 100.0), min_size=1, max_size=200), st.sampled_from([0.1, 50, 99, 99.9, 100]))
def test_a_percentile_is_right_within_a_percent(seconds: list[float], share: float) -> None:
    latencies = Latencies()
    for each in seconds:
        latencies.add(each)
    ordered = sorted(seconds)
    exact = ordered[max(-(-len(ordered) * share // 100), 1).__int__() - 1]
    assert exact * 0.99 <= latencies.percentile(share) <= exact * 1.011


def test_no_latencies_have_no_percentile() -> None:
    assert 0.0 == Latencies().percentile(99)


def test_a_result_gives_rates() -> None:
    latencies = Latencies()
    latencies.add(0.002)
    result = BenchResult(
        what="produce",
        records=1000,
        wire_bytes=4_000_000,
        payload_bytes=2_000_000,
        requests=10,
        seconds=2.0,
        client_cpu_seconds=0.5,
        latencies=latencies,
    ).document()
    assert (500, 2.0, 1.0, 5, 0.5, 2.0) == tuple(
        result[name]
        for name in (
            "records_per_second",
            "mb_per_second",
            "payload_mb_per_second",
            "requests_per_second",
            "client_cpu_seconds",
            "max_ms",
        )
    )


def test_a_batch_is_filled_but_not_overfilled() -> None:
    data, count = make_batch(LoadShape(records=10**6, record_bytes=100, batch_bytes=16384), SimRandom(1))
    batch = Batch(data)
    batch.check()
    assert (count, 0) == (batch.count, batch.base_offset)
    assert 16384 - 220 < len(data) <= 16384
    assert 1 == make_batch(LoadShape(records=10**6, record_bytes=5000, batch_bytes=10), SimRandom(1))[1]
    assert 3 == make_batch(LoadShape(records=3, record_bytes=10, batch_bytes=10**6), SimRandom(1))[1]


def test_a_codec_finds_something_to_do_but_not_everything() -> None:
    plain, count = make_batch(LoadShape(records=100, record_bytes=1000, batch_bytes=10**6), SimRandom(1))
    shape = LoadShape(records=100, record_bytes=1000, batch_bytes=10**6, codec=Codec.ZSTD)
    packed, packed_count = make_batch(shape, SimRandom(1))
    assert count == packed_count
    assert 0.4 < len(packed) / len(plain) < 0.6
