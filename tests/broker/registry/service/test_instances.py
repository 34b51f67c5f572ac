"""Several instances on one cluster: forwarding, taking over, a split, and a topic that is lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest

from ottla.client.admin.topic_requests import create_topic, delete_topic
from ottla.client.network.cluster import Cluster
from ottla.client.producer.async_producer import AsyncProducer
from ottla.registry.service.election_protocol import Instance
from ottla.registry.service.leader_election import Elected
from ottla.testing import InProcessBroker
from ottla.transport.addresses import parse_bootstrap
from tests.broker.registry.service.instances import ORDER, ORDER_2, ORDER_BAD, Started, record, served
from tests.waiting import until


@asynccontextmanager
async def instances(bootstrap: str, count: int) -> AsyncIterator[list[Started]]:
    """The first one leads, and stays the leader: the others join once it leads."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(served(bootstrap))
        await first.until_leading()
        running = [first, *[await stack.enter_async_context(served(bootstrap)) for _ in range(count - 1)]]
        for each in running:
            await each.until_leader_known()
        yield running


async def leader_of(running: list[Started]) -> Started:
    def leading() -> list[Started]:
        return [each for each in running if each.registry.leadership is not None]

    await until(lambda: len(leading()) == 1)
    return leading()[0]


async def test_a_follower_forwards_writes_and_reads_its_own(ottla_broker: InProcessBroker) -> None:
    async with instances(ottla_broker.bootstrap, 3) as running:
        leader = await leader_of(running)
        first, second = (each for each in running if each is not leader)
        assert 1 == (await first.call("POST", "/subjects/a%2Fb/versions", ORDER))["id"]
        assert [1] == await first.call("GET", "/subjects/a%2Fb/versions")
        assert 1 == first.application.metrics.forwarded
        await second.registry.wait_applied(leader.registry.applied)
        # What a follower knows needs no leader.
        assert 1 == (await second.call("POST", "/subjects/a%2Fb/versions", ORDER))["id"]
        assert 0 == second.application.metrics.forwarded
        # The leader's errors come through as they are.
        for method, path, body, expected in (
            ("POST", "/subjects/a%2Fb/versions", ORDER_BAD, (409, 40901)),
            ("POST", "/subjects/a%2Fb/versions", {"schema": "{"}, (422, 42201)),
            ("DELETE", "/subjects/none", None, (404, 40401)),
            ("PUT", "/config", {"compatibility": "SOMEHOW"}, (422, 42203)),
        ):
            assert expected == await second.error(method, path, body), path
        assert {"compatibility": "NONE"} == await second.call("PUT", "/config", {"compatibility": "NONE"})
        assert "NONE" == (await second.call("GET", "/config"))["compatibilityLevel"]
        assert [1] == await second.call("DELETE", "/subjects/a%2Fb")
        assert (404, 40401) == await second.error("GET", "/subjects/a%2Fb/versions")


async def test_a_forwarded_request_is_not_forwarded_again(ottla_broker: InProcessBroker) -> None:
    async with instances(ottla_broker.bootstrap, 2) as running:
        leader = await leader_of(running)
        (follower,) = (each for each in running if each is not leader)
        follower.application._write_seconds = 0.5
        error = await follower.error("POST", "/subjects/s/versions", ORDER, headers={"X-Forward": "true"})
        assert (500, 50004) == error


@asynccontextmanager
async def silent_leader(follower: Started) -> AsyncIterator[asyncio.Event]:
    """A leader that takes requests and never answers, as a paused process; the event is set when it got one."""
    reached = asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        reached.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        leader = Instance(host="127.0.0.1", port=port)
        follower.registry._on_elected(Elected(leader=leader, is_this_instance=False))
        yield reached


async def test_a_forwarded_write_goes_to_the_next_leader_if_the_leader_is_silent(ottla_broker: InProcessBroker) -> None:
    async with instances(ottla_broker.bootstrap, 2) as running:
        leader = await leader_of(running)
        (follower,) = (each for each in running if each is not leader)
        elected = follower.registry._elected
        for number, (method, path, body) in enumerate(
            (("POST", "/subjects/s/versions", ORDER), ("PUT", "/config/s", {"compatibility": "FULL"}))
        ):
            async with silent_leader(follower) as reached:
                write = asyncio.create_task(follower.call(method, path, body))
                await reached.wait()
                follower.registry._on_elected(None)
                await asyncio.sleep(0.05)  # in which it would be sent if there were a leader
                assert not write.done()
                follower.registry._on_elected(elected)
                async with asyncio.timeout(40):
                    await write
            assert number + 1 == follower.application.metrics.forwarded
        assert ["s"] == await follower.call("GET", "/subjects")


async def test_a_forwarded_deletion_is_not_repeated(ottla_broker: InProcessBroker) -> None:
    """Its second answer would be another one: that the subject was deleted already."""
    async with instances(ottla_broker.bootstrap, 2) as running:
        leader = await leader_of(running)
        (follower,) = (each for each in running if each is not leader)
        elected = follower.registry._elected
        assert 1 == (await follower.call("POST", "/subjects/s/versions", ORDER))["id"]
        async with silent_leader(follower) as reached:
            deletion = asyncio.create_task(follower.error("DELETE", "/subjects/s"))
            await reached.wait()
            follower.registry._on_elected(elected)
            async with asyncio.timeout(40):
                assert (500, 50003) == await deletion
        assert ["s"] == await follower.call("GET", "/subjects")


async def test_writes_go_on_when_the_leader_stops(ottla_broker: InProcessBroker) -> None:
    async with served(ottla_broker.bootstrap) as second:
        await second.until_leading()
        async with served(ottla_broker.bootstrap) as first:
            await first.until_leader_known()
            assert 1 == (await first.call("POST", "/subjects/s/versions", ORDER))["id"]
        assert 2 == (await second.call("POST", "/subjects/s/versions", ORDER_2))["id"]
    async with served(ottla_broker.bootstrap) as third:
        assert 3 == (await third.call("POST", "/subjects/t/versions", ORDER_BAD))["id"]


@pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "not committed"])
async def test_a_leader_that_dies_between_giving_an_id_and_answering(
    ottla_broker: InProcessBroker, is_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client got no answer: the id is the schema's if it was committed, and free if it was not."""
    async with served(ottla_broker.bootstrap) as first:
        await first.until_leading()
        dying = first.registry.leadership
        assert dying is not None
        reached = asyncio.Event()

        async def never(*_: object) -> None:
            reached.set()
            await asyncio.Event().wait()

        if is_committed:
            monkeypatch.setattr(dying, "_wait_applied", never)
        else:
            monkeypatch.setattr(dying._writer._producer, "commit_transaction", never)
        lost = asyncio.create_task(first.http.post("/subjects/s/versions", json=ORDER))
        await reached.wait()
        # A dead instance does not see what others write, and does not ask to be elected again.
        assert first.registry._following is not None
        first.registry._following.cancel()
        async with served(ottla_broker.bootstrap) as second:
            # The first one is elected still; the second takes over as if it were dead, once the group is at rest:
            # an instance that is elected again in between would fence it.
            await second.until_leader_known()
            assert second.registry._topic is not None
            leadership = await second.registry._begin()
            second.registry.leadership = leadership
            second.registry._changed.set()
            other = record("Other", {"name": "x", "type": "int"})
            assert (2 if is_committed else 1) == (await second.call("POST", "/subjects/o/versions", other))["id"]
            assert (1 if is_committed else 2) == (await second.call("POST", "/subjects/s/versions", ORDER))["id"]
            second.registry.leadership = None
            await leadership.close()
        lost.cancel()


async def test_a_zombie_leader_is_fenced_and_its_write_is_not_lost(ottla_broker: InProcessBroker) -> None:
    async with served(ottla_broker.bootstrap) as zombie:
        await zombie.until_leading()
        assert 1 == (await zombie.call("POST", "/subjects/s/versions", ORDER))["id"]
        async with served(ottla_broker.bootstrap) as new:
            # Both would claim to lead if the new one joined the group later.
            await new.until_leader_known()
            # The zombie is cut off from the topic, and does not see what others write.
            assert zombie.registry._following is not None
            zombie.registry._following.cancel()
            leadership = await new.registry._begin()
            new.registry.leadership = leadership
            assert 2 == (await new.call("POST", "/subjects/new/versions", ORDER_2))["id"]
            # The zombie still believes that it leads, and has decided on an older image.
            answer = await zombie.http.post("/subjects/zombie/versions", json=ORDER_BAD)
            assert (500, 50002) == (answer.status_code, answer.json()["error_code"])
            assert "PRODUCER" in answer.json()["message"]  # PRODUCER_FENCED or INVALID_PRODUCER_EPOCH
            new.registry.leadership = None
            await leadership.close()
        assert zombie.registry._topic is not None
        zombie.registry._following = asyncio.create_task(zombie.registry._follow(zombie.registry._topic))
        # It is elected again, reads what the other one wrote, and goes on.
        assert 3 == (await zombie.call("POST", "/subjects/zombie/versions", ORDER_BAD))["id"]
        assert ["new", "s", "zombie"] == await zombie.call("GET", "/subjects")
        assert 0 == zombie.registry.refused_records


async def test_a_registry_without_transactions_that_writes_too_ends_leadership(
    ottla_broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(ottla_broker.bootstrap) as one:
        assert 1 == (await one.call("POST", "/subjects/s/versions", ORDER))["id"]
        foreign = {"subject": "f", "version": 1, "id": 2, "schema": '"int"', "deleted": False}
        async with AsyncProducer(bootstrap_servers=ottla_broker.bootstrap) as producer:
            await producer.send_and_wait(
                "_schemas",
                json.dumps(foreign).encode(),
                b'{"keytype":"SCHEMA","subject":"f","version":1,"magic":1}',
            )
        await until_subjects(one, ["f", "s"])
        assert 3 == (await one.call("POST", "/subjects/s/versions", ORDER_2))["id"]
    assert "another registry wrote the record" in caplog.text


async def test_a_deleted_topic_is_an_error_and_no_id_is_given(ottla_broker: InProcessBroker) -> None:
    async with served(ottla_broker.bootstrap) as one:
        assert 1 == (await one.call("POST", "/subjects/s/versions", ORDER))["id"]
        async with Cluster(parse_bootstrap(ottla_broker.bootstrap)) as cluster:
            await delete_topic(cluster, "_schemas")
            await until_lost(one)
            assert (500, 50001) == await one.error("POST", "/subjects/s/versions", ORDER_2)
            message = (await one.http.post("/subjects/s/versions", json=ORDER_2)).json()["message"]
            assert "deleted or recreated" in message
            # Reads are answered from what was read.
            assert ["s"] == await one.call("GET", "/subjects")
            # A new topic under the same name is not taken for the old one: ids would be given twice.
            await create_topic(
                cluster, "_schemas", partitions=1, replication_factor=1, configs={"cleanup.policy": "compact"}
            )
            async with served(ottla_broker.bootstrap) as late:
                late.application._write_seconds = 2.0
                assert (500, 50004) == await late.error("POST", "/subjects/s/versions", ORDER_2)
                assert (500, 50001) == await one.error("POST", "/subjects/s/versions", ORDER_2)
                assert 0 == late.registry.applied


async def until_subjects(one: Started, expected: list[str]) -> None:
    async def are_there() -> bool:
        return bool(expected == await one.call("GET", "/subjects"))

    await until(are_there)


async def until_lost(one: Started) -> None:
    while one.registry.problem is None:
        await one.registry.wait_change()


async def test_requests_wait_for_the_next_leadership_when_one_has_failed(ottla_broker: InProcessBroker) -> None:
    async with served(ottla_broker.bootstrap) as one:
        await one.until_leading()
        failed = one.registry.leadership
        assert failed is not None
        failed._fail("a reason to be elected again")
        # Without a chance for another task to run: a request must not be given to the one that failed.
        following = await one.registry.wait_leader(may_forward=True)
        assert following is not failed
        assert 1 == (await one.call("POST", "/subjects/s/versions", ORDER))["id"]


async def test_decisions_see_those_before_them_that_are_not_committed_yet(ottla_broker: InProcessBroker) -> None:
    async with served(ottla_broker.bootstrap) as one:
        await one.until_leading()
        answers = await asyncio.gather(
            *(one.http.post(f"/subjects/s{place % 3}/versions", json=ORDER) for place in range(30))
        )
        assert {1} == {each.json()["id"] for each in answers}
        assert 3 == one.registry.written.records


async def test_a_client_that_goes_away_does_not_stop_its_write(ottla_broker: InProcessBroker) -> None:
    async with served(ottla_broker.bootstrap) as one:
        await one.until_leading()
        with pytest.raises(httpx.TimeoutException):
            await one.http.post("/subjects/s/versions", json=ORDER, timeout=httpx.Timeout(30, read=0.001))
        await until_subjects(one, ["s"])
        assert 2 == (await one.call("POST", "/subjects/s/versions", ORDER_2))["id"]


async def test_a_leader_that_failed_does_not_keep_the_event_loop_busy(ottla_broker: InProcessBroker) -> None:
    """Between its failure and its resignation it refuses writes: these wait for the next leader."""
    async with instances(ottla_broker.bootstrap, 1) as (only,):
        leader = (await leader_of([only])).registry.leadership
        assert leader is not None
        leader._failure = "the test says so"
        write = asyncio.create_task(only.call("POST", "/subjects/s/versions", ORDER))
        await asyncio.sleep(0.1)  # in which it would be answered; the event loop runs meanwhile
        assert not write.done()
        leader._failure = None
        assert 1 == (await write)["id"]
