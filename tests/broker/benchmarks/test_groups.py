"""The benchmark of groups: which cases it has, and what it makes of the work of a share group."""

import pytest

from benchmarks.groups import cases_of_groups, main
from benchmarks.kafka_race.raw_load import Work
from benchmarks.kafka_race.share_cases import RECORD_BYTES, acknowledge_figures, consume_figures, filled_bytes
from benchmarks.kafka_race.throughput import BATCH_BYTES, batch_records
from benchmarks.vs_kafka import chosen


def test_cases_are_those_of_share_groups_and_some_of_coordination(capsys: pytest.CaptureFixture[str]) -> None:
    names = [case.name for case in cases_of_groups()]
    assert len(names) == len(set(names))
    assert 5 == len([name for name in names if name.startswith("groups share")])
    assert {"commit", "rebalance", "idle"} == {name.split()[1] for name in names if name.startswith("coordination")}
    assert 3 == len({case.name for case in chosen(cases_of_groups(), only=["share consume"], quick=False)})
    assert 0 == main(["--list", "--quick"])
    assert names == capsys.readouterr().out.splitlines()
    assert 2 == main(["--only", "no such words"])


def test_more_is_written_than_is_read() -> None:
    read_bytes = 10_000_000
    batches = filled_bytes(read_bytes, 16) // BATCH_BYTES
    values = batches * batch_records(RECORD_BYTES) * RECORD_BYTES
    assert 1.25 * read_bytes <= values <= 1.35 * read_bytes


def test_share_figures_divide_by_what_was_accepted() -> None:
    work = Work(seconds=2.0, records=100_000, bytes=500_000_000, requests=7, client_cpu_s=1.0)
    consumed = consume_figures("case", work, 1.5)
    assert {"MB/s": 250.0, "broker CPU s/GB": 3.0} == {each.quantity: found.value for each, found in consumed.items()}
    told = acknowledge_figures("case", work, 1.5)
    assert {"acknowledgements/s": 50_000.0, "broker CPU µs each": 15.0} == {
        each.quantity: found.value for each, found in told.items()
    }
    assert {True, False} == {each.more_is_better for each in told}
