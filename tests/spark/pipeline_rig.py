"""Pipelines in tests: projects written into folders, run in the shared session or by the command, and read again."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla import Consumer, TopicPartition
from ottla.spark.pipelines.declaration.loading import load_project
from ottla.spark.pipelines.declaration.project import Project
from ottla.spark.pipelines.running.query_report import QueryReport
from ottla.spark.pipelines.running.runner import run_queries
from tests.processes import OTTLA, Program, run
from tests.spark.committed_records import wait_ended
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMAND_SECONDS = 240
SMALL = ("--master", "local[2]", "--set", "spark.driver.memory=1g", "--set", "spark.sql.shuffle.partitions=2")


def write_project(folder: Path, settings: str, steps: Mapping[str, str]) -> Path:
    """A project's files; `steps` by file name."""
    (folder / "steps").mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.toml").write_text(settings)
    for name, text in steps.items():
        (folder / "steps" / name).write_text(text)
    return folder


def run_once(spark: "SparkSession", topics: Topics, folder: Path) -> dict[str, QueryReport]:
    """Runs a project in a session until all there is has been read; how far each query came."""
    reports = run_queries(spark, loaded(topics, folder), once=True, watch=lambda reports: None, ready=lambda: None)
    return {report.name: report for report in reports}


def loaded(topics: Topics, folder: Path) -> Project:
    """The project, on these topics' broker."""
    return load_project(folder, {"bootstrap": topics.bootstrap})


def send_json(topics: Topics, topic: str, *documents: Any, keys: list[str] | None = None) -> None:
    """Writes documents, or bytes as they are, to a topic's first partition."""
    values = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in documents]
    topics.fill(topic, values, keys=None if keys is None else [key.encode() for key in keys])


def records_of(topics: Topics, topic: str) -> list[Any]:
    """All records of a topic that are committed, as a reader in another client sees them."""
    partitions = [
        TopicPartition(topic, index) for index in range(len(topics.admin.describe_topics([topic])[topic].partitions))
    ]
    wait_ended(topics.bootstrap)
    found: list[Any] = []
    with Consumer(
        bootstrap_servers=topics.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            for records in consumer.poll(timeout_ms=1000).values():
                found += records
    return found


def rows_of(topics: Topics, topic: str) -> list[dict[str, Any]]:
    """The same as JSON documents."""
    return [json.loads(record.value) for record in records_of(topics, topic)]


def headers_of(record: Any) -> dict[str, str]:
    """A record's headers as text, without the prefix of dead letters."""
    return {key.removeprefix("__dlq.errors."): value.decode() for key, value in record.headers}


def command(*arguments: str) -> list[str]:
    """`ottla pipeline` as a process's arguments."""
    return [*OTTLA, "pipeline", *arguments]


def run_command(*arguments: str, expected: int = 0) -> "subprocess.CompletedProcess[str]":
    """Runs `ottla pipeline` to its end, which must be this one."""
    done = run(command(*arguments), status=expected, seconds=COMMAND_SECONDS)
    assert "Traceback" not in done.stderr
    return done


def running(files: Path, *arguments: str) -> Program:
    """`ottla pipeline run`, its JSON lines to read."""
    return Program(command("run", *arguments, "--json"), files)


def wait_event(program: Program, **fields: Any) -> None:
    """Reads lines until one has these fields."""
    wait_events(program, fields)


def wait_events(program: Program, *expected: dict[str, Any]) -> None:
    """Reads lines until each of these was among them, in any order; a line may have other fields, too."""
    missing = list(expected)
    while missing:
        event: dict[str, Any] = json.loads(program.next_line(COMMAND_SECONDS))
        missing = [fields for fields in missing if not fields.items() <= event.items()]
