"""The last 60 minutes: a ring with gaps, rates between counts, and metrics of brokers."""

import tracemalloc
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.admin.broker_states import BrokerProbe, BrokerState
from ottla.client.admin.topic_requests import LogDir, LogDirPartition
from ottla.console.cluster.broker_metrics import ApiRate, parse_scrape, rates_between
from ottla.console.cluster.sampler import Counts, rates_of, sizes_of
from ottla.console.cluster.samples import Samples
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition


def test_a_ring_keeps_the_last_times_and_gaps_are_gaps() -> None:
    samples = Samples(count_max=3)
    samples.add(1, {("a", "x"): 1.0})
    samples.add(2, {})
    assert ([1.0, 2.0], [1.0, None]) == samples.series("a", "x")
    assert None is samples.latest("a", "x")
    samples.add(3, {("a", "x"): 3.0, ("b", "y"): 5.0})
    assert ([1.0, 2.0, 3.0], [None, None, 5.0]) == samples.series("b", "y")
    samples.add(4, {("b", "y"): 6.0})
    assert ([2.0, 3.0, 4.0], [None, 3.0, None]) == samples.series("a", "x")
    assert (6.0, 2.0, 3) == (samples.latest("b", "y"), samples.since, len(samples))
    samples.add(5, {})
    samples.add(6, {})
    assert ["y"] == samples.names("b")
    assert [] == samples.names("a"), "a series that was silent for the whole time is forgotten"
    assert ([4.0, 5.0, 6.0], [None, None, None]) == samples.series("a", "x")


def test_the_number_of_series_has_a_bound() -> None:
    samples = Samples(count_max=3, series_max=2)
    samples.add(1, {("a", "x"): 1.0, ("a", "y"): 1.0, ("a", "z"): 1.0})
    assert (["x", "y"], 1) == (samples.names("a"), samples.left_out)
    samples.add(2, {("a", "x"): 1.0})
    assert 0 == samples.left_out


def test_the_number_of_series_that_change_has_a_bound() -> None:
    samples = Samples(count_max=3, rings_max=1)
    samples.add(1, {("a", "x"): 1.0, ("a", "y"): 1.0, ("a", "z"): 7.0})
    samples.add(2, {("a", "x"): 2.0, ("a", "y"): 2.0, ("a", "z"): 7.0})
    assert [1.0, 2.0] == samples.series("a", "x").values
    assert [None, 2.0] == samples.series("a", "y").values, "its history is left out, not its last value"
    assert [7.0, 7.0] == samples.series("a", "z").values
    assert (1, 2.0, 7.0) == (samples.left_out, samples.latest("a", "y"), samples.latest("a", "z"))


def test_memory_is_bounded_by_the_series_that_change() -> None:
    keys = [("topic.in", str(number)) for number in range(400)]
    samples = Samples(count_max=100, series_max=300, rings_max=10)
    tracemalloc.start()
    try:
        for at in range(110):
            samples.add(at, {key: float(at) for key in keys[:8]} | dict.fromkeys(keys[8:], 0.0))
        steady, _ = tracemalloc.get_traced_memory()
        for at in range(110, 220):
            samples.add(at, {key: float(at) for key in keys})
        changing, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    bytes_max = 2 * 10 * 100 * 8 + 300 * 250
    assert steady < bytes_max
    assert changing < bytes_max, "rings for all series would be 240 kB"
    assert 390 == samples.left_out


@given(
    st.lists(st.dictionaries(st.sampled_from("xyz"), st.sampled_from([0.0, 1.0]), max_size=3), max_size=150),
    st.sampled_from([2, 5, 70]),
)
def test_a_series_is_what_was_added(turns: list[dict[str, float]], count_max: int) -> None:
    samples = Samples(count_max=count_max)
    for at, turn in enumerate(turns):
        samples.add(at, {("a", name): value for name, value in turn.items()})
        for name in "xyz":
            expected = [each.get(name) for each in turns[: at + 1]][-count_max:]
            assert expected == samples.series("a", name).values
            assert expected[-1] == samples.latest("a", name)


def test_rates_are_differences_and_lags_are_sums() -> None:
    one, two, other = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("new", 0)
    before = Counts(at=10, ends={one: 100, two: 50}, committed={("g", one): 90})
    now = Counts(at=15, ends={one: 200, two: 40, other: 7}, committed={("g", one): 140, ("g", two): 40, ("h", one): 5})
    found = rates_of(before, now)
    # A partition whose end went back counts as nothing, a new one from its second sample on.
    assert 20.0 == found["topic.in", "t"] == found["cluster.in", ""]
    assert 0.0 == found["topic.in", "new"]
    assert (60.0, 195.0) == (found["group.lag", "g"], found["group.lag", "h"])
    assert (10.0, 0.0, 10.0) == (found["group.out", "g"], found["group.out", "h"], found["cluster.out", ""])
    assert {"group.lag"} == {kind for kind, _ in rates_of(None, now)}
    older = Counts(at=5, committed={("g", one): 40})
    assert 10.0 == rates_of(before, now, older)["group.out", "g"], "100 commits within 10 s"
    assert 20.0 == rates_of(before, now, older)["topic.in", "t"]


def test_a_group_that_was_not_read_in_this_turn_has_a_gap() -> None:
    partition = TopicPartition("t", 0)
    before = Counts(at=10, ends={partition: 1}, committed={("g", partition): 1})
    assert ("group.lag", "g") not in rates_of(before, Counts(at=15, ends={partition: 1}))


def test_sizes_are_of_brokers_that_answered() -> None:
    held = LogDirPartition(partition=TopicPartition("t", 0), size_bytes=70, lag=0, is_future=False)
    log_dir = LogDir(
        broker=0, path="/d", error_code=ErrorCode.NONE, total_bytes=-1, usable_bytes=-1, partitions=(held, held)
    )
    probes = {
        0: BrokerProbe(state=BrokerState.ONLINE, log_dirs=(log_dir,)),
        1: BrokerProbe(state=BrokerState.SILENT),
    }
    assert {("broker.size", "0"): 140.0, ("topic.size", "t"): 140.0, ("cluster.size", ""): 140.0} == sizes_of(probes)
    assert {} == sizes_of({1: BrokerProbe(state=BrokerState.SILENT)})


SCRAPE = b"""# HELP ottla_build_info what runs
ottla_build_info{broker="2",version="0.1.0"} 1.0
ottla_uptime_seconds %d
ottla_connections 7.0
ottla_received_bytes_total %d
ottla_sent_bytes_total 10
ottla_request_seconds_bucket{api="fetch",le="0.001"} %d
ottla_request_seconds_bucket{api="fetch",le="0.5"} %d
ottla_request_seconds_bucket{api="fetch",le="+Inf"} %d
ottla_request_seconds_count{api="fetch"} %d
ottla_request_seconds_sum{api="fetch"} %f
ottla_something_else{topic="}"} 4
"""


def test_requests_between_two_scrapes() -> None:
    before = parse_scrape(SCRAPE % (100, 1000, 10, 10, 10, 10, 1.0))
    now = parse_scrape(SCRAPE % (105, 6000, 20, 110, 110, 110, 3.0))
    assert before is not None
    assert now is not None
    found = rates_between(before, now, 5.0)
    assert ("0.1.0", 105.0, 7) == (found.version, found.uptime_seconds, found.connections)
    assert (1000.0, 0.0) == (found.received_per_second, found.sent_per_second)
    (fetch,) = found.apis
    assert ApiRate(api="fetch", per_second=20.0, mean_ms=20.0, p99_ms=500.0) == replace(fetch, p99_estimate_ms=None)
    # 10 of 100 requests took up to 1 ms, the others up to 500 ms: the 99th is at 89 of 90 between these.
    assert fetch.p99_estimate_ms is not None
    assert abs(1 + 499 * 89 / 90 - fetch.p99_estimate_ms) < 1e-6
    restarted = parse_scrape(SCRAPE % (1, 10, 1, 1, 1, 1, 0.1))
    assert restarted is not None
    assert None is rates_between(before, restarted, 5.0).received_per_second
    assert () == rates_between(before, restarted, 5.0).apis
    assert None is parse_scrape(b"kafka_things 1\n")


def test_what_is_not_a_number_is_left_out_of_a_scrape() -> None:
    odd = (
        b'ottla_build_info{broker="1",version="1"} 1\n'
        b"ottla_connections NaN\n"
        b"ottla_uptime_seconds 5\n"
        b'ottla_request_seconds_bucket{api="fetch",le="soon"} 3\n'
        b"ottla_sent_bytes_total many\n"
    )
    found = parse_scrape(odd)
    assert found is not None
    assert (5.0, None, 0.0) == (found.uptime_seconds, found.connections, found.sent_bytes)
    assert None is rates_between(None, found, 5.0).connections
    assert None is parse_scrape('ottla_build_info{broker="\u00b2"} 1\n'.encode())
