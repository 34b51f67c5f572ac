"""Makes archives of the classes that Kafka's broker, tools and clients load: they halve the CPU time of a JVM's start.

A broker and its most used tools run once and list what they load; Java's class data sharing (JEP 310) keeps that parsed
and verified. `java_command` uses an archive that is there; `python -m` of this module makes those that are missing.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.compat.clients.kafka_tools import Tools
from tests.compat.kafka_broker import QUICK_START_JVM_OPTIONS, KafkaBroker
from tests.compat.kafka_jars import (
    KAFKA_VERSION,
    NO_JVM_WARNINGS,
    OLD_KAFKA_VERSION,
    SHORT_LIVED_JVM,
    class_archive,
    class_path,
    program,
)

OPTIONS: Final = "JAVA_TOOL_OPTIONS"
"""The environment variable that every JVM reads."""


def make_class_archive(version: str) -> None:
    """Makes the archive of that Kafka, if there is none."""
    archive = class_archive(version)
    if archive.exists():
        return
    # Whole or not at all: another test run may make it at the same time.
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        folder = Path(name)
        os.environ[OPTIONS] = f"-XX:DumpLoadedClassList={folder}/%p.classes"
        try:
            _load_classes(folder / "broker", version)
        finally:
            del os.environ[OPTIONS]
        lines = [line for path in folder.glob("*.classes") for line in path.read_text().splitlines()]
        (folder / "classes").write_text("".join(f"{line}\n" for line in dict.fromkeys(lines)))
        command = [
            program("java"), *SHORT_LIVED_JVM, *NO_JVM_WARNINGS, "-Xshare:dump", "-cp", class_path(version),
            f"-XX:SharedClassListFile={folder}/classes", f"-XX:SharedArchiveFile={folder}/archive",
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (folder / "archive").rename(archive)


def _load_classes(folder: Path, version: str) -> None:
    with KafkaBroker(folder, version=version, jvm_options=QUICK_START_JVM_OPTIONS) as broker:
        tools = Tools(version, broker.bootstrap)
        topic = ("--topic", "t")
        tools.run("kafka-topics", "--create", *topic)
        tools.run("kafka-console-producer", *topic, given="a\n")
        tools.run("kafka-console-consumer", *topic, "--from-beginning", "--max-messages", "1", "--group", "g")
        tools.run("kafka-consumer-groups", "--describe", "--group", "g")
        tools.run("kafka-configs", "--describe", "--entity-type", "topics")


if __name__ == "__main__":
    for each in (KAFKA_VERSION, OLD_KAFKA_VERSION):
        make_class_archive(each)
