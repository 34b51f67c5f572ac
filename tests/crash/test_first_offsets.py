"""The first offsets that a group ever has come from a transaction: at no moment may they look as if there were none.

A consumer that is told of no offset begins anew, and moves all records a second time. So from the moment at which the
offsets are written until they are decided a reader who wants stable ones hears UNSTABLE_OFFSET_COMMIT, as long as the
group is being loaded COORDINATOR_LOAD_IN_PROGRESS, and then the offsets; whatever the broker was killed at, and
whichever of its two coordinators is loaded first. The moments of a whole transaction are in
`test_coordinator_crashes.py`.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
from kio.schema.errors import ErrorCode

from ottla.coordination.transactions.records import TransactionStatus as Status
from ottla.protocol.apis import ApiKey
from tests.crash.doomed_broker import DoomedBroker
from tests.crash.places import commit_offsets, end_offsets, fetch_offsets
from tests.crash.transaction_client import GROUP_KEY, TransactionClient, find_coordinator
from tests.crash.watched_disk import OFFSETS, TRANSACTIONS, Point, marker, offsets, transaction_state
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.world import TIMEOUT, create_topic

TOPIC: Final = "data"
KEPT: Final = "kept"
GROUP: Final = "readers"
ID: Final = "mover"
OFFSET: Final = 40

CLIENTS: Final = {3: 1, 4: 1, 5: 2}
"""Versions of TxnOffsetCommit, and of which generation the clients are that send them. From 5 on the group's partition
joins the transaction by itself."""
OUTCOMES: Final = {"commit": True, "abort": False}

NOTHING: Final = "no offset"
UNSTABLE: Final = "unstable"
LOADING: Final = "loading"
ERRORS: Final = {ErrorCode.unstable_offset_commit: UNSTABLE, ErrorCode.coordinator_load_in_progress: LOADING}
Answer = int | str


def answer_of(address: str, topic: str = TOPIC, *, is_stable: bool = True) -> Answer:
    """What a consumer hears that comes now."""
    found = fetch_offsets(address, GROUP, topic, [0], is_stable=is_stable)
    if found.error_code is not ErrorCode.none:
        return ERRORS[found.error_code]
    ((part,),) = [each.partitions for each in found.topics]
    if part.error_code is not ErrorCode.none:
        return ERRORS[part.error_code]
    return NOTHING if part.committed_offset == -1 else int(part.committed_offset)


def outcome_of(commit: bool) -> Answer:
    """What is true in the end."""
    return OFFSET if commit else NOTHING


def check_settles(address: str, commit: bool, *before: Answer) -> None:
    """From now on each answer is the outcome, or one of those before it."""
    heard: list[Answer] = []

    def is_settled() -> bool:
        heard.append(answer_of(address))
        return heard[-1] == outcome_of(commit) or heard[-1] not in before

    wait_until(is_settled, "the offset is settled")
    assert outcome_of(commit) == heard[-1]
    assert nothing_is_open(address)


def nothing_is_open(address: str) -> bool:
    """Whether all offsets of transactions are decided."""
    ends = [end_offsets(address, OFFSETS, 1, is_committed=is_committed) for is_committed in (False, True)]
    return ends[0] == ends[1]


@contextmanager
def fresh(folder: Path) -> Iterator[DoomedBroker]:
    """A broker with a topic, which no group has heard of."""
    with DoomedBroker(folder) as broker:
        with RawConnection(broker.address) as connection:
            create_topic(connection, TOPIC, 1, retention_ms="-1")
            find_coordinator(connection, GROUP_KEY, GROUP)
        # Without this the group's partition might be empty, and need no loading.
        commit_offsets(broker.address, "others", TOPIC, {0: 1})
        yield broker


def client_of(address: str, offsets_version: int) -> TransactionClient:
    version = CLIENTS[offsets_version]
    client = TransactionClient(address=address, transactional_id=ID, version=version, offsets_version=offsets_version)
    client.init()
    return client


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("offsets_version", CLIENTS)
def test_at_each_step(tmp_path: Path, offsets_version: int, outcome: str) -> None:
    commit = OUTCOMES[outcome]
    with fresh(tmp_path / "data") as broker:
        client = client_of(broker.address, offsets_version)
        assert NOTHING == answer_of(broker.address)
        assert ErrorCode.none is client.send_offsets(GROUP, TOPIC, {0: OFFSET})
        assert [UNSTABLE, NOTHING] == [answer_of(broker.address, is_stable=is_stable) for is_stable in (True, False)]
        assert ErrorCode.none is client.end(commit=commit)
        check_settles(broker.address, commit, UNSTABLE)
        # The next transaction makes them doubtful again, but they never look as if they were not there.
        assert ErrorCode.none is client.send_offsets(GROUP, TOPIC, {0: 2 * OFFSET})
        assert [UNSTABLE, outcome_of(commit)] == [
            answer_of(broker.address, is_stable=is_stable) for is_stable in (True, False)
        ]


# Killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A moment of the transaction: whether the offsets, the decision and the offsets' marker are written then."""

    sees: Callable[[bool], Point]
    is_written: bool = True
    is_decided: bool = True
    is_marked: bool = True


def _decision(commit: bool) -> Status:
    return Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT


def _completion(commit: bool) -> Status:
    return Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT


MOMENTS: Final = {
    "offsets are about to be written": Step(
        sees=lambda commit: Point(sees=offsets, is_after=False), is_written=False, is_decided=False, is_marked=False
    ),
    "offsets are written": Step(sees=lambda commit: Point(sees=offsets), is_decided=False, is_marked=False),
    "the decision is about to be written": Step(
        sees=lambda commit: Point(sees=transaction_state(_decision(commit)), is_after=False),
        is_decided=False,
        is_marked=False,
    ),
    "the decision is written": Step(
        sees=lambda commit: Point(sees=transaction_state(_decision(commit))), is_marked=False
    ),
    "the marker is about to be written": Step(
        sees=lambda commit: Point(sees=marker(OFFSETS), is_after=False), is_marked=False
    ),
    "the marker is written": Step(sees=lambda commit: Point(sees=marker(OFFSETS))),
    "completion is about to be written": Step(
        sees=lambda commit: Point(sees=transaction_state(_completion(commit)), is_after=False)
    ),
    "completion is written": Step(sees=lambda commit: Point(sees=transaction_state(_completion(commit)))),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What the broker would have left at each moment, and the client before it committed or aborted."""

    left: dict[str, Path]
    client: TransactionClient


LifeOf = Callable[[int, bool], Life]
_LIVES: Final[dict[tuple[int, bool], Life]] = {}


@pytest.fixture
def life_of(tmp_path_factory: pytest.TempPathFactory) -> LifeOf:
    """One transaction of a kind, which is lived once for all tests."""

    def find(offsets_version: int, commit: bool) -> Life:
        kind = (offsets_version, commit)
        if kind not in _LIVES:
            _LIVES[kind] = live(tmp_path_factory.mktemp("life"), offsets_version, commit)
        return _LIVES[kind]

    return find


def live(folder: Path, offsets_version: int, commit: bool) -> Life:
    with fresh(folder / "data") as broker:
        client = client_of(broker.address, offsets_version)
        broker.watch({name: step.sees(commit) for name, step in MOMENTS.items()})
        assert ErrorCode.none is client.send_offsets(GROUP, TOPIC, {0: OFFSET})
        before = replace(client)
        assert ErrorCode.none is client.end(commit=commit)
        check_settles(broker.address, commit, UNSTABLE)
        # A repeated end is answered when there is nothing left to do.
        assert ErrorCode.none is replace(before).end(commit=commit)
        return Life(left={name: broker.left_at(name) for name in MOMENTS}, client=before)


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """The broker that was started after the kill, and the client that comes back to it."""

    broker: DoomedBroker
    client: TransactionClient
    step: Step
    commit: bool

    @property
    def undecided(self) -> Answer:
        """What is known of the offset before its transaction's end is."""
        return UNSTABLE if self.step.is_written else NOTHING

    def finish(self) -> None:
        """The client repeats what it had no answer to."""
        address = self.broker.address
        if not self.step.is_written:
            assert ErrorCode.none is self.client.send_offsets(GROUP, TOPIC, {0: OFFSET})
            assert UNSTABLE == answer_of(address)
        assert ErrorCode.none is self.client.end(commit=self.commit)
        check_settles(address, self.commit, UNSTABLE)


@pytest.fixture
def after(tmp_path: Path, life_of: LifeOf, offsets_version: int, outcome: str, moment: str) -> Iterator[After]:
    """The next broker, whose coordinators wait to be loaded."""
    commit = OUTCOMES[outcome]
    life = life_of(offsets_version, commit)
    shutil.copytree(life.left[moment], tmp_path / "data")
    with DoomedBroker(tmp_path / "data", held=(OFFSETS, TRANSACTIONS)) as broker:
        client = replace(life.client, address=broker.address)
        yield After(broker=broker, client=client, step=MOMENTS[moment], commit=commit)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("offsets_version", [3, 5])
def test_killed_and_groups_are_loaded_first(after: After) -> None:
    """Offsets without a marker are in doubt until the transaction's coordinator is there, decided or not."""
    address, step = after.broker.address, after.step
    assert LOADING == answer_of(address)
    after.broker.release(OFFSETS)
    wait_until(lambda: answer_of(address) != LOADING, "the group is loaded")
    assert (outcome_of(after.commit) if step.is_marked else after.undecided) == answer_of(address)
    after.broker.release(TRANSACTIONS)
    if step.is_decided:
        check_settles(address, after.commit, UNSTABLE)
    after.finish()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("offsets_version", [3, 5])
def test_killed_and_transactions_are_loaded_first(after: After) -> None:
    """The marker comes while the group is being loaded, behind all that was read of it so far; it counts."""
    address, step = after.broker.address, after.step
    assert LOADING == answer_of(address)
    after.broker.release(TRANSACTIONS)
    if step.is_decided:
        wait_until(lambda: nothing_is_open(address), "the marker is written")
    assert LOADING == answer_of(address)
    after.broker.release(OFFSETS)
    wait_until(lambda: answer_of(address) != LOADING, "the group is loaded")
    assert (outcome_of(after.commit) if step.is_decided else after.undecided) == answer_of(address)
    after.finish()


# Topics that go while nobody looks


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_goes_while_its_groups_are_loaded(tmp_path: Path, is_made_again: bool) -> None:
    """Its offsets go with it: a new topic of that name has other records. Those of other topics stay."""
    with fresh(tmp_path / "data") as broker:
        commit_offsets(broker.address, GROUP, TOPIC, {0: OFFSET})
        with RawConnection(broker.address) as connection:
            create_topic(connection, KEPT, 1)
        commit_offsets(broker.address, GROUP, KEPT, {0: OFFSET})
        left = broker.kill()
    with DoomedBroker(left, held=(OFFSETS,)) as broker:
        with RawConnection(broker.address) as connection:
            delete_topic(connection, TOPIC)
            if is_made_again:
                create_topic(connection, TOPIC, 1)
        assert LOADING == answer_of(broker.address)
        broker.release(OFFSETS)
        wait_until(lambda: answer_of(broker.address) != LOADING, "the group is loaded")
        assert [NOTHING, OFFSET] == [answer_of(broker.address), answer_of(broker.address, topic=KEPT)]
        left = broker.kill()
    with DoomedBroker(left) as broker:
        wait_until(lambda: answer_of(broker.address) != LOADING, "the group is loaded")
        assert [NOTHING, OFFSET] == [answer_of(broker.address), answer_of(broker.address, topic=KEPT)]


def delete_topic(connection: RawConnection, name: str) -> None:
    values = {"topics": [{"name": name, "topic_id": None}], "timeout": TIMEOUT}
    (gone,) = connection.ask_newest(ApiKey.DELETE_TOPICS, values).responses
    assert ErrorCode.none is gone.error_code
