"""Members of a consumer group that join at the same time: decided by the machine together, gathered by the runtime."""

import asyncio
import struct
from typing import Any

import pytest

from ottla.coordination.groups.consumer.group import GroupState
from ottla.coordination.groups.consumer.groups_state import PlainJoin
from ottla.coordination.groups.consumer.records import EpochRecord, TargetEpochRecord
from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig, ConsumerHeartbeat
from ottla.coordination.groups.gathered_joins import GatheredJoins
from ottla.coordination.groups.group_kind import Topic
from ottla.coordination.groups.group_shard_state import GroupShard
from ottla.coordination.groups.requests import GroupSettings
from ottla.coordination.runtime.effects import Write
from ottla.coordination.runtime.reply import Reply
from ottla.coordination.runtime.shard import Shard
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import NotCoordinatorError
from ottla.sim.clock import SimClock
from ottla.sim.random import SimRandom
from tests.unit.coordination.consumer_group_driver import FOO, TOPICS, Driver
from tests.unit.replication.rig import PartitionRig


def first_beat(member_id: str, **fields: Any) -> ConsumerHeartbeat:
    full = {"topic_names": ("foo",), "rebalance_timeout_ms": 60_000, "owned_partitions": {}}
    return ConsumerHeartbeat(**{"group_id": "g", **full, **fields}, member_id=member_id, member_epoch=0)


def joins_of(*member_ids: str) -> list[PlainJoin]:
    return [PlainJoin(first_beat(member_id), member_id) for member_id in member_ids]


# The machine


def test_each_gets_its_share_at_once_with_one_epoch_one_target_and_one_write() -> None:
    driver = Driver()
    effects = driver.shard.join_all(joins_of("a", "b", "c", "d"), driver.now_ms)
    assert [Write] == [type(effect) for effect in effects]
    responses = driver.run(effects)
    assert {"a": {FOO: (0,)}, "b": {FOO: (1,)}, "c": {FOO: (2,)}, "d": {FOO: (3,)}} == {
        member_id: response.assignment for member_id, response in responses.items()
    }
    assert {2} == {response.member_epoch for response in responses.values()}
    assert GroupState.STABLE is driver.group().state
    written = driver.written()
    assert (1, 1) == tuple(sum(isinstance(each, kind) for each in written) for kind in (EpochRecord, TargetEpochRecord))


def test_those_who_join_a_group_with_members_wait_for_what_these_give_up() -> None:
    driver = Driver()
    driver.join("a")
    responses = driver.run(driver.shard.join_all(joins_of("b", "c"), driver.now_ms))
    assert {3} == {response.member_epoch for response in responses.values()}
    assert [{}, {}] == [response.assignment for response in responses.values()]
    kept = driver.beat("a", 2).assignment
    assert kept is not None
    assert 2 == len(kept[FOO])
    driver.beat("a", 2, owned_partitions=kept)
    given = [driver.beat(member_id, 3).assignment for member_id in ("b", "c")]
    assert {0, 1, 2, 3} == {partition for each in (kept, *given) for partition in (each or {})[FOO]}


def test_what_one_of_them_gives_up_by_joining_again_goes_to_another_a_heartbeat_later() -> None:
    driver = Driver()
    driver.join("a")
    responses = driver.run(driver.shard.join_all(joins_of("a", "b"), driver.now_ms))
    kept, awaited = responses["a"].assignment, responses["b"].assignment
    assert (2, {}) == (len(kept[FOO]), awaited)
    given = driver.beat("b", 3).assignment
    assert given is not None
    assert {0, 1, 2, 3} == {*kept[FOO], *given[FOO]}


def test_a_refused_join_does_not_harm_the_others() -> None:
    driver = Driver(ConsumerGroupConfig(assignment_interval_ms=0, max_size=2))
    joins = [
        PlainJoin(first_beat("a"), "a"),
        PlainJoin(first_beat("x", rebalance_timeout_ms=-1), "x"),
        PlainJoin(first_beat("b"), "b"),
        PlainJoin(first_beat("c"), "c"),
    ]
    responses = driver.run(driver.shard.join_all(joins, driver.now_ms))
    none, invalid, full = ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {"a": none, "x": invalid, "b": none, "c": full} == {
        token: response.error for token, response in responses.items()
    }
    assert ["a", "b"] == list(driver.group().members)


def test_refused_joins_alone_create_no_group() -> None:
    driver = Driver()
    joins = [PlainJoin(first_beat("x", rebalance_timeout_ms=-1), "x")]
    assert ErrorCode.INVALID_REQUEST is driver.run(driver.shard.join_all(joins, driver.now_ms))["x"].error
    assert ({}, []) == (driver.shard.groups, driver.log)


def test_a_join_that_is_sent_twice_is_answered_twice() -> None:
    driver = Driver()
    joins = [PlainJoin(first_beat("a"), 1), PlainJoin(first_beat("a"), 2)]
    responses = driver.run(driver.shard.join_all(joins, driver.now_ms))
    assert responses[1] == responses[2]
    assert {FOO: (0, 1, 2, 3)} == responses[1].assignment


def test_a_join_that_is_sent_twice_with_another_subscription_has_what_the_group_gives_it() -> None:
    # The last target is too recent for another one, so that the member only loses what it does not subscribe to.
    driver = Driver(ConsumerGroupConfig(assignment_interval_ms=1_000))
    driver.join("a", "foo")
    driver.now_ms += 1
    joins = [PlainJoin(first_beat("a", topic_names=("bar",)), token) for token in (1, 2)]
    responses = driver.run(driver.shard.join_all(joins, driver.now_ms))
    assert {} == driver.group().members["a"].assigned
    assert [{}, {}] == [responses[token].assignment for token in (1, 2)]


def test_if_the_write_fails_all_are_told() -> None:
    driver = Driver()
    (write,) = driver.shard.join_all(joins_of("a", "b"), driver.now_ms)
    assert isinstance(write, Write)
    assert [("a", ErrorCode.COORDINATOR_NOT_AVAILABLE), ("b", ErrorCode.COORDINATOR_NOT_AVAILABLE)] == [
        (respond.token, respond.response.error) for respond in write.on_failure
    ]


@pytest.mark.parametrize(
    ("fields", "is_plain"),
    [({}, True), ({"topic_regex": ""}, True), ({"topic_regex": "f.*"}, False), ({"instance_id": "i"}, False)],
)
def test_plain_joins_are_those_of_dynamic_members_without_a_pattern(fields: dict[str, Any], is_plain: bool) -> None:
    assert is_plain is first_beat("a", **fields).is_plain_join
    assert not first_beat("a", **fields)._replace(member_epoch=1).is_plain_join


# The runtime


class JoiningShard:
    """A loaded shard over a real partition, and the joins that wait for it."""

    @classmethod
    async def make(cls) -> "JoiningShard":
        rig, found = cls(), await PartitionRig.make()
        config = ConsumerGroupConfig(assignment_interval_ms=0)
        machine = GroupShard(GroupSettings(), config, SimRandom(1))
        rig.shard = Shard(found.partition, machine, clock=SimClock(), disk=found.disk, timers=found.timers)
        await rig.shard.load()
        rig.shard.tell(lambda now_ms: machine.on_metadata({**TOPICS, "wide": Topic(FOO, 60)}, now_ms))
        rig.joins = GatheredJoins()
        return rig

    shard: Shard[GroupShard]
    joins: GatheredJoins

    def join(self, member_id: str, **fields: Any) -> Reply:
        reply = Reply(lambda outcome: outcome)
        self.joins.add(self.shard, PlainJoin(first_beat(member_id, **fields), reply))
        return reply


async def test_a_member_that_joins_alone_is_answered_soon() -> None:
    rig = await JoiningShard.make()
    answer = await rig.join("a")
    assert {FOO: (0, 1, 2, 3)} == answer.assignment


async def test_members_that_join_in_a_row_of_rounds_are_decided_together() -> None:
    rig = await JoiningShard.make()
    replies = []
    for number in range(50):
        replies.append(rig.join(f"m{number}", topic_names=("wide",)))
        await asyncio.sleep(0)
    assert {2: 10, 1: 40} == _sizes([await reply for reply in replies])


def _sizes(answers: list[Any]) -> dict[int, int]:
    sizes = [sum(map(len, answer.assignment.values())) for answer in answers]
    return {size: sizes.count(size) for size in set(sizes)}


async def test_a_join_does_not_wait_for_ever_while_others_come() -> None:
    rig = await JoiningShard.make()
    reply = rig.join("a")
    for number in range(1_000):
        if reply.done():
            break
        rig.join(f"m{number}")
        await asyncio.sleep(0)
    assert reply.done()


async def test_groups_do_not_wait_for_each_other() -> None:
    rig = await JoiningShard.make()
    replies = [rig.join("a", group_id="one"), rig.join("a", group_id="other")]
    assert [{FOO: (0, 1, 2, 3)}] * 2 == [(await reply).assignment for reply in replies]


async def test_the_next_request_of_a_member_does_not_overtake_its_join() -> None:
    rig = await JoiningShard.make()
    reply = rig.join("a")
    rig.joins.decide_for(rig.shard, "g", "someone else")
    assert not reply.done()
    rig.joins.decide_for(rig.shard, "g", "a")
    assert reply.done()
    left = await rig.shard.ask(
        lambda now_ms, token: rig.shard.machine.consumer_heartbeat(
            ConsumerHeartbeat(group_id="g", member_id="a", member_epoch=-1), now_ms, token
        )
    )
    assert ErrorCode.NONE is left.error
    await asyncio.sleep(0)
    assert {} == rig.shard.machine.consumers.groups["g"].members


async def test_large_subscriptions_are_not_gathered_into_one_batch() -> None:
    rig = await JoiningShard.make()
    names = tuple("x" * 249 + str(number) for number in range(100, 400))
    first, second = rig.join("a", topic_names=names), rig.join("b", topic_names=names)
    assert (True, False) == (first.done(), second.done())
    assert ErrorCode.NONE is (await second).error


async def test_many_joins_are_more_than_one_batch() -> None:
    rig = await JoiningShard.make()
    replies = [rig.join(f"m{number:03}") for number in range(999)]
    assert (True, False) == (replies[0].done(), replies[-1].done())
    assert {ErrorCode.NONE} == {(await reply).error for reply in replies}
    assert 999 == len(rig.shard.machine.consumers.groups["g"].members)


async def test_a_shard_that_is_unloaded_meanwhile_refuses_the_joins() -> None:
    rig = await JoiningShard.make()
    reply = rig.join("a")
    rig.shard.unload()
    assert isinstance(await reply, NotCoordinatorError)


async def test_an_answer_that_cannot_be_made_does_not_keep_the_others_waiting() -> None:
    rig = await JoiningShard.make()
    broken = Reply(lambda outcome: outcome.assignment[None])
    rig.joins.add(rig.shard, PlainJoin(first_beat("a"), broken))
    assert {FOO: (2, 3)} == (await rig.join("b")).assignment
    with pytest.raises(KeyError):
        await broken


async def test_no_join_waits_for_ever_if_one_of_them_cannot_be_decided() -> None:
    rig = await JoiningShard.make()
    # No request has such a number, and no record can.
    replies = [rig.join("a"), rig.join("b", rebalance_timeout_ms=2**40), rig.join("x", rebalance_timeout_ms=-1)]
    for reply in replies:
        with pytest.raises(struct.error):
            await reply
    assert {} == rig.shard.machine.consumers.groups
    assert {FOO: (0, 1, 2, 3)} == (await rig.join("a")).assignment
