"""Faults one after the other under load: nothing acknowledged is lost, and writing goes on soon.

The short tests are what every change goes through, in about two minutes; each long one takes ten. On ZooKeeper the
short one is secured: brokers, clients and ZooKeeper use TLS and logins, so that faults also meet handshakes and logins.
On one machine's store everything is PLAINTEXT.
"""

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.arena import Arena, arena, java_load, librdkafka_load
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.ordeal import undergo, verdict
from tests.crash.small_filesystem import SmallFilesystem, cannot_mount, small_filesystem

ON_ZOOKEEPER: Final = (
    "leader killed",
    "leader paused beyond its session",
    "leader parted from ZooKeeper",
    "a follower does not hear the leader",
    "ZooKeeper's leader killed",
    "rolling restart",
)
ON_SQLITE: Final = (
    "leader killed, back at once",
    "transaction coordinator killed",
    "leader paused beyond its session",
)
LONG_SECONDS: Final = 600.0
DISK_MIB: Final = 64
SECURED: Final = pytest.param(True, id="sasl_ssl")


def start_loads(made: Arena, folder: Path, *, cuts_clients: bool = False) -> None:
    """librdkafka and Java, everything that they can do.

    Where clients are cut off, transactions are Java's only. librdkafka's know no epoch for each: when a request to end
    one is late it ends the next, on any broker.
    """
    made.start_load(
        "rd", librdkafka_load("writer,reader,member" if cuts_clients else "writer,mover,reader,member,copier")
    )
    made.start_load("java", java_load(folder / "classes", "writer,mover,reader,member"))


def named(names: tuple[str, ...]) -> list[Fault]:
    by_name = {each.name: each for each in FAULTS}
    return [by_name[name] for name in names]


@pytest.mark.parametrize("is_secured", [pytest.param(False, marks=pytest.mark.long, id="plaintext"), SECURED])
def test_single_faults_on_zookeeper(tmp_path: Path, is_secured: bool) -> None:
    with arena(tmp_path, "zookeeper", is_secured=is_secured) as made:
        start_loads(made, tmp_path)
        assert [] == verdict(made, undergo(made, named(ON_ZOOKEEPER)))


def test_single_faults_on_one_machines_store(tmp_path: Path) -> None:
    with arena(tmp_path, "sqlite") as made:
        start_loads(made, tmp_path)
        assert [] == verdict(made, undergo(made, named(ON_SQLITE)))


@pytest.mark.skipif(cannot_mount() is not None, reason=str(cannot_mount()))
def test_a_full_disk(tmp_path: Path) -> None:
    """What one broker cannot write any more, others lead; with room again, it catches up."""
    home = tmp_path / "brokers" / "0"
    home.mkdir(parents=True)
    with small_filesystem(home / "data", DISK_MIB) as disk, arena(tmp_path, "sqlite") as made:
        start_loads(made, tmp_path)
        assert 0 in {made.leader("plain", at).id for at in range(3)}
        full = Fault(name="a leader's disk is full", strike=lambda _: filled(disk))
        assert [] == verdict(made, undergo(made, [full]))


@contextmanager
def filled(disk: SmallFilesystem) -> Iterator[None]:
    disk.fill()
    yield
    disk.make_room()


@pytest.mark.long
@pytest.mark.parametrize("is_secured", [pytest.param(False, id="plaintext"), SECURED])
def test_many_faults_on_zookeeper(tmp_path: Path, is_secured: bool) -> None:
    """Each fault there is, then any of them."""
    with arena(tmp_path, "zookeeper", is_secured=is_secured) as made:
        start_loads(made, tmp_path, cuts_clients=True)
        assert [] == verdict(made, undergo(made, many(FAULTS)))


@pytest.mark.long
def test_many_faults_on_one_machines_store(tmp_path: Path) -> None:
    """The same with librdkafka's transactions, so that clients are not cut off."""
    chosen = [each for each in FAULTS if not each.needs_zookeeper and not each.cuts_clients]
    with arena(tmp_path, "sqlite") as made:
        start_loads(made, tmp_path)
        assert [] == verdict(made, undergo(made, many(chosen)))


def many(faults: Sequence[Fault]) -> Iterator[Fault]:
    """Each once, then any, for half of the seconds in CHAOS_SECONDS; CHAOS_SEED decides."""
    deadline = time.monotonic() + float(os.environ.get("CHAOS_SECONDS", LONG_SECONDS)) / 2
    seed = int(os.environ.get("CHAOS_SEED", "1"))
    print(f"seed {seed}")
    chance = random.Random(seed)
    order = chance.sample(faults, len(faults))
    while time.monotonic() < deadline:
        yield order.pop() if order else chance.choice(faults)
