"""Which Parquet files of a sink count, and what becomes of those that a crash left behind."""

import json
import logging
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from ottla.model.errors import MisuseError
from ottla.spark.pipelines.running.parquet_files import committed_files, set_aside_uncommitted

LONG_AGO = 1_000_000_000


def write(path: Path, *ids: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": ids}), path)
    return path


def commit(folder: Path, batch: str, *files: Path) -> None:
    log = folder / "_spark_metadata"
    log.mkdir(parents=True, exist_ok=True)
    entries = [json.dumps({"path": f"file://{str(file).replace(' ', '%20')}", "action": "add"}) for file in files]
    (log / batch).write_text("\n".join(["v1", *entries]))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A sink's folder: three files that count, one of a batch that failed, and one that is half written."""
    folder = tmp_path / "an archive"
    first = write(folder / "part-00000-a.snappy.parquet", 1, 2)
    second = write(folder / "country=AT" / "part-00000-b.snappy.parquet", 3)
    third = write(folder / "part-00000-c.snappy.parquet", 4)
    commit(folder, "0", first)
    commit(folder, "1.compact", first, second)
    commit(folder, "2", third)
    (folder / "_spark_metadata" / ".2.crc").write_text("")
    write(folder / "country=AT" / "part-00001-failed.snappy.parquet", 3, 5)
    (folder / "part-00002-torn.snappy.parquet").write_bytes(b"PAR1 and no more")
    return folder


def test_committed_files(archive: Path) -> None:
    names = ["part-00000-a.snappy.parquet", "country=AT/part-00000-b.snappy.parquet", "part-00000-c.snappy.parquet"]
    assert [archive / name for name in names] == committed_files(archive)
    assert [1, 2, 3, 4] == sorted(ds.dataset(committed_files(str(archive))).to_table()["id"].to_pylist())


def test_a_folder_without_a_log_is_not_a_sinks(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match=r"nothing has no _spark_metadata: .* not written by Spark's file sink"):
        committed_files(tmp_path / "nothing")


def test_what_is_not_committed_is_set_aside_and_told(archive: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        aside = set_aside_uncommitted(archive, LONG_AGO)
    moved = [
        archive / "_uncommitted" / "country=AT" / "part-00001-failed.snappy.parquet.uncommitted",
        archive / "_uncommitted" / "part-00002-torn.snappy.parquet.uncommitted",
    ]
    assert moved == aside
    assert all(path.exists() for path in moved)
    assert 2 == len(caplog.records)
    assert "part-00001-failed.snappy.parquet (2 rows) to " in caplog.text
    assert "part-00002-torn.snappy.parquet (incomplete) to " in caplog.text
    assert [1, 2, 3, 4] == sorted(ds.dataset(archive, partitioning="hive").to_table()["id"].to_pylist())
    assert [] == set_aside_uncommitted(archive, LONG_AGO)


def test_what_others_put_there_stays(archive: Path) -> None:
    older = write(archive / "part-00000-older.snappy.parquet", 9)
    os.utime(older, (LONG_AGO, LONG_AGO))
    own = write(archive / "mine.parquet", 8)
    set_aside_uncommitted(archive, LONG_AGO + 1)
    assert older.exists()
    assert own.exists()


def test_a_folder_that_was_moved_keeps_what_is_committed(archive: Path) -> None:
    moved = archive.rename(archive.with_name("elsewhere"))
    assert 2 == len(set_aside_uncommitted(moved, LONG_AGO))
    assert [1, 2, 3, 4] == sorted(ds.dataset(moved, partitioning="hive").to_table()["id"].to_pylist())


def test_nothing_happens_where_no_log_is(tmp_path: Path) -> None:
    write(tmp_path / "part-00000-a.parquet", 1)
    assert [] == set_aside_uncommitted(tmp_path, LONG_AGO)
    assert [] == set_aside_uncommitted(tmp_path / "missing", LONG_AGO)
