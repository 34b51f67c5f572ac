"""The SQLite file by itself; the store over it is in `test_sqlite_store.py`."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from ottla.metadata.sqlite_file import SqliteFile

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
