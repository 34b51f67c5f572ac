"""The load generator in C, compiled once for all workers, and kept in `build` as long as its sources are the same."""

import fcntl
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from benchmarks.kafka_race.raw_load import COMPILER_OPTIONS, CRC_FOLDER, SOURCES, RawLoad

BUILD = Path(__file__).parents[3] / "build"


@pytest.fixture(scope="session")
def raw() -> RawLoad:
    sources = sorted([*SOURCES.glob("*.[ch]"), *CRC_FOLDER.glob("*.h")])
    compiler = subprocess.run(["cc", "--version"], capture_output=True, check=True).stdout
    made_of = [compiler, COMPILER_OPTIONS, *((path.name, path.read_bytes()) for path in sources)]
    folder = BUILD / "load" / sha256(repr(made_of).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Another worker may compile it now.
        return RawLoad(folder)
