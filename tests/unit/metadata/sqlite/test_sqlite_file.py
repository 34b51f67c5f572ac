"""The SQLite file by itself; the store over it is in `test_sqlite_store.py`."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from ottla.metadata.sqlite.sqlite_file import SqliteFile

BROKERS = 4
TURNS = 25


def test_brokers_that_open_a_new_file_at_the_same_time_all_get_it(tmp_path: Path) -> None:
    def opened(path: Path, start: Barrier) -> int:
        file = SqliteFile(str(path), exclusive=False, busy_timeout_ms=10_000, changes_kept=100)
        start.wait()
        file.open()
        file.close()
        return file.revision

    with ThreadPoolExecutor(BROKERS) as threads:
        for turn in range(TURNS):
            start = Barrier(BROKERS)
            jobs = [threads.submit(opened, tmp_path / f"{turn}.db", start) for _ in range(BROKERS)]
            assert [0] * BROKERS == [job.result(60) for job in jobs]


def test_the_file_is_for_its_owner_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metadata.db"
    before = os.umask(0)
    try:
        file = SqliteFile(str(path), exclusive=False, busy_timeout_ms=1000, changes_kept=10)
        file.open()
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
        file.close()
    finally:
        os.umask(before)
    assert {"metadata.db": 0o600, "metadata.db-wal": 0o600, "metadata.db-shm": 0o600} == modes
    assert [] == caplog.records


def test_a_file_that_others_can_read_is_warned_about_and_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metadata.db"
    path.touch()
    path.chmod(0o644)
    file = SqliteFile(str(path), exclusive=False, busy_timeout_ms=1000, changes_kept=10)
    file.open()
    file.close()
    (record,) = caplog.records
    assert ("WARNING", True) == (record.levelname, f"chmod 600 {path}" in record.getMessage())
    assert 0o644 == stat.S_IMODE(path.stat().st_mode)
