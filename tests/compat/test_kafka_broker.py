"""The ground that the other tests stand on: the Kafka that they judge by starts, serves, stops and complains."""

import contextlib
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.cimpl import NewTopic

from tests.compat.kafka_broker import QUICK_START_JVM_OPTIONS, KafkaBroker
from tests.compat.kafka_jars import (
    KAFKA_VERSION,
    OLD_KAFKA_VERSION,
    SHORT_LIVED_JVM,
    KafkaToolError,
    class_archive,
    class_path,
    java_command,
    kafka_tool,
)
from tests.golden.manifest import digest
from tests.golden.readers import consume, watermarks
from tests.waiting import PATIENCE_SECONDS


def test_class_path_names_existing_jars() -> None:
    jars = class_path().split(os.pathsep)
    assert [] == [jar for jar in jars if not os.path.isfile(jar)]
    for jar in (f"kafka_2.13-{KAFKA_VERSION}.jar", f"kafka-tools-{KAFKA_VERSION}.jar", "slf4j-simple-1.7.36.jar"):
        assert 1 == sum(path.endswith(f"/{jar}") for path in jars)


def test_a_tool_runs_and_its_failure_is_told() -> None:
    tool = "org.apache.kafka.tools.DumpLogSegments"
    assert KAFKA_VERSION == kafka_tool(tool, "--version").stdout.strip()
    with pytest.raises(KafkaToolError, match="no-such-option"):
        kafka_tool(tool, "--no-such-option")


@pytest.mark.parametrize("version", [KAFKA_VERSION, OLD_KAFKA_VERSION])
def test_most_classes_come_from_the_archive(version: str, tmp_path: Path) -> None:
    """Of a program of ours, too: without it, each JVM takes twice the CPU time until it has started."""
    assert class_archive(version).exists(), "run tests/compat/prepare"
    log = f"-Xlog:class+load:file={tmp_path}/classes"
    here, tool = str(Path(__file__).parent), "org.apache.kafka.tools.TopicCommand"
    command = java_command(tool, "--help", version=version, jvm_options=(*SHORT_LIVED_JVM, log), extra_path=here)
    subprocess.run(command, capture_output=True, timeout=PATIENCE_SECONDS)
    sources = Counter("shared" in line for line in (tmp_path / "classes").read_text().splitlines() if "source:" in line)
    assert sources[True] > 4 * sources[False], sources


def test_records_come_back(kafka: KafkaBroker) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for created in admin.create_topics([NewTopic("round-trip", num_partitions=1)]).values():
        created.result(PATIENCE_SECONDS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(10):
        producer.produce("round-trip", partition=0, key=b"key", value=b"%d" % number)
    assert 0 == producer.flush(PATIENCE_SECONDS)

    assert (0, 10) == watermarks(kafka.bootstrap, "round-trip")
    assert [digest(b"%d" % number) for number in range(10)] == [
        record.value for record in consume(kafka.bootstrap, "round-trip")
    ]


def test_settings_can_be_overridden_and_others_keep_kafkas_defaults(kafka: KafkaBroker) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (found,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
    settings = {name: entry.value for name, entry in found.result(PATIENCE_SECONDS).items()}
    assert "1" == settings["offsets.topic.num.partitions"]
    assert "1073741824" == settings["log.segment.bytes"]
    assert "8" == settings["num.io.threads"]


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path / "broker", overrides={"num.io.threads": "none"}, jvm_options=QUICK_START_JVM_OPTIONS)
    with pytest.raises(KafkaToolError, match=r"num\.io\.threads"):
        broker.start()


def test_stopping_and_killing(tmp_path: Path) -> None:
    """A stopped broker leaves the clean-shutdown mark, a killed one does not, and neither leaves a process."""
    broker = KafkaBroker(tmp_path / "broker", jvm_options=QUICK_START_JVM_OPTIONS)
    mark = broker.log_dir / ".kafka_cleanshutdown"
    with broker:
        assert not mark.exists()
    assert mark.exists()

    broker.start()
    assert _processes(tmp_path)
    broker.kill()
    assert not mark.exists()
    assert [] == _processes(tmp_path)


def _processes(folder: Path) -> list[str]:
    """The processes whose command line names this folder."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
    return found
