"""The end of the broker at each step of a transaction: the next one finishes what was decided, and forgets nothing.

One transaction over two partitions and a group's offsets lives once for each kind, and at every step the broker's files
are copied (`watched_disk.py`). A new broker opens each copy, and the client comes back and repeats what it had no
answer to. Killed, the broker leaves all that it had written. A power cut takes what was not synced: with
`log.flush.interval.messages=1` that is nothing that anybody was told of. Without it, it may be anything that is not yet
old, and only replicas help: a transaction whose decision is lost can hang, and one whose records are lost is half.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from kio.schema.errors import ErrorCode

from ottla.coordination.transactions.records import TransactionStatus as Status
from tests.crash.doomed_broker import DoomedBroker
from tests.crash.load import new_producer_id
from tests.crash.places import committed_offsets, end_offsets, fetch_offsets
from tests.crash.transaction_client import (
    GROUP_KEY,
    TransactionClient,
    committed_values,
    find_coordinator,
    values_of,
)
from tests.crash.watched_disk import OFFSETS, Point, marker, offsets, records_in, transaction_state
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.world import create_topic

TOPIC: Final = "data"
PARTITIONS: Final = (0, 1)
GROUP: Final = "readers"
ID: Final = "mover"
BEFORE: Final = [[b"before"], []]
FLUSHED: Final = {"log.flush.interval.messages": "1"}

VERSIONS: Final = (1, 2)
OUTCOMES: Final = {"commit": True, "abort": False}
ENDS: Final = ("killed", "power cut")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A moment of the transaction: which of `STEPS` the client is at, and whether its outcome is decided then, for a
    broker that is killed and for one whose power is cut."""

    sees: Callable[[bool], Point]
    at: int
    is_decided: bool
    is_safe: bool


def _decision(commit: bool) -> Status:
    return Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT


def _completion(commit: bool) -> Status:
    return Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT


def _open(point: Point, at: int) -> Step:
    return Step(sees=lambda commit: point, at=at, is_decided=False, is_safe=False)


def _decided(sees: Callable[[bool], Point], *, is_safe: bool = True) -> Step:
    return Step(sees=sees, at=3, is_decided=True, is_safe=is_safe)


MOMENTS: Final = {
    "ongoing is about to be written": _open(Point(sees=transaction_state(Status.ONGOING), is_after=False), 0),
    "ongoing is written": _open(Point(sees=transaction_state(Status.ONGOING)), 0),
    "records are written": _open(Point(sees=records_in(TOPIC), nth=2), 1),
    "offsets are written": _open(Point(sees=offsets), 2),
    "the decision is about to be written": Step(
        sees=lambda commit: Point(sees=transaction_state(_decision(commit)), is_after=False),
        at=3,
        is_decided=False,
        is_safe=False,
    ),
    "the decision is written": _decided(lambda commit: Point(sees=transaction_state(_decision(commit))), is_safe=False),
    "the first marker is about to be written": _decided(lambda commit: Point(sees=marker(), is_after=False)),
    "one marker is written": _decided(lambda commit: Point(sees=marker())),
    "two markers are written": _decided(lambda commit: Point(sees=marker(), nth=2)),
    "the marker of the offsets is missing": _decided(lambda commit: Point(sees=marker(OFFSETS), is_after=False)),
    "all markers are written": _decided(lambda commit: Point(sees=marker(), nth=3)),
    "completion is about to be written": _decided(
        lambda commit: Point(sees=transaction_state(_completion(commit)), is_after=False)
    ),
    "completion is written": _decided(lambda commit: Point(sees=transaction_state(_completion(commit)))),
}


STEPS: Final[tuple[Callable[[TransactionClient, bool], ErrorCode], ...]] = (
    lambda client, commit: client.send(TOPIC, 0, b"a", b"aa"),
    lambda client, commit: client.send(TOPIC, 1, b"b"),
    lambda client, commit: client.send_offsets(GROUP, TOPIC, {0: 5, 1: 7}),
    lambda client, commit: client.end(commit=commit),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One transaction that went well: what its broker would have left at each moment, and the client before each step
    and in the end."""

    left: dict[str, Path]
    clients: list[TransactionClient]


def live(folder: Path, version: int, commit: bool, *, is_cut: bool) -> Life:
    """The life of one transaction, which follows another that was committed."""
    points = {name: replace(step.sees(commit), loses_unsynced=is_cut) for name, step in MOMENTS.items()}
    with DoomedBroker(folder / "data", settings=FLUSHED if is_cut else None) as broker:
        with RawConnection(broker.address) as connection:
            create_topic(connection, TOPIC, len(PARTITIONS), retention_ms="-1")
            find_coordinator(connection, GROUP_KEY, GROUP)
        client = TransactionClient(address=broker.address, transactional_id=ID, version=version)
        client.init()
        assert ErrorCode.none is client.send(TOPIC, 0, b"before")
        assert ErrorCode.none is client.send_offsets(GROUP, TOPIC, {0: 1})
        assert ErrorCode.none is client.end(commit=True)
        wait_until(lambda: nothing_is_open(broker.address), "the first transaction is over")
        broker.watch(points)
        clients = []
        for step in STEPS:
            clients.append(replace(client, sequences=dict(client.sequences)))
            assert ErrorCode.none is step(client, commit)
        wait_until(lambda: nothing_is_open(broker.address), "the second transaction is over")
        check_done(broker.address, commit)
        return Life(left={name: broker.left_at(name) for name in points}, clients=[*clients, client])


def nothing_is_open(address: str) -> bool:
    """Whether every transaction has its markers."""
    return all(
        end_offsets(address, topic, count, is_committed=False) == end_offsets(address, topic, count, is_committed=True)
        for topic, count in ((TOPIC, len(PARTITIONS)), (OFFSETS, 1))
    )


def check_done(address: str, commit: bool, *more: bytes) -> None:
    """The transaction is there, or it never was; once, whatever was repeated. After it others may have come."""
    expected = [[b"before", b"a", b"aa"], [b"b"]] if commit else BEFORE
    assert [[*expected[0], *more], expected[1]] == committed_values(address, TOPIC, PARTITIONS)
    assert ([5, 7] if commit else [1, -1]) == committed_offsets(address, GROUP, TOPIC, len(PARTITIONS))


def check_open(address: str, *, has_offsets: bool) -> None:
    """Nothing of the transaction shows yet, whatever is written of it; its offsets make those before them doubtful."""
    assert BEFORE == committed_values(address, TOPIC, PARTITIONS)
    known = {
        is_stable: [
            (part.committed_offset, part.error_code)
            for each in fetch_offsets(address, GROUP, TOPIC, PARTITIONS, is_stable=is_stable).topics
            for part in each.partitions
        ]
        for is_stable in (False, True)
    }
    before = [(1, ErrorCode.none), (-1, ErrorCode.none)]
    doubtful = [(-1, ErrorCode.unstable_offset_commit)] * len(PARTITIONS)
    assert {False: before, True: doubtful if has_offsets else before} == known


@contextmanager
def reopened(left: Path, **settings: str) -> Iterator[DoomedBroker]:
    """A new broker on what another left, once it has read who coordinates what."""
    with DoomedBroker(left, settings=settings) as broker:
        wait_until(lambda: is_loaded(broker.address), "offsets are loaded")
        yield broker


def is_loaded(address: str) -> bool:
    code: ErrorCode = fetch_offsets(address, GROUP, TOPIC, PARTITIONS).error_code
    return code is not ErrorCode.coordinator_load_in_progress


_LIVES: Final[dict[tuple[int, bool, bool], Life]] = {}


@pytest.fixture
def life_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, bool, bool], Life]:
    """The life of a kind of transaction, which is lived once for all tests."""

    def find(version: int, commit: bool, is_cut: bool) -> Life:
        kind = (version, commit, is_cut)
        if kind not in _LIVES:
            _LIVES[kind] = live(tmp_path_factory.mktemp("life"), version, commit, is_cut=is_cut)
        return _LIVES[kind]

    return find


LifeOf = Callable[[int, bool, bool], Life]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_survives(
    tmp_path: Path, life_of: LifeOf, version: int, outcome: str, end: str, moment: str
) -> None:
    """What is decided happens by itself; what is not waits for its client. Both end as the client wished, once."""
    commit, is_cut = OUTCOMES[outcome], end == "power cut"
    life, step = life_of(version, commit, is_cut), MOMENTS[moment]
    shutil.copytree(life.left[moment], tmp_path / "data")
    with reopened(tmp_path / "data", **(FLUSHED if is_cut else {})) as broker:
        if step.is_safe if is_cut else step.is_decided:
            wait_until(lambda: nothing_is_open(broker.address), "the transaction is over by itself")
            check_done(broker.address, commit)
        else:
            check_open(broker.address, has_offsets=step.at == 3 or (moment == "offsets are written" and not is_cut))
        before = life.clients[step.at]
        client = replace(before, address=broker.address, sequences=dict(before.sequences))
        for repeated in STEPS[step.at :]:
            assert ErrorCode.none is repeated(client, commit)
        wait_until(lambda: nothing_is_open(broker.address), "the transaction is over")
        check_done(broker.address, commit)
        last = life.clients[-1]
        assert (last.producer_id, last.producer_epoch) == (client.producer_id, client.producer_epoch)
        assert ErrorCode.none is client.send(TOPIC, 0, b"after")
        assert ErrorCode.none is client.end(commit=True)
        wait_until(lambda: nothing_is_open(broker.address), "the next transaction is over")
        check_done(broker.address, commit, b"after")


@pytest.mark.parametrize("moment", ["the decision is written", "one marker is written", "completion is written"])
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_decision_cannot_be_changed(tmp_path: Path, life_of: LifeOf, version: int, outcome: str, moment: str) -> None:
    commit = OUTCOMES[outcome]
    life = life_of(version, commit, False)
    shutil.copytree(life.left[moment], tmp_path / "data")
    with reopened(tmp_path / "data") as broker:
        client = replace(life.clients[3], address=broker.address)
        assert ErrorCode.invalid_txn_state is client.end(commit=not commit)
        wait_until(lambda: nothing_is_open(broker.address), "the transaction is over by itself")
        check_done(broker.address, commit)


OPEN: Final = [name for name, step in MOMENTS.items() if not step.is_decided]


@pytest.mark.parametrize("moment", OPEN)
@pytest.mark.parametrize("version", VERSIONS)
def test_another_takes_over_what_is_open(tmp_path: Path, life_of: LifeOf, version: int, moment: str) -> None:
    """A new producer of the same id finds the old one's transaction aborted, and the old one is fenced."""
    life = life_of(version, True, False)
    shutil.copytree(life.left[moment], tmp_path / "data")
    with reopened(tmp_path / "data") as broker:
        successor = TransactionClient(address=broker.address, transactional_id=ID, version=version)
        successor.init()
        wait_until(lambda: nothing_is_open(broker.address), "what was open is aborted")
        check_done(broker.address, False)
        zombie = replace(life.clients[3], address=broker.address)
        assert zombie.end(commit=True) in (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch)
        assert ErrorCode.none is successor.send(TOPIC, 0, b"after")
        assert ErrorCode.none is successor.end(commit=True)
        wait_until(lambda: nothing_is_open(broker.address), "the next transaction is over")
        check_done(broker.address, False, b"after")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_nobody_ends_is_aborted_after_its_time(tmp_path: Path, version: int) -> None:
    """The time counts from the transaction's start, whoever coordinates it."""
    with DoomedBroker(tmp_path / "data") as broker:
        with RawConnection(broker.address) as connection:
            create_topic(connection, TOPIC, len(PARTITIONS))
        timeout = timedelta(seconds=1)
        client = TransactionClient(address=broker.address, transactional_id=ID, version=version, timeout=timeout)
        client.init()
        assert ErrorCode.none is client.send(TOPIC, 0, b"never")
        left = broker.kill()
    with DoomedBroker(left) as broker:
        wait_until(lambda: end_offsets(broker.address, TOPIC, 2, is_committed=True) == [2, 0], "it is aborted")
        assert [[], []] == committed_values(broker.address, TOPIC, PARTITIONS)
        assert [b"never"] == values_of(broker.address, TOPIC, 0, is_committed=False)
        late = replace(client, address=broker.address)
        # One of version 2 looks like a retry of the end that has bumped its epoch; but that was another one.
        assert {1: ErrorCode.producer_fenced, 2: ErrorCode.invalid_txn_state}[version] is late.end(commit=True)


# Producer ids


def test_no_producer_id_is_given_twice(tmp_path: Path) -> None:
    """Also not the rest of a block that was allocated before the kill."""
    given: list[int] = []
    left = tmp_path / "data"
    for life in range(4):
        with DoomedBroker(left) as broker:
            given += [new_producer_id(broker.address) for _ in range(life)]
            client = TransactionClient(address=broker.address, transactional_id=f"life-{life}", version=2)
            client.init()
            given.append(client.producer_id)
            left = broker.kill()
    assert len(set(given)) == len(given)


@pytest.mark.parametrize("is_after", [False, True])
def test_an_id_that_nobody_was_told(tmp_path: Path, is_after: bool) -> None:
    """Killed just before the new id is written, the client gets another; just after, the same with the next epoch."""
    with DoomedBroker(tmp_path / "data") as broker:
        with RawConnection(broker.address) as connection:
            find_coordinator(connection, 1, ID)
        broker.watch({"init": Point(sees=transaction_state(Status.EMPTY), is_after=is_after)})
        lost = TransactionClient(address=broker.address, transactional_id=ID, version=2)
        lost.init()
        left = broker.left_at("init")
    with DoomedBroker(left) as broker:
        client = TransactionClient(address=broker.address, transactional_id=ID, version=2)
        client.init()
        if is_after:
            assert (lost.producer_id, lost.producer_epoch + 1) == (client.producer_id, client.producer_epoch)
        else:
            assert 0 == client.producer_epoch
            assert lost.producer_id != client.producer_id
