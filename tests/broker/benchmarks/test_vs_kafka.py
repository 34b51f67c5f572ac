"""The stopwatch beside Kafka: what it reads from tools and `/proc`, what it makes of samples, and what it runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kafka_race.brokers import COMMON_SETTINGS, Address, Kafka, Ottla, kafka_properties
from benchmarks.kafka_race.cases import all_cases
from benchmarks.kafka_race.java_load import parse_consumed, parse_summary
from benchmarks.kafka_race.librdkafka_load import percentile
from benchmarks.kafka_race.process_usage import cpu_seconds, parse_rss, parse_stat, process_tree, resident_bytes
from benchmarks.kafka_race.raw_load import LoadError, Work
from benchmarks.kafka_race.scoreboard import Measure, Sample, better_by, markdown, score, table
from benchmarks.kafka_race.throughput import batch_records, throughput
from benchmarks.vs_kafka import Samples, chosen, of_round, rotated

RATE = Measure(case="produce", quantity="MB/s", more_is_better=True, goal=1.5)
TIME = Measure(case="start", quantity="s", more_is_better=False, goal=10.0)


def samples(*values: float, client_cores: float = 0.0) -> list[Sample]:
    return [Sample(value=value, client_cores=client_cores) for value in values]


def test_a_process_name_may_contain_brackets_and_spaces() -> None:
    line = "42 (odd) 7 (name) S 17 1 1 0 -1 4194304 1 2 3 4 250 50 30 20 20 0 8 0 12345 1 1"
    stat = parse_stat(line, ticks_per_second=100)
    assert (17, 3.0, 0.5) == (stat.parent, stat.own_cpu_s, stat.ended_children_cpu_s)


def test_resident_memory_is_read_from_the_rollup() -> None:
    assert 2048 * 1024 == parse_rss("55d-7ff [rollup]\nRss:       2048 kB\nPss:      100 kB\n")
    with pytest.raises(ValueError, match="no line Rss:"):
        parse_rss("Pss: 100 kB\n")


def test_children_count_while_they_live_and_after() -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass\nprint('done', flush=True)\ninput()"
    before = cpu_seconds(os.getpid())
    with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in process_tree(os.getpid())
        assert cpu_seconds(os.getpid()) - before >= 0.15
        assert resident_bytes(os.getpid()) > resident_bytes(child.pid) > 1_000_000
        child.stdin.write(b"\n")
    assert cpu_seconds(os.getpid()) - before >= 0.15
    assert [] == process_tree(child.pid)


PERF_OUTPUT = """\
249841 records sent, 49968.2 records/sec (47.65 MB/sec), 512.3 ms avg latency, 800.0 ms max latency.
600000 records sent, 101010.1 records/sec (96.33 MB/sec), 290.12 ms avg latency, 800.00 ms max latency, \
280 ms 50th, 500 ms 95th, 700 ms 99th, 790 ms 99.9th.
400000 steady state records sent, 200000.0 records/sec (190.73 MB/sec), 150.00 ms avg latency, 300.00 ms max latency, \
140 ms 50th, 200 ms 95th, 280 ms 99th, 299 ms 99.9th.
"""


def test_the_java_tool_is_believed_for_its_steady_state() -> None:
    work = parse_summary(PERF_OUTPUT, record_bytes=1000, client_cores=1.5)
    assert (2.0, 400_000, 400_000_000, 3.0) == (work.seconds, work.records, work.bytes, work.client_cpu_s)
    without_warm_up = parse_summary(PERF_OUTPUT[: PERF_OUTPUT.index("400000 steady")], record_bytes=1000)
    assert 600_000 == without_warm_up.records


def test_a_java_tool_without_a_summary_is_an_error() -> None:
    with pytest.raises(LoadError, match="no summary"):
        parse_summary("249841 records sent, 49968.2 records/sec (47.65 MB/sec), 1 ms avg latency\n", record_bytes=1)


CONSUMED_OUTPUT = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
fetch.MB.sec, fetch.nMsg.sec
2026-11-15 15:11:16:121, 2026-11-15 15:11:18:232, 76.5, 36.1529, 800260, 379090.4784, 437, 1600, 45.5906, 478052.5687
"""


def test_the_java_consumer_is_believed_for_what_follows_its_rebalance() -> None:
    found = parse_consumed(CONSUMED_OUTPUT, client_cores=1.5)
    assert (437.0, 1.6, 800_260) == (found.rebalance_ms, found.work.seconds, found.work.records)
    assert int(76.5 * 2**20) == found.work.bytes
    assert 1.5 == pytest.approx(found.work.client_cores)
    with pytest.raises(LoadError, match="no figures"):
        parse_consumed(CONSUMED_OUTPUT.splitlines()[0])


def test_percentiles() -> None:
    ordered = [float(number) for number in range(100)]
    assert (50.0, 99.0, 99.0) == (percentile(ordered, 0.5), percentile(ordered, 0.99), percentile(ordered, 0.9999))


def test_better_is_more_of_a_rate_and_less_of_a_time() -> None:
    assert 2.0 == better_by(RATE, kafka=100.0, ottla=200.0)
    assert 10.0 == better_by(TIME, kafka=3.0, ottla=0.3)
    with pytest.raises(ValueError, match=r"produce, MB/s: a figure of 0\.0"):
        better_by(RATE, kafka=0.0, ottla=1.0)


def test_ratios_are_taken_within_a_round() -> None:
    # The machine slows down threefold in the second round for both: the ratio does not notice.
    line = score(RATE, {"kafka": samples(100, 30, 90), "ottla": samples(200, 60, 270)})
    assert (90.0, 200.0) == (line.kafka, line.ottla)
    assert (2.0, 2.0, 3.0) == (line.ratio, line.ratio_min, line.ratio_max)
    assert "met" == line.verdict
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        score(RATE, {"kafka": samples(1, 2), "ottla": samples(1)})


def test_a_goal_is_not_judged_where_the_client_is_the_limit() -> None:
    kafka = samples(100, 100, 100)
    assert "missed" == score(RATE, {"kafka": kafka, "ottla": samples(110, 110, 110, client_cores=0.5)}).verdict
    assert "client" == score(RATE, {"kafka": kafka, "ottla": samples(110, 110, 110, client_cores=0.97)}).verdict
    assert "met" == score(RATE, {"kafka": kafka, "ottla": samples(150, 150, 150, client_cores=0.97)}).verdict


def test_tables_name_the_measure_and_the_outcome() -> None:
    lines = [
        score(TIME, {"kafka": samples(4.0), "ottla": samples(0.25)}),
        score(RATE, {"kafka": samples(1200), "ottla": samples(1300)}),
    ]
    assert [
        "                   Kafka      Ottla  better by  least..most      goal",
        "start, s               4       0.25    16.00 x  16.00..16.00     10 x met",
        "produce, MB/s      1.2 k      1.3 k     1.08 x  1.08..1.08       1.5 x missed",
    ] == table(lines).splitlines()
    assert "| start, s | 4 | 0.25 | **16.00 ×** | 16.00 .. 16.00 | 10 x met |" == markdown(lines).splitlines()[2]


def test_a_case_that_failed_for_one_rival_counts_for_neither() -> None:
    found = Samples()
    for rival in ("kafka", "ottla"):
        found.add(rival, RATE, Sample(value=1.0))
        found.add(rival, TIME, Sample(value=1.0))
    found.failures["produce"] = "ottla: refused"
    assert [TIME] == [line.measure for line in found.lines()]


def test_a_round_that_was_cut_short_is_left_out() -> None:
    found = Samples()
    for rival, value in (("kafka", 2.0), ("ottla", 4.0), ("kafka", 100.0)):
        found.add(rival, RATE, Sample(value=value))
    found.add("kafka", TIME, Sample(value=1.0))
    assert [(RATE, 1, 2.0)] == [(line.measure, line.rounds, line.ratio) for line in found.lines()]


def test_throughput_divides_by_what_was_moved() -> None:
    work = Work(seconds=2.0, records=1_000_000, bytes=500_000_000, client_cpu_s=1.0)
    figures = throughput("case", work, 1.5, judged_cpu=True)
    assert {"MB/s": 250.0, "records/s": 500_000.0, "broker CPU s/GB": 3.0} == {
        measure.quantity: sample.value for measure, sample in figures.items()
    }
    assert {0.5, 0.0} == {sample.client_cores for sample in figures.values()}


def test_batches_have_about_the_size_that_is_wanted() -> None:
    assert (148, 15, 1) == (batch_records(100), batch_records(1024), batch_records(100_000))


def test_cases_have_names_of_their_own_and_words_choose_them() -> None:
    cases = all_cases()
    assert len(cases) == len({case.name for case in cases})
    assert all("librdkafka" in case.name for case in chosen(cases, only=["librdkafka"], quick=False))
    assert [] == chosen(cases, only=["no such words"], quick=False)
    assert [case for case in cases if case.quick] == chosen(cases, only=[], quick=True)
    produced = [case.name for case in chosen(cases, only=["produce"], quick=False)]
    assert {"C", "librdkafka", "Java"} == {name.split()[1] for name in produced}
    assert 25 == len(produced)


def test_coordination_is_a_word_that_chooses_groups_and_transactions() -> None:
    cases = chosen(all_cases(), only=["coordination"], quick=True)
    kinds = {case.name.split()[1] for case in cases}
    assert {"rebalance", "commit", "idle", "consume", "transactions", "throughput"} == kinds
    assert 2 == len({case.warm_up for case in cases})


def test_a_case_may_have_fewer_rounds_than_the_others() -> None:
    long_ones = [case for case in all_cases() if case.rounds_max is not None]
    assert {"idle", "throughput"} == {case.name.split()[1] for case in long_ones}
    assert [2, 1, 1, 0] == [len(of_round([long_ones[0], long_ones[-1]], number)) for number in (1, 2, 2, 3)]
    found = Samples()
    for rival in ("kafka", "ottla"):
        for _ in range(3):
            found.add(rival, RATE, Sample(value=1.0))
        found.add(rival, TIME, Sample(value=1.0))
    assert [3, 1] == [line.rounds for line in found.lines()]


def test_who_goes_first_changes() -> None:
    assert [["a", "b"], ["b", "a"], ["a", "b"]] == [rotated(["a", "b"], number) for number in range(3)]


def test_brokers_get_their_own_addresses_and_no_settings_besides() -> None:
    folder = Path("somewhere")
    address = Address(port=1234, controller_port=1235)
    settings = kafka_properties(folder, address)
    assert "listeners=PLAINTEXT://127.0.0.1:1234,CONTROLLER://127.0.0.1:1235\n" in settings
    tuned = ("num.network.threads", "num.io.threads", "log.flush", "buffer", "segment")
    assert [] == [word for word in tuned if word in settings]
    command = Ottla().command(folder, address)
    own = ["-m", "ottla", "serve", "--data", str(folder / "data"), "--listen", "127.0.0.1:1234"]
    assert own == command[1 : 1 + len(own)]
    common = [f"{key}={value}" for key, value in COMMON_SETTINGS.items()]
    assert common == [word for word in command[1 + len(own) :] if word != "--set"]
    assert set(common) <= set(settings.splitlines())
    assert ("kafka", "ottla") == (Kafka.name, Ottla.name)


def test_ottla_keeps_its_bytecode_where_the_shell_switched_that_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    environment = Ottla().environment(Path("somewhere"))
    assert "somewhere/bytecode" == environment["PYTHONPYCACHEPREFIX"]
    assert "PYTHONDONTWRITEBYTECODE" not in environment
