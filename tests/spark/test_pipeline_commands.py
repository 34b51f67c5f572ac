"""`ottla pipeline` with real Spark: once, again, continuously, killed, looked at, reset; and declarative pipelines."""

import json
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from ottla.spark.pipelines.dataframes.view_builder import ViewBuilder
from ottla.spark.pipelines.declaration.loading import unused_views
from ottla.spark.pipelines.declaration.problems import ProjectError
from ottla.spark.pipelines.running.parquet_files import committed_files
from ottla.spark.pipelines.running.query_report import QueryReport
from ottla.spark.pipelines.running.runner import run_queries
from tests.documented import ADDRESS, samples
from tests.spark.pipeline_rig import (
    SMALL,
    headers_of,
    loaded,
    records_of,
    rows_of,
    run_command,
    run_once,
    running,
    wait_event,
    wait_events,
    write_project,
)
from tests.spark.topics import Topics
from tests.waiting import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def numbers_project(topics: Topics, folder: Path) -> tuple[Path, str, str, str]:
    """Numbers in, halves of the even ones out; the odd ones are dead letters."""
    source, out, dead = topics.create(partitions=2), topics.create(partitions=2), topics.create()
    settings = f"""
        name = "halves"
        trigger = "200ms"
        [sources.numbers]
        topic = "{source}"
        schema = "number BIGINT"
        expect = {{ "it is even" = "number % 2 = 0" }}
        options = {{ maxOffsetsPerTrigger = 400 }}
        [sinks.halves]
        from = "halves"
        topic = "{out}"
        [dead_letters]
        topic = "{dead}"
    """
    steps = {"halves.sql": "SELECT /*+ REPARTITION(2) */ number DIV 2 AS half FROM numbers"}
    return write_project(folder, settings, steps), source, out, dead


def send_numbers(topics: Topics, topic: str, begin: int, end: int) -> None:
    for partition in range(2):
        numbers = range(begin + partition, end, 2)
        topics.fill(topic, [json.dumps({"number": number}).encode() for number in numbers], partition)


def test_once_again_and_from_the_start(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    """Runs to the end, goes on with what is new, tells where it stands, begins anew after a reset."""
    folder, source, out, dead = numbers_project(topics, tmp_path)
    here = (str(folder), "--bootstrap", topics.bootstrap)
    send_numbers(topics, source, 0, 1000)
    missing = run_command("run", *here, "--set", "sinks.halves.topic=nowhere", *SMALL, expected=2)
    assert (
        f"missing topics at {topics.bootstrap}: nowhere; create them with `ottla topics create nowhere`"
        in missing.stderr
    )

    first = run_once(spark, topics, folder)
    assert [("done", 1000, 0), ("done", 1000, 0)] == [(each.state, each.rows, each.behind) for each in first.values()]
    assert list(range(500)) == sorted(row["half"] for row in rows_of(topics, out))
    assert 500 == len(records_of(topics, dead))

    send_numbers(topics, source, 1000, 1100)
    status = json.loads(run_command("status", *here, "--json").stdout)
    assert (False, [100, 100]) == (status["running"], [query["lag"] for query in status["queries"]])
    assert [500, 500] == [each["committed"] for each in status["queries"][0]["partitions"]]
    assert [100, 100] == [each.rows for each in run_once(spark, topics, folder).values()]
    assert list(range(550)) == sorted(row["half"] for row in rows_of(topics, out))

    assert "halves: reset\n" == run_command("reset", *here, "--sink", "halves", "--yes").stdout
    assert [1100, 0] == [each.rows for each in run_once(spark, topics, folder).values()]
    assert sorted([*range(550), *range(550)]) == sorted(row["half"] for row in rows_of(topics, out))
    letters = records_of(topics, dead)
    assert 550 == len(letters)
    assert {"failed expectation: it is even"} == {headers_of(letter)["message"] for letter in letters}


def test_killed_and_stopped(ottla: Topics, tmp_path: Path) -> None:
    """SIGKILL in the middle and SIGTERM at the end: each number is there once; meanwhile, it is the only run."""
    folder, source, out, dead = numbers_project(ottla, tmp_path)
    arguments = (str(folder), "--bootstrap", ottla.bootstrap, *SMALL)
    # Many batches more than are written until the process is killed, also if this one stalls.
    send_numbers(ottla, source, 0, 6000)
    with running(tmp_path / "run", *arguments) as process:
        wait_event(process, event="progress", name="halves")
    assert len(rows_of(ottla, out)) < 3000
    send_numbers(ottla, source, 6000, 6400)
    # The rest in a few batches: what the killed run had begun is repeated as it was.
    settings = (folder / "pipeline.toml").read_text()
    (folder / "pipeline.toml").write_text(settings.replace("maxOffsetsPerTrigger = 400", "maxOffsetsPerTrigger = 4000"))
    with running(tmp_path / "run", *arguments) as process:
        wait_event(process, event="ready")
        refused = run_command("run", *arguments, expected=2)
        assert f"halves is already running (process {process.pid}); stop it first" in refused.stderr
        status = json.loads(run_command("status", str(folder), "--bootstrap", ottla.bootstrap, "--json").stdout)
        assert (True, process.pid) == (status["running"], status["process"])
        done = {"event": "progress", "behind": 0}
        wait_events(process, {**done, "name": "halves"}, {**done, "name": "dead_letters-numbers"})
        process.send(signal.SIGTERM)
        wait_event(process, event="end")
        assert 0 == process.wait()
    assert list(range(3200)) == sorted(row["half"] for row in rows_of(ottla, out))
    odd = sorted(json.loads(letter.value)["number"] for letter in records_of(ottla, dead))
    assert list(range(1, 6400, 2)) == odd


def test_a_deep_look(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    """What `validate --deep` finds beyond what is run: views that nothing writes."""
    folder, _, _, _ = numbers_project(ottla, tmp_path)
    (folder / "steps" / "spare.sql").write_text("SELECT number,\n  nmuber FROM numbers")
    project = loaded(ottla, folder)
    with pytest.raises(ProjectError, match=r"steps/spare.sql:2: spare: \[UNRESOLVED_COLUMN.WITH_SUGGESTION\]"):
        ViewBuilder(spark, project).build_all(unused_views(project))


def test_a_missing_column_is_told_in_a_line(ottla: Topics, tmp_path: Path) -> None:
    """What Spark logs about it is in a file, which is named."""
    folder, _, _, _ = numbers_project(ottla, tmp_path)
    (folder / "steps" / "halves.sql").write_text("SELECT nmuber FROM numbers")
    done = run_command("run", str(folder), "--bootstrap", ottla.bootstrap, *SMALL, expected=2)
    starting, problem, remark = done.stderr.splitlines()
    assert starting.startswith("halves: starting Spark")
    assert "steps/halves.sql:1: halves: [UNRESOLVED_COLUMN.WITH_SUGGESTION]" in problem
    log = folder / ".ottla" / "halves" / "spark.log"
    assert f"The full error of Spark is in {log}" == remark
    assert '"errorClass": "UNRESOLVED_COLUMN.WITH_SUGGESTION"' in log.read_text()


def test_an_idle_query_is_not_starting_for_ever(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    folder, _, _, _ = numbers_project(ottla, tmp_path)
    progress = folder / ".ottla" / "halves" / "progress.json"
    deadline = time.monotonic() + PATIENCE_SECONDS

    def end_when_idle(_reports: list[QueryReport]) -> None:
        states = [query["state"] for query in json.loads(progress.read_bytes())["queries"]]
        if states == ["idle", "idle"]:
            raise InterruptedError
        assert time.monotonic() < deadline, states

    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "500")
    try:
        with pytest.raises(InterruptedError):
            run_queries(spark, loaded(ottla, folder), once=False, watch=end_when_idle, ready=lambda: None)
    finally:
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
        for query in spark.streams.active:
            query.stop()


SLOW = """
import time
from pathlib import Path

from ottla.spark.pipelines import rejecting


def slowly(row):
    deadline = time.monotonic() + 120
    while row["number"] == 1001 and not Path({flag!r}).exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    return {{"number": row["number"]}}


def step(spark, numbers):
    return rejecting(numbers, slowly, "number BIGINT")
"""


def test_parquet_is_right_for_readers_that_do_not_know_spark(
    spark: "SparkSession", ottla: Topics, tmp_path: Path
) -> None:
    """Killed while one file of a batch is written and another is not: after the next run every reader counts once."""
    source, flag, archive = ottla.create(partitions=2), tmp_path / "flag", tmp_path / "shop" / "archive"
    settings = f"""
        name = "archived"
        [sources.numbers]
        topic = "{source}"
        schema = "number BIGINT"
        [sinks.archive]
        from = "slow"
        parquet = "archive"
    """
    folder = write_project(tmp_path / "shop", settings, {"slow.py": SLOW.format(flag=str(flag))})
    arguments = (str(folder), "--bootstrap", ottla.bootstrap, *SMALL)
    send_numbers(ottla, source, 0, 100)
    run_once(spark, ottla, folder)
    assert 100 == ds.dataset(archive).count_rows()
    send_numbers(ottla, source, 1000, 1100)
    with running(tmp_path / "run", *arguments) as process:
        wait_event(process, event="ready")
        wait_until(lambda: uncommitted(archive), "one file of the batch is written")
        process.kill()
    (complete,) = uncommitted(archive)
    flag.touch()
    done = run_command("run", *arguments, "--once")
    assert f"{complete} (50 rows) to " in done.stderr
    expected = sorted([*range(100), *range(1000, 1100)])
    assert expected == sorted(ds.dataset(archive).to_table()["number"].to_pylist())
    assert expected == sorted(ds.dataset(committed_files(archive)).to_table()["number"].to_pylist())
    assert expected == sorted(row.number for row in spark.read.parquet(str(archive)).collect())


def uncommitted(archive: Path) -> list[Path]:
    """Whole files that no batch has committed."""
    found = []
    for path in set(archive.glob("*.parquet")) - set(committed_files(archive)):
        with suppress(pa.ArrowInvalid, OSError):
            pq.read_metadata(path)
            found.append(path)
    return found


@pytest.mark.long
def test_a_project_of_sparks_own_declarative_pipelines(
    ottla: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documentation's, in a relative folder, as it is typed."""
    (declared,) = [each for each in samples("docs/pipelines.md") if "pipelines as dp" in each]
    source, out = ottla.create(), ottla.create()
    ottla.fill(source, [b"one", b"two"])
    (tmp_path / "flows").mkdir()
    declared = declared.replace(ADDRESS, ottla.bootstrap).replace('"orders-out"', f'"{out}"')
    (tmp_path / "flows" / "flow.py").write_text(declared.replace('"orders"', f'"{source}"'))
    spec = f"name: declared\nstorage: file://{tmp_path}/storage\nlibraries:\n  - glob:\n      include: flows/**\n"
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    monkeypatch.chdir(tmp_path.parent)
    run_command("run", tmp_path.name, *SMALL)
    assert [b"one", b"two"] == [record.value for record in records_of(ottla, out)]
