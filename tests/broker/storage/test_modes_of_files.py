"""Records are for those whom the broker allows to read them, also where the data dir itself is open to others."""

import os
import stat
from pathlib import Path

from ottla import AsyncProducer
from tests.broker.running_broker import make_topic, running


def open_to_others(folder: Path) -> list[str]:
    """The files and folders that others than their owner may use."""
    return sorted(
        f"{path.relative_to(folder)} {stat.S_IMODE(path.stat().st_mode):o}"
        for path in folder.rglob("*")
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    )


async def test_all_in_an_existing_data_dir_is_for_its_owner_only(tmp_path: Path) -> None:
    """A package or an operator may have made the data dir, and a start-up script may have a loose umask."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)
    umask = os.umask(0)
    try:
        for name in ("first", "second"):
            async with running(tmp_path, log_segment_bytes="1048576") as broker:
                await make_topic(broker, name)
                async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
                    for _ in range(30):
                        await producer.send_and_wait(name, os.urandom(100_000))
    finally:
        os.umask(umask)
    assert len(list((tmp_path / "data" / "first-0").glob("*.log"))) > 1
    assert [] == open_to_others(tmp_path / "data")
    assert 0o755 == stat.S_IMODE((tmp_path / "data").stat().st_mode)
