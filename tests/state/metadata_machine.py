"""Random lives of a metadata store with several clients, against a dict; which store it is, a subclass says.

Clients commit one by one and at once, hold leases, lose their sessions, close and open again. Everything that succeeds
is held against the history that followers are told: each commit did what it said to the keys as they were then, and
each conflict was one at some moment while it was asked for.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.metadata.store import Change, Check, ConflictError, Delete, Entry, Lease, MetadataStore, Operation, Put
from tests.unit.metadata.store_worlds import StoreWorld

T = TypeVar("T")
Keys = dict[str, Entry]

CLIENTS = 3
KEYS = ["a", "b", "t/a", "t/b", "t/c/0", "ü"]
LEASED = ["lease/0", "lease/1", "lease/2"]
WISH = st.tuples(
    st.sampled_from(KEYS + LEASED[:1]),
    st.sampled_from(["put", "delete", "check"]),
    st.binary(max_size=3),
    st.sampled_from(["right", "right", "right", "none", "wrong"]),
)
WISHES = st.lists(WISH, max_size=4, unique_by=lambda wish: wish[0])
CLIENT = st.integers(0, CLIENTS - 1)


def attempt(keys: Keys, operations: Sequence[Operation]) -> list[tuple[str, bytes | None]] | None:
    """What a commit writes, or None for a conflict."""
    written: list[tuple[str, bytes | None]] = []
    for operation in operations:
        found = keys[operation.key].revision if operation.key in keys else 0
        if operation.expected not in (None, found):
            return None
        if isinstance(operation, Put):
            written.append((operation.key, operation.value))
        elif isinstance(operation, Delete) and found:
            written.append((operation.key, None))
    return written


def applied(keys: Keys, changes: Sequence[Change]) -> Keys:
    """The keys after a commit."""
    after = {key: entry for key, entry in keys.items() if key not in {change.key for change in changes}}
    return after | {key: Entry(key, value, at) for at, key, value in changes if value is not None}


class StoresMachine(RuleBasedStateMachine):
    """See the module's docstring."""

    def make_world(self) -> StoreWorld:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = self.make_world()
        self.history: list[list[Change]] = []
        self.states: list[Keys] = [{}]
        self.leases: dict[str, tuple[int, Lease]] = {}
        self.stores: list[MetadataStore] = [self.run(self.world.open_client()) for _ in range(CLIENTS)]
        self.heard: list[list[list[Change]]] = [[] for _ in range(CLIENTS)]
        self.followers: list[AsyncIterator[list[Change]]] = [store.follow(0) for store in self.stores]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def running() -> T:
            async with self.world.running():
                return await work

        return self.loop.run_until_complete(running())

    def teardown(self) -> None:
        for store in self.stores:
            self.run(store.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    @property
    def keys(self) -> Keys:
        return self.states[-1]

    def learn(self, changes: Sequence[Change]) -> None:
        """One commit more."""
        assert {len(self.history) + 1} == {change.revision for change in changes}
        self.history.append(list(changes))
        self.states.append(applied(self.keys, changes))
        for change in changes:
            if change.value is None and change.key in self.leases:
                _, lease = self.leases.pop(change.key)
                self.run(lease.wait_lost())
                assert lease.is_lost

    def hear(self, client: int) -> list[Change]:
        """The next commit that a client's follower is told."""
        changes = self.run(anext_of(self.followers[client]))
        self.heard[client].append(changes)
        return changes

    def learn_up_to(self, revision: int, client: int) -> None:
        """What has been committed, as a follower is told."""
        while len(self.heard[client]) < revision:
            changes = self.hear(client)
            if changes[0].revision > len(self.history):
                self.learn(changes)

    def operations_of(self, wishes: list[tuple[str, str, bytes, str]]) -> list[Operation]:
        operations: list[Operation] = []
        for key, kind, value, guess in wishes:
            right = self.keys[key].revision if key in self.keys else 0
            expected = {"right": right, "none": None, "wrong": right + 1}[guess]
            if key in LEASED and key not in self.leases and kind == "put":
                # It would become an ordinary key, which nobody can lease.
                kind = "delete"
            if kind == "put":
                operations.append(Put(key, value, expected))
            elif kind == "delete":
                operations.append(Delete(key, expected))
            else:
                operations.append(Check(key, right if expected is None else expected))
        return operations

    @rule(asked=st.lists(st.tuples(CLIENT, WISHES), min_size=1, max_size=6), follower=CLIENT)
    def commit(self, asked: list[tuple[int, list[tuple[str, str, bytes, str]]]], follower: int) -> None:
        start = len(self.history)
        commits = [(client, self.operations_of(wishes)) for client, wishes in asked]

        async def together() -> list[int | BaseException]:
            return await asyncio.gather(
                *(self.stores[client].commit(operations) for client, operations in commits), return_exceptions=True
            )

        answers = self.run(together())
        made = [answer for answer in answers if isinstance(answer, int)]
        self.learn_up_to(max([start, *made]), follower)
        written_at = set()
        for (_, operations), answer in zip(commits, answers, strict=True):
            if isinstance(answer, ConflictError):
                assert any(attempt(keys, operations) is None for keys in self.states[start:])
                continue
            assert isinstance(answer, int), answer
            changes = [(key, value) for _, key, value in self.history[answer - 1]] if answer > start else []
            before = self.states[answer - 1] if answer > start else self.states[answer]
            if changes and answer not in written_at and attempt(before, operations) == changes:
                written_at.add(answer)
            else:
                # It changed nothing, at the revision that it says.
                assert [] == attempt(self.states[answer], operations)
        assert len(self.history) - start == len(written_at)

    @rule(client=CLIENT, key=st.sampled_from(LEASED), value=st.binary(max_size=3))
    def lease(self, client: int, key: str, value: bytes) -> None:
        if key in self.keys:
            try:
                self.run(self.stores[client].lease(key, value))
            except ConflictError:
                return
            raise AssertionError(f"{key} was leased twice")
        lease = self.run(self.stores[client].lease(key, value))
        assert len(self.history) + 1 == lease.revision
        self.learn_up_to(lease.revision, client)
        assert [Change(lease.revision, key, value)] == self.history[-1]
        self.leases[key] = (client, lease)

    @rule(key=st.sampled_from(LEASED), follower=CLIENT)
    def release(self, key: str, follower: int) -> None:
        if key in self.leases:
            _, lease = self.leases[key]
            assert not lease.is_lost
            self.run(lease.release())
            self.learn_up_to(len(self.history) + 1, follower)
            assert [Change(len(self.history), key, None)] == self.history[-1]

    @rule(client=CLIENT, follower=CLIENT)
    def expire(self, client: int, follower: int) -> None:
        self.run(self.world.expire(self.stores[client]))
        self.lose_all_of(client, follower)

    @rule(client=CLIENT)
    def reopen(self, client: int) -> None:
        self.run(self.stores[client].close())
        self.run(self.stores[client].open())
        self.followers[client] = self.stores[client].follow(len(self.heard[client]))
        self.lose_all_of(client, client)

    def lose_all_of(self, client: int, follower: int) -> None:
        """All leases of a client end, by commits that do nothing else."""
        lost = {key for key, (holder, _) in self.leases.items() if holder == client}
        while lost:
            self.learn_up_to(len(self.history) + 1, follower)
            assert all(change.value is None and change.key in lost for change in self.history[-1])
            lost -= {change.key for change in self.history[-1]}

    @rule(client=CLIENT)
    def follow(self, client: int) -> None:
        while len(self.heard[client]) < len(self.history):
            self.hear(client)
        assert self.history == self.heard[client]

    @rule(client=CLIENT)
    def snapshot(self, client: int) -> None:
        assert (len(self.history), sorted(self.keys.values())) == self.run(self.stores[client].snapshot())

    @invariant()
    def leases_are_held(self) -> None:
        assert [] == [key for key, (_, lease) in self.leases.items() if lease.is_lost]


async def anext_of(changes: AsyncIterator[T]) -> T:
    """The next one."""
    return await anext(changes)
