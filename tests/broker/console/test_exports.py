"""Exports as jobs: progress, the file, its bounds, and what removes it."""

import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ottla.client.producer.blocking_producer import Producer
from ottla.console.cluster import jobs as jobs_module
from ottla.console.cluster.jobs import Job, JobState
from ottla.console.cluster.result_files import ResultFiles, ResultTooLargeError
from ottla.testing import InProcessBroker
from tests.processes import run
from tests.unit.console.visitor import Visitor
from tests.waiting import wait_until

RECORDS = 2000


@pytest.fixture(scope="module")
def exported(broker: InProcessBroker) -> str:
    broker.create_topic("exported", partitions=2)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(RECORDS):
            producer.send("exported", json.dumps({"id": number}).encode(), partition=number % 2)
    return "exported"


@pytest.fixture
def open_export(visit: Callable[..., Visitor], broker: InProcessBroker, tmp_path: Path) -> Callable[..., Visitor]:
    (tmp_path / "exports").mkdir()
    return lambda **settings: visit(broker.bootstrap, export_folder=tmp_path / "exports", **settings)


def ended(console: Visitor, started: Any) -> Job:
    assert 303 == started.status_code, started.text
    job = console.console.jobs.find(started.headers["location"].removeprefix("/jobs/"))
    wait_until(lambda: job.state is not JobState.RUNNING)
    return job


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.rglob("*") if each.is_file() and each.name != "lock")


def test_an_export_is_a_job_with_a_file(open_export: Callable[..., Visitor], exported: str, tmp_path: Path) -> None:
    console = open_export(read_only=True)
    assert 'action="/topics/exported/records/export"' in console.get(f"/topics/{exported}/records").text
    job = ended(console, console.post(f"/topics/{exported}/records/export", {"format": "jsonl"}))
    assert (JobState.DONE, RECORDS, RECORDS) == (job.state, job.done, job.total), job.outcome
    assert job.outcome.startswith("2,000 records, ")
    assert f'href="{job.address}/file"' in console.get(job.address).text
    assert f'href="{job.address}/file"' in console.get("/jobs").text
    file = console.get(f"{job.address}/file")
    assert ("attachment; filename*=UTF-8''exported.jsonl", "application/x-ndjson") == (
        file.headers["content-disposition"],
        file.headers["content-type"],
    )
    assert set(range(RECORDS)) == {json.loads(json.loads(line)["value"])["id"] for line in file.text.splitlines()}
    assert file.content[10:20] == console.get(f"{job.address}/file", headers={"Range": "bytes=10-19"}).content
    (folder,) = (tmp_path / "exports").iterdir()
    assert 0o700 == folder.stat().st_mode & 0o777
    assert 303 == console.post(f"{job.address}/file/delete").status_code
    assert ([], 404) == (files(tmp_path / "exports"), console.get(f"{job.address}/file").status_code)


def test_filters_and_positions_choose_the_records(open_export: Callable[..., Visitor], exported: str) -> None:
    console = open_export()
    address = f"/topics/{exported}/records/export?partition=1&filter=value.id+%3C+100"
    job = ended(console, console.post(address, {"format": "parquet"}))
    assert job.outcome.startswith("50 records, "), job.outcome
    table = pq.read_table(io.BytesIO(console.get(f"{job.address}/file").content))
    assert {1} == set(table.column("partition").to_pylist())
    for wrong in ("?filter=value.", "?from=whenever", "?partition=9"):
        refused = console.post(f"/topics/{exported}/records/export{wrong}", {"format": "csv"})
        assert 400 <= refused.status_code < 500, wrong
    assert 422 == console.post(f"/topics/{exported}/records/export", {"format": "exe"}).status_code


def test_the_space_of_exports_is_bounded(open_export: Callable[..., Visitor], exported: str, tmp_path: Path) -> None:
    console = open_export(export_bytes_max=1000)
    job = ended(console, console.post(f"/topics/{exported}/records/export", {"format": "jsonl"}))
    assert (JobState.FAILED, True) == (job.state, "--export-limit" in job.outcome)
    assert [] == files(tmp_path / "exports")
    small = f"/topics/{exported}/records/export?partition=0&to=1"
    assert JobState.DONE is ended(console, console.post(small, {"format": "csv"})).state


def test_files_go_with_their_jobs_and_with_the_console(
    open_export: Callable[..., Visitor], exported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = open_export()
    job = ended(console, console.post(f"/topics/{exported}/records/export", {"format": "csv"}))
    assert [job.id] == files(tmp_path / "exports")
    console.console.jobs.remove_old_files()
    assert [job.id] == files(tmp_path / "exports")
    monkeypatch.setattr(jobs_module, "FILE_KEPT_MS", 0)
    console.console.jobs.remove_old_files()
    assert [] == files(tmp_path / "exports")
    ended(console, console.post(f"/topics/{exported}/records/export", {"format": "csv"}))
    console.run(console.console.jobs.close)
    assert [] == list((tmp_path / "exports").iterdir())


def test_a_stopped_export_leaves_no_file(
    open_export: Callable[..., Visitor], exported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = open_export()
    monkeypatch.setattr(ResultFiles, "take", lambda files, size: time.sleep(0.2))  # slow enough to be stopped
    started = console.post(f"/topics/{exported}/records/export", {"format": "jsonl"})
    job = console.console.jobs.find(started.headers["location"].removeprefix("/jobs/"))
    assert 303 == console.post(f"{job.address}/stop").status_code
    assert (JobState.STOPPED, []) == (job.state, files(tmp_path / "exports"))


def test_folders_of_killed_consoles_are_removed(tmp_path: Path) -> None:
    killed = f"""
import os, pathlib
from ottla.console.cluster.result_files import ResultFiles
ResultFiles(pathlib.Path({str(tmp_path)!r}), 100).create("a", "a", "text/plain").append(b"abc")
os.kill(os.getpid(), 9)
"""
    run([sys.executable, "-c", killed], status=-9)
    (left,) = tmp_path.iterdir()
    living = ResultFiles(tmp_path, 100)
    kept = living.create("b", "b", "text/plain")
    kept.append(b"x" * 100)
    with pytest.raises(ResultTooLargeError):
        kept.append(b"y")
    assert not left.exists()
    other = ResultFiles(tmp_path, 100)
    other.create("c", "c", "text/plain").finish()
    assert kept.path.exists()
    assert 2 == len(list(tmp_path.iterdir()))
    other.close()
    kept.remove()
    living.create("d", "d", "text/plain").append(b"x" * 100)
    living.close()
    assert [] == list(tmp_path.iterdir())
