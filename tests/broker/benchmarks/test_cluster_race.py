"""The stopwatch beside three Kafkas: what it reads, what it makes of acknowledgements, and how it sets clusters up."""

from pathlib import Path

import pytest

from benchmarks.cluster import main
from benchmarks.cluster_race.cases import all_cases
from benchmarks.cluster_race.clusters import BROKERS, OttlaMember, ottla_cluster
from benchmarks.cluster_race.failover_load import longest_pause, ottla_writer, pause_around
from benchmarks.cluster_race.memory import parse_pss, proportional_bytes
from benchmarks.kafka_race.brokers import Address, kafka_properties
from benchmarks.kafka_race.raw_load import LoadError

pytestmark = pytest.mark.slow


def test_proportional_memory_is_read_from_the_rollup() -> None:
    assert 100 * 1024 == parse_pss("55d-7ff [rollup]\nRss:       2048 kB\nPss:      100 kB\nPss_Dirty:  50 kB\n")
    with pytest.raises(ValueError, match="no line Pss:"):
        parse_pss("Rss: 100 kB\n")


def test_the_pause_is_the_longest_that_ends_after_the_fault() -> None:
    acknowledged = [0.0, 5.0, 5.1, 5.2, 7.7, 7.8]
    assert 2.5 == pytest.approx(longest_pause(acknowledged, 5.15))
    # One that was under way when it happened is acknowledged still: the pause begins there.
    assert 2.5 == pytest.approx(longest_pause(acknowledged, 5.12))
    assert 0.0 == longest_pause(acknowledged, 9.0)


def test_what_goes_wrong_while_writing_is_told() -> None:
    def refuse() -> None:
        raise LoadError("no room")

    with pytest.raises(LoadError, match="no room"):
        pause_around(refuse, lambda: None)


def test_three_kafkas_know_each_other() -> None:
    address = Address(port=1, controller_port=2)
    text = kafka_properties(Path("/data"), address, {"controller.quorum.voters": "1@a:1,2@b:2"})
    assert ["controller.quorum.voters=1@a:1,2@b:2"] == [line for line in text.splitlines() if "voters" in line]


def test_our_brokers_share_their_metadata() -> None:
    command = OttlaMember(2, "sqlite:/m.db").command(Path("/data"), Address(port=1, controller_port=2))
    assert "sqlite:/m.db" == command[command.index("--metadata") + 1]
    assert {"node.id=2", "min.insync.replicas=2"} <= set(command)


def test_a_cluster_is_started_loses_its_leader_and_goes_on(tmp_path: Path) -> None:
    cluster = ottla_cluster(tmp_path)
    try:
        cluster.start()
        assert proportional_bytes(cluster.pids) > BROKERS * 10_000_000
        with cluster.topic("t", 1):
            leader = cluster.leaders("t")[0]
            with ottla_writer(cluster.bootstrap, "t") as write:
                assert pause_around(write, cluster.brokers[leader].kill) > 0
            cluster.brokers[leader].start()
            cluster.wait_in_sync()
            cluster.check_alive()
    finally:
        cluster.stop()


def test_cases_have_names_of_their_own_and_unknown_ones_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    names = [case.name for case in all_cases()]
    assert len(names) == len(set(names))
    assert 2 == main(["--only", "nothing like it"])
    assert all(name in capsys.readouterr().err for name in names[:1])
