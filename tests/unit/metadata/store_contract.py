"""What every metadata store promises, as tests; `test_store_contract.py` and `tests/cluster` run them on the stores."""

import asyncio

import pytest

from ottla.metadata.store import (
    Change,
    Check,
    ConflictError,
    Delete,
    Entry,
    Lease,
    MetadataStore,
    Operation,
    Put,
    RevisionGoneError,
)
from ottla.model.errors import MisuseError
from ottla.sim.random import SimRandom
from tests.unit.metadata.store_rig import take
from tests.unit.metadata.store_worlds import StoreWorld, clients


class StoreContract:
    """A subclass has the fixture `world`, which is running."""

    # Commits

    async def test_a_commit_is_seen_by_all_once_it_returned(self, world: StoreWorld) -> None:
        async with clients(world, 3) as (first, second, third):
            port: MetadataStore = first
            assert 1 == await port.commit([Put("b", b"\x00\xff"), Put("a/x", b"", 0)])
            assert (1, [Entry("a/x", b"", 1), Entry("b", b"\x00\xff", 1)]) == await second.snapshot()
            assert 2 == await second.commit([Put("b", b"2", 1), Delete("a/x", 1), Put("c", b"3")])
            assert (2, [Entry("b", b"2", 2), Entry("c", b"3", 2)]) == await third.snapshot()
            assert (2, [Entry("b", b"2", 2), Entry("c", b"3", 2)]) == await first.snapshot()

    @pytest.mark.parametrize(
        "operation",
        [
            Put("a", b"x", 0),
            Put("a", b"x", 2),
            Put("new", b"x", 1),
            Delete("a", 2),
            Delete("new", 1),
            Check("a", 0),
            Check("a", 2),
            Check("new", 1),
        ],
    )
    async def test_a_conflict_changes_nothing(self, world: StoreWorld, operation: Operation) -> None:
        async with clients(world, 2) as (first, second):
            await first.commit([Put("a", b"1")])
            with pytest.raises(ConflictError, match=operation.key):
                await second.commit([Put("first", b""), operation, Put("last", b"")])
            assert (1, [Entry("a", b"1", 1)]) == await second.snapshot()
            assert 2 == await second.commit([Put("a", b"2", 1), Check("new", 0)])

    async def test_a_key_that_was_made_again_is_another(self, world: StoreWorld) -> None:
        """Whoever decided on the first one must not change the second."""
        async with clients(world, 2) as (first, second):
            await first.commit([Put("t", b"one")])
            await second.commit([Delete("t", 1)])
            await second.commit([Put("t", b"two", 0)])
            for operation in (Put("t", b"", 1), Delete("t", 1), Check("t", 1)):
                with pytest.raises(ConflictError, match="at revision 3, not at 1"):
                    await first.commit([operation])
            assert (3, [Entry("t", b"two", 3)]) == await first.snapshot()

    async def test_what_changes_nothing_takes_no_revision(self, world: StoreWorld) -> None:
        async with clients(world, 2) as (first, second):
            assert 0 == await first.commit([])
            assert 0 == await first.commit([Check("c", 0), Delete("a"), Delete("b", 0)])
            assert 1 == await second.commit([Put("a", b"")])
            assert 1 == await first.commit([Check("a", 1)])
            assert [[Change(1, "a", b"")]] == await take(first.follow(0), 1)

    async def test_thousands_of_keys_and_megabytes_in_one_commit(self, world: StoreWorld) -> None:
        async with clients(world, 2) as (first, second):
            keys = [f"partitions/t/{index}" for index in range(10_000)]
            large = bytes(range(256)) * 8_000
            hard = hard_bytes(3_000_000)
            await first.commit([Put(key, key.encode() * 5, 0) for key in keys])
            await first.commit([Put("large", large), Put("hard", hard)])
            changes = await take(second.follow(0), 2)
            assert [Change(1, key, key.encode() * 5) for key in keys] == changes[0]
            assert [Change(2, "large", large), Change(2, "hard", hard)] == changes[1]
            late = await world.open_client()
            revision, entries = await late.snapshot()
            assert (2, 10_002) == (revision, len(entries))
            assert {"large": large, "hard": hard} == {
                entry.key: entry.value for entry in entries if entry.revision == 2
            }
            assert 3 == await late.commit([Delete("large", 2), Delete("hard", 2)])
            assert 4 == await late.commit([Delete(key, 1) for key in keys])
            await late.close()
            assert (4, []) == await first.snapshot()

    async def test_no_step_of_a_shared_counter_is_lost(self, world: StoreWorld) -> None:
        async def count(store: MetadataStore, steps: int) -> None:
            while steps:
                _, entries = await store.snapshot()
                value, at = (int(entries[0].value), entries[0].revision) if entries else (0, 0)
                try:
                    assert at + 1 == await store.commit([Put("n", b"%d" % (value + 1), at)])
                    steps -= 1
                except ConflictError:
                    pass

        async with clients(world, 3) as stores:
            await asyncio.gather(*(count(store, 15) for store in stores for _ in range(2)))
            assert [(90, [Entry("n", b"90", 90)])] * 3 == [await store.snapshot() for store in stores]

    async def test_commits_asked_for_at_once_have_revisions_of_their_own(self, world: StoreWorld) -> None:
        async with clients(world, 3) as stores:
            asked = [(store, f"{place}/{n}") for place, store in enumerate(stores) for n in range(40)]
            revisions = await asyncio.gather(*(store.commit([Put(key, b"")]) for store, key in asked))
            assert list(range(1, 121)) == sorted(revisions)
            made = {revision: key for revision, (_, key) in zip(revisions, asked, strict=True)}
            for store in stores:
                assert [[Change(at, made[at], b"")] for at in range(1, 121)] == await take(store.follow(0), 120)

    async def test_cancelling_the_caller_does_not_stop_a_commit(self, world: StoreWorld) -> None:
        async with clients(world, 2) as (first, second):
            followed = asyncio.create_task(take(second.follow(0), 20))
            for number in range(20):
                committing = asyncio.create_task(first.commit([Put("a", b"%d" % number)]))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                committing.cancel()
            values = [changes[0].value for changes in await followed]
            assert {b"%d" % at for at in range(20)} == set(values)

    @pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "a\0b", "a\nb", "\ud800"])
    async def test_keys_that_no_store_takes(self, world: StoreWorld, key: str) -> None:
        async with clients(world, 1) as (store,):
            with pytest.raises(MisuseError, match="is not a valid key"):
                await store.commit([Put(key, b"")])
            with pytest.raises(MisuseError, match="is not a valid key"):
                await store.lease(key, b"")
            with pytest.raises(MisuseError, match="twice"):
                await store.commit([Put("a", b""), Check("a", 0)])
            odd = [".", "..", "ü/ß", "zookeeper", "a b", "%2F", "a" * 250]
            await store.commit([Put(f"odd/{name}", b"", 0) for name in odd])
            assert sorted(f"odd/{name}" for name in odd) == [entry.key for entry in (await store.snapshot())[1]]

    # Followers

    async def test_followers_hear_everything_in_order(self, world: StoreWorld) -> None:
        async with clients(world, 2) as (first, second):
            await first.commit([Put("z", b"1"), Put("a", b"1")])
            await second.commit([Delete("z")])
            followers = [
                asyncio.create_task(take(store.follow(start), 3 - start))
                for store in (first, second)
                for start in (0, 1, 2)
            ]
            await asyncio.sleep(0)
            await first.commit([Put("a", b"2")])
            commits = [
                [Change(1, "z", b"1"), Change(1, "a", b"1")],
                [Change(2, "z", None)],
                [Change(3, "a", b"2")],
            ]
            assert [commits, commits[1:], commits[2:]] * 2 == await asyncio.gather(*followers)
            with pytest.raises(RevisionGoneError, match="take a snapshot"):
                await take(second.follow(4), 1)

    async def test_a_newcomer_can_follow_from_the_beginning(self, world: StoreWorld) -> None:
        async with clients(world, 1) as (first,):
            for number in range(30):
                await first.commit([Put("n", b"%d" % number)])
            async with clients(world, 1) as (newcomer,):
                assert [[Change(at + 1, "n", b"%d" % at)] for at in range(30)] == await take(newcomer.follow(0), 30)

    async def test_following_ends_when_the_store_is_closed(self, world: StoreWorld) -> None:
        async with clients(world, 2) as (first, second):
            follower = second.follow(0)
            await first.commit([Put("a", b"")])
            assert [Change(1, "a", b"")] == await anext(follower)
            waiting = asyncio.create_task(take(follower, 1))
            await asyncio.sleep(0)
            await second.close()
            assert [] == await waiting
            with pytest.raises(MisuseError, match="not open"):
                await second.commit([])
            with pytest.raises(MisuseError, match="not open"):
                await take(second.follow(0), 1)
            await second.close()
            await second.open()
            with pytest.raises(MisuseError, match="already open"):
                await second.open()
            assert 2 == await second.commit([Put("a", b"2", 1)])

    # Leases

    async def test_a_lease_is_a_key_until_it_is_released(self, world: StoreWorld) -> None:
        async with clients(world, 2) as (first, second):
            await second.commit([Put("a", b"")])
            lease: Lease = await first.lease("brokers/0", b"here")
            assert ("brokers/0", 2, False) == (lease.key, lease.revision, lease.is_lost)
            assert (2, [Entry("a", b"", 1), Entry("brokers/0", b"here", 2)]) == await second.snapshot()
            for store in (first, second):
                with pytest.raises(ConflictError, match="is held by"):
                    await store.lease("brokers/0", b"again")
            with pytest.raises(ConflictError, match="is not a lease"):
                await second.lease("a", b"")
            waiting = asyncio.create_task(lease.wait_lost())
            await lease.release()
            assert lease.is_lost
            await waiting
            await lease.release()
            assert [[Change(2, "brokers/0", b"here")], [Change(3, "brokers/0", None)]] == await take(
                second.follow(1), 2
            )
            assert 4 == (await second.lease("brokers/0", b"again")).revision

    async def test_closing_ends_the_session(self, world: StoreWorld) -> None:
        async with clients(world, 2) as (first, second):
            leases = [await first.lease("brokers/0", b""), await first.lease("controller", b"")]
            await first.close()
            assert [True, True] == [lease.is_lost for lease in leases]
            await leases[0].wait_lost()
            assert [[Change(3, "brokers/0", None), Change(3, "controller", None)]] == await take(second.follow(2), 1)
            assert (3, []) == await second.snapshot()

    async def test_only_one_of_many_gets_a_lease(self, world: StoreWorld) -> None:
        async with clients(world, 3) as stores:
            asked = [store.lease("controller", b"%d" % place) for place, store in enumerate(stores)]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            winners = [place for place, answer in enumerate(answers) if not isinstance(answer, ConflictError)]
            assert 1 == len(winners)
            assert (1, [Entry("controller", b"%d" % winners[0], 1)]) == await stores[0].snapshot()

    async def test_deleting_a_leases_key_ends_it_and_writing_it_does_not(self, world: StoreWorld) -> None:
        async with clients(world, 2) as (first, second):
            lease = await first.lease("controller", b"1")
            await second.commit([Put("controller", b"2", lease.revision)])
            assert not lease.is_lost
            with pytest.raises(ConflictError, match="is held by"):
                await second.lease("controller", b"")
            with pytest.raises(ConflictError, match="at revision 2, not at 1"):
                await first.commit([Check("controller", lease.revision)])
            await second.commit([Delete("controller")])
            await lease.wait_lost()
            assert lease.is_lost
            assert 4 == (await second.lease("controller", b"3")).revision
            await lease.release()
            assert (4, [Entry("controller", b"3", 4)]) == await second.snapshot()

    async def test_an_expired_session_loses_its_leases_and_begins_again(self, world: StoreWorld) -> None:
        """As a broker does it: it stops, its fenced commits fail, it registers again, and the others see all of
        that."""
        async with clients(world, 2) as (first, second):
            lease = await first.lease("brokers/0", b"old")
            assert 2 == await first.commit([Check("brokers/0", lease.revision), Put("p", b"led")])
            await world.expire(first)
            await lease.wait_lost()
            assert lease.is_lost
            assert [[Change(3, "brokers/0", None)]] == await take(second.follow(2), 1)
            with pytest.raises(ConflictError, match="brokers/0"):
                await first.commit([Check("brokers/0", lease.revision), Put("p", b"stale")])
            again = await first.lease("brokers/0", b"new")
            assert (4, False, True) == (again.revision, again.is_lost, lease.is_lost)
            assert 5 == await first.commit([Check("brokers/0", again.revision), Put("p", b"led again")])
            await lease.release()
            assert (5, [Entry("brokers/0", b"new", 4), Entry("p", b"led again", 5)]) == await second.snapshot()

    async def test_an_office_goes_to_another_when_its_holder_expires(self, world: StoreWorld) -> None:
        """The holder knows that it is lost before the other can have it."""
        async with clients(world, 2) as (first, second):
            lost = await first.lease("controller", b"first")
            taken: Lease | None = None
            expiring = asyncio.create_task(world.expire(first))
            while taken is None:
                try:
                    taken = await second.lease("controller", b"second")
                except ConflictError:
                    await take(second.follow(lost.revision), 1)
            await expiring
            await lost.wait_lost()
            assert (True, False) == (lost.is_lost, taken.is_lost)
            assert taken.revision > lost.revision
            with pytest.raises(ConflictError, match="controller"):
                await first.commit([Check("controller", lost.revision), Put("p", b"stale")])


def hard_bytes(size: int) -> bytes:
    """Bytes that nothing can compress, the same each time."""
    return SimRandom(7).randbytes(size)
