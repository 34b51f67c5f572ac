"""Features, log dirs and the metadata quorum as Apache Kafka answers for them, and Kafka's tools for them on Ottla."""

import json
import re
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from ottla.metadata.features import SHARE_VERSION, SUPPORTED_FEATURES
from ottla.protocol.apis import ApiKey
from tests.compat.clients.kafka_tools import Tools
from tests.compat.kafka_jars import KAFKA_VERSION
from tests.compat.kafkas_word import Both
from tests.compat.ottla_broker import OttlaBroker
from tests.wire.exchange import RawConnection
from tests.wire.world import batch, create_topic, produce

DEADLINE_S: Final = 60
SOFTWARE: Final = {"client_software_name": "compat", "client_software_version": "1.0"}
UPGRADE, SAFE, UNSAFE = 1, 2, 3


@pytest.fixture(scope="module")
def dirs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("dirs")
    return [folder / "one", folder / "two"]


@pytest.fixture(scope="module")
def two_dirs_ottla(tmp_path_factory: pytest.TempPathFactory, dirs: list[Path]) -> Iterator[OttlaBroker]:
    """A broker with two data dirs."""
    broker = OttlaBroker(tmp_path_factory.mktemp("ottla") / "broker")
    broker.data = Path(",".join(map(str, dirs)))
    with broker:
        yield broker


@pytest.fixture
def tools(two_dirs_ottla: OttlaBroker) -> Tools:
    return Tools(KAFKA_VERSION, two_dirs_ottla.bootstrap)


@pytest.mark.parametrize("version", [3, 4])
def test_the_features_that_both_have(both: Both, version: int) -> None:
    def scenario(connection: RawConnection) -> Any:
        answer = connection.ask(ApiKey.API_VERSIONS, version, SOFTWARE)
        assert answer.finalized_features_epoch >= 0
        supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        finalized = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
        return [{name: found.get(name) for name in SUPPORTED_FEATURES} for found in (supported, finalized)]

    theirs, ours = both(scenario)
    # Level 2, with dead letters, comes with Kafka 4.4. Version 3 leaves out supported features whose lowest level is 0.
    levels = [[each.pop(SHARE_VERSION) for each in found] for found in (theirs, ours)]
    assert [[[0, level] if version > 3 else None, [level, level]] for level in (1, 2)] == levels
    assert theirs == ours


UPDATES: Final[dict[str, list[tuple[str, int, int]]]] = {
    "the level that is in force": [("transaction.version", 2, UPGRADE)],
    "the level that is in force, as a downgrade": [("transaction.version", 2, SAFE)],
    "a level that does not exist": [("transaction.version", 9, UPGRADE)],
    "a negative level": [("transaction.version", -1, UPGRADE)],
    "a lower level as an upgrade": [("transaction.version", 1, UPGRADE)],
    "a downgrade": [("transaction.version", 0, SAFE)],
    "an unsafe downgrade": [("transaction.version", 1, UNSAFE)],
    "an unknown type": [("transaction.version", 1, 7)],
    "an unknown feature": [("no.such.version", 1, UPGRADE)],
    "an unknown feature, disabled": [("no.such.version", 0, SAFE)],
    "metadata that would be lost": [("metadata.version", 29, SAFE)],
    "metadata that would be lost, unsafe": [("metadata.version", 29, UNSAFE)],
    "metadata below all": [("metadata.version", 1, SAFE)],
    "the same metadata": [("metadata.version", 30, UPGRADE)],
    "one of two is refused": [("group.version", 0, SAFE), ("transaction.version", 9, UPGRADE)],
    "nothing": [],
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("updates", UPDATES)
def test_updates_of_features_are_validated(both: Both, updates: str, version: int) -> None:
    def scenario(connection: RawConnection) -> Any:
        wanted = [
            {"feature": name, "max_version_level": level, "upgrade_type": kind}
            for name, level, kind in UPDATES[updates]
        ]
        answer = connection.ask(ApiKey.UPDATE_FEATURES, version, {"feature_updates": wanted, "validate_only": True})
        results = [(each.feature, each.error_code) for each in answer.results] if version == 1 else None
        return answer.error_code, results

    theirs, ours = both(scenario)
    assert theirs == ours


def test_a_feature_is_lowered_and_raised(both: Both) -> None:
    def scenario(connection: RawConnection) -> Any:
        found = []
        for level, kind in ((0, SAFE), (1, UPGRADE)):
            wanted = [{"feature": "group.version", "max_version_level": level, "upgrade_type": kind}]
            answer = connection.ask(ApiKey.UPDATE_FEATURES, 2, {"feature_updates": wanted})
            found.append((answer.error_code, wait_level(connection, "group.version", level)))
        return found

    theirs, ours = both(scenario)
    assert theirs == ours


def wait_level(connection: RawConnection, name: str, level: int) -> int:
    """Kafka answers a moment before its broker shows the new level."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        answer = connection.ask(ApiKey.API_VERSIONS, 4, SOFTWARE)
        found = {each.name: each.max_version_level for each in answer.finalized_features}.get(name, 0)
        if found == level or time.monotonic() > deadline:
            return int(found)


@pytest.mark.parametrize("version", [1, 2])
def test_replicas_that_cannot_be_moved(both: Both, version: int) -> None:
    def scenario(connection: RawConnection) -> Any:
        topic = f"dirs-{version}"
        create_topic(connection, topic)
        folders = connection.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}).results
        (home,) = [each.log_dir for each in folders if any(topic == found.name for found in each.topics)]
        codes = []
        for path, name, index in (
            (home, topic, 0),
            (home, topic, 7),
            (home, "no-such", 0),
            ("/no/such/dir", topic, 0),
            ("/no/such/dir", "no-such", 0),
        ):
            wanted = [{"path": path, "topics": [{"name": name, "partitions": [index]}]}]
            answer = connection.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, version, {"dirs": wanted})
            codes.append([part.error_code for each in answer.results for part in each.partitions])
        return codes

    theirs, ours = both(scenario)
    assert theirs == ours


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum(both: Both, version: int) -> None:
    def scenario(connection: RawConnection) -> Any:
        found = []
        for topic, index in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("other", 0)):
            wanted = [{"topic_name": topic, "partitions": [{"partition_index": index}]}]
            answer = connection.ask(ApiKey.DESCRIBE_QUORUM, version, {"topics": wanted})
            part = answer.topics[0].partitions[0]
            found.append((answer.error_code, part.error_code, len(part.current_voters)))
        return found

    theirs, ours = both(scenario)
    assert theirs == ours


def test_unregistering_an_unknown_broker(both: Both) -> None:
    def scenario(connection: RawConnection) -> Any:
        return connection.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 4711}).error_code

    theirs, ours = both(scenario)
    assert theirs == ours


def test_voters_cannot_be_changed(both: Both) -> None:
    def scenario(connection: RawConnection) -> Any:
        codes = []
        for cluster_id in ("another", None):
            voter = {"cluster_id": cluster_id, "voter_id": 4711, "voter_directory_id": UUID(int=4711)}
            listeners = [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 9}]
            for version in (0, 1):
                asked = {**voter, "timeout": timedelta(seconds=10), "listeners": listeners}
                codes.append(connection.ask(ApiKey.ADD_RAFT_VOTER, version, asked).error_code)
            codes.append(connection.ask(ApiKey.REMOVE_RAFT_VOTER, 0, voter).error_code)
        return codes

    theirs, ours = both(scenario)
    assert theirs == ours


# Tools


def test_kafka_features(tools: Tools) -> None:
    shown = tools.run("kafka-features", "describe")
    rows = {name: rest.split() for name, rest in re.findall(r"Feature: (\S+)\s+(.*)", shown)}
    assert {"metadata.version", "group.version", "transaction.version"} <= set(rows)
    assert "FinalizedVersionLevel:" in rows["group.version"]
    assert "1" == rows["group.version"][rows["group.version"].index("FinalizedVersionLevel:") + 1]
    assert "group.version was downgraded to 0" in tools.run(
        "kafka-features", "downgrade", "--feature", "group.version=0"
    )
    assert "group.version was upgraded to 1" in tools.run("kafka-features", "upgrade", "--feature", "group.version=1")
    assert "transaction.version" in tools.fail("kafka-features", "upgrade", "--feature", "transaction.version=9")


def test_kafka_metadata_quorum(tools: Tools) -> None:
    shown = tools.run("kafka-metadata-quorum", "describe", "--status")
    assert re.search(r"LeaderId:\s+0\n", shown), shown
    assert "Leader" in tools.run("kafka-metadata-quorum", "describe", "--replication")


def test_kafka_reassign_partitions_between_log_dirs(
    tools: Tools, two_dirs_ottla: OttlaBroker, dirs: list[Path], tmp_path: Path
) -> None:
    with RawConnection(two_dirs_ottla.bootstrap) as connection:
        topic_id = create_topic(connection, "moving", 2)
        produce(connection, topic_id, batch(), 0)
        before = {path: [each.name for each in path.glob("moving-*")] for path in dirs}
        target = next(path for path in dirs if "moving-0" not in before[path])
        plan = tmp_path / "plan.json"
        parts = [{"topic": "moving", "partition": 0, "replicas": [0], "log_dirs": [str(target)]}]
        plan.write_text(json.dumps({"version": 1, "partitions": parts}))
        throttle = ("--replica-alter-log-dirs-throttle", "1000000")
        shown = tools.run("kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(plan), *throttle)
        assert f"Successfully started moving log directory to {target} for replica moving-0 with broker 0" in shown
        deadline = time.monotonic() + DEADLINE_S
        while True:
            shown = tools.run("kafka-reassign-partitions", "--verify", "--reassignment-json-file", str(plan))
            if "Reassignment of replica moving-0-0 completed successfully" in shown:
                break
            assert time.monotonic() < deadline, shown
        assert (target / "moving-0").is_dir()
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        answer = connection.ask_newest(
            ApiKey.FETCH, {"max_bytes": 1 << 20, "topics": [{"topic_id": topic_id, "partitions": [part]}]}
        )
        assert len(answer.responses[0].partitions[0].records) == len(batch())
