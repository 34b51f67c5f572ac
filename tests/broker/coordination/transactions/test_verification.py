"""Transactional batches before they are appended: whom they wait for, in which order they go on, what makes them fail.

A coordinator whose topic is flushed at every write answers later; nothing else here is different from a real broker's.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from ottla.broker.broker import Broker
from ottla.broker.peers import Peers
from ottla.coordination.transactions import verification_state
from ottla.coordination.transactions.coordinator import TOPIC as TRANSACTIONS_TOPIC
from ottla.coordination.transactions.peer_requests import add_partitions_at
from ottla.coordination.transactions.requests import AddPartitions, EndTransaction
from ottla.coordination.transactions.verification import TransactionalPart, TransactionalWrites, is_open
from ottla.coordination.transactions.verification_state import PARKED_BYTES_MAX
from ottla.env.real_network import RealNetwork
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import NotLeaderError, OttlaError
from ottla.model.ids import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.records.batch import Batch
from ottla.records.layout import Marker
from ottla.replication.partition import Partition, TransactionEnd
from ottla.storage.log import Appended
from tests.broker.coordination.transactions.test_marker_writer import marker_writer
from tests.broker.coordinator_requests import Transaction, begin
from tests.broker.inside import transaction_coordinator, transaction_shard, verification
from tests.broker.replicated import ReplicatedBrokers
from tests.broker.running_broker import ask, find_coordinator, make_topic, running
from tests.unit.storage.rig import batch
from tests.waiting import until

ID: Final = "t-id"
VERIFIES: Final = 9
JOINS: Final = 12
PLACE: Final = TopicPartition("t", 0)


class Told:
    """One request, and what it has been told."""

    def __init__(self) -> None:
        self.outcomes: dict[int, int | ErrorCode] = {}
        """Base offset, or error, by part."""
        self.waits = 0

    def on_outcome(self, at: int, outcome: Appended | OttlaError) -> None:
        """As a partition does."""
        assert at not in self.outcomes
        self.outcomes[at] = outcome.base_offset if isinstance(outcome, Appended) else outcome.code

    def on_waiting(self) -> None:
        """As a partition does."""
        self.waits += 1


class TransactionalProducer:
    """A broker with a topic, and a producer with a transactional id."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.producer_id = ProducerId(-1)
        self.epoch = ProducerEpoch(-1)

    async def begin(self) -> None:
        """The coordinator and the producer's id."""
        await make_topic(self.broker, "t", 2)
        begun = await begin(self.broker, ID)
        self.producer_id, self.epoch = ProducerId(begun.producer_id), ProducerEpoch(begun.epoch)

    async def slow_down(self) -> None:
        """From now on the coordinator's decisions wait for the disk."""
        configs = [{"name": "flush.messages", "config_operation": 0, "value": "1"}]
        resource = {"resource_type": 2, "resource_name": "__transaction_state", "configs": configs}
        answer = await ask(self.broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})
        assert [0] == [each.error_code.value for each in answer.responses]
        await until(lambda: self.coordinator_partition().log.config.flush_messages == 1)

    def coordinator_partition(self) -> Partition:
        """Where the coordinator writes its decisions."""
        return self.broker.partitions.find(TRANSACTIONS_TOPIC, 0)

    def partition(self, index: int = 0) -> Partition:
        """One of the topic's."""
        return self.broker.partitions.find("t", index)

    def batch(self, sequence: int, value: bytes = b"v") -> Batch:
        """A transactional batch of the producer's."""
        return batch(value, producer_id=self.producer_id, epoch=self.epoch, sequence=sequence, transactional=True)

    def append(self, *batches: Batch, version: int = JOINS, index: int = 0) -> Told:
        """One request, with a batch for each partition from `index` on."""
        told = Told()
        parts = [TransactionalPart(self.partition(index + at), each, at) for at, each in enumerate(batches)]
        verification(self.broker).append(TransactionalWrites(ID, version, -1, told), parts)
        return told

    async def add(self, *places: TopicPartition) -> None:
        """Partitions join, as an old client asks for it."""
        transaction = Transaction(self.broker, ID, self.producer_id, self.epoch)
        assert {ErrorCode.NONE} == set(await transaction.add_partitions(*places))

    def occupy(self) -> None:
        """The coordinator writes that a partition joins; until then, answers without a record wait too."""
        transaction_coordinator(self.broker).add_partitions_here(
            AddPartitions(
                transactional_id=ID,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                partitions=(TopicPartition("t", 1),),
            )
        )

    def end(self, client_version: int) -> None:
        """The transaction is committed; what follows from that need not have happened when this returns."""
        request = EndTransaction(
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            commit=True,
            client_version=client_version,
        )
        shard = transaction_shard(self.broker, ID)
        shard.tell(lambda now: shard.machine.end_transaction(request, now, None))

    def abort_in(self, partition: Partition) -> None:
        """A marker from somewhere else."""
        end = TransactionEnd(Marker.ABORT, self.producer_id, self.epoch, 0, must_exceed_epoch=False)
        marker_writer(self.broker).write(end, [TopicPartition(partition.topic, partition.index)], lambda outcomes: None)


@asynccontextmanager
async def begun_rig(folder: Path, **settings: str) -> AsyncIterator[TransactionalProducer]:
    """A rig on a broker of its own."""
    async with running(folder, transaction_state_log_num_partitions="1", **settings) as broker:
        rig = TransactionalProducer(broker)
        await rig.begin()
        yield rig


async def told_all(*requests: Told, parts: int = 1) -> None:
    """Returns when every request knows of all its parts."""
    await until(lambda: all(len(told.outcomes) == parts for told in requests))


class TestCoordinatorThatAnswersAtOnce:
    async def test_an_open_transaction_needs_no_coordinator(self, tmp_path: Path) -> None:
        async with begun_rig(tmp_path) as rig:
            first = rig.append(rig.batch(0))
            await told_all(first)
            assert is_open(rig.partition(), rig.producer_id, rig.epoch)
            await transaction_coordinator(rig.broker).close()
            second = rig.append(rig.batch(1))
            elsewhere = rig.append(rig.batch(2), rig.batch(0))
            await told_all(first, second)
            await told_all(elsewhere, parts=2)
            assert [{0: 0}, {0: 1}] == [first.outcomes, second.outcomes]
            assert {0: 2, 1: ErrorCode.NOT_ENOUGH_REPLICAS} == elsewhere.outcomes

    async def test_batches_of_one_turn_go_together(self, tmp_path: Path) -> None:
        """The second is no first one, although the first is not written yet when it comes."""
        async with begun_rig(tmp_path) as rig:
            requests = [rig.append(rig.batch(sequence)) for sequence in range(3)]
            await told_all(*requests)
            assert [{0: 0}, {0: 1}, {0: 2}] == [told.outcomes for told in requests]
            assert [0, 0, 0] == [told.waits for told in requests]

    async def test_where_partitions_join_sequences_begin_at_0(self, tmp_path: Path) -> None:
        async with begun_rig(tmp_path) as rig:
            await rig.add(PLACE)
            joining, verified = rig.append(rig.batch(3)), rig.append(rig.batch(3), version=VERIFIES)
            await told_all(joining, verified)
            assert {0: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER} == joining.outcomes
            assert {0: 0} == verified.outcomes

    async def test_verification_can_be_turned_off_for_those_who_add_partitions(self, tmp_path: Path) -> None:
        async with begun_rig(tmp_path, transaction_partition_verification_enable="false") as rig:
            hanging = rig.append(rig.batch(0), version=VERIFIES)
            await told_all(hanging)
            assert {0: 0} == hanging.outcomes
            assert is_open(rig.partition(), rig.producer_id, rig.epoch)


class TestCoordinatorThatAnswersLater:
    async def test_later_batches_wait_behind_the_first(self, tmp_path: Path) -> None:
        async with begun_rig(tmp_path) as rig:
            await rig.slow_down()
            requests = [rig.append(rig.batch(sequence), rig.batch(sequence)) for sequence in range(5)]
            assert [{}] * 5 == [told.outcomes for told in requests]
            assert all(told.waits for told in requests)
            await told_all(*requests, parts=2)
            assert [{0: offset, 1: offset} for offset in range(5)] == [told.outcomes for told in requests]

    async def test_what_waits_is_kept_when_the_memory_is_used_for_something_else(self, tmp_path: Path) -> None:
        async with begun_rig(tmp_path) as rig:
            await rig.slow_down()
            memory = [bytearray(rig.batch(sequence).buffer) for sequence in (0, 1)]
            requests = [rig.append(Batch(each)) for each in memory]
            for each in memory:
                each[:] = bytes(len(each))
            await told_all(*requests)
            assert [{0: 0}, {0: 1}] == [told.outcomes for told in requests]

    async def test_a_marker_that_comes_meanwhile_makes_the_answer_worthless(self, tmp_path: Path) -> None:
        async with begun_rig(tmp_path) as rig:
            await rig.add(PLACE)
            await rig.slow_down()
            rig.occupy()
            late = rig.append(rig.batch(0), version=VERIFIES)
            rig.abort_in(rig.partition())
            await told_all(late)
            assert {0: ErrorCode.INVALID_TXN_STATE} == late.outcomes
            assert not is_open(rig.partition(), rig.producer_id, rig.epoch)
            assert rig.partition().end_offset == rig.partition().last_stable_offset

    async def test_a_marker_of_the_previous_transaction_comes_meanwhile(self, tmp_path: Path) -> None:
        """A client of transaction version 2 does not wait for markers: the coordinator is asked again."""
        async with begun_rig(tmp_path) as rig:
            await rig.slow_down()
            first, behind = rig.append(rig.batch(0)), rig.append(rig.batch(1))
            rig.abort_in(rig.partition())
            await told_all(first, behind)
            # The marker has offset 0.
            assert [{0: 1}, {0: 2}] == [first.outcomes, behind.outcomes]

    async def test_a_partition_that_goes_meanwhile(self, tmp_path: Path) -> None:
        async with begun_rig(tmp_path) as rig:
            await rig.slow_down()
            late, behind = rig.append(rig.batch(0)), rig.append(rig.batch(1))
            rig.broker.partitions.remove(rig.partition())
            await told_all(late, behind)
            assert [{0: ErrorCode.NOT_LEADER_OR_FOLLOWER}] * 2 == [late.outcomes, behind.outcomes]

    async def test_who_is_refused_takes_those_behind_along(self, tmp_path: Path) -> None:
        """Their coordinator goes while they wait."""
        async with begun_rig(tmp_path) as rig:
            await rig.slow_down()
            requests = [rig.append(rig.batch(sequence)) for sequence in range(3)]
            gone = NotLeaderError("another broker leads the coordinator's partition")
            rig.coordinator_partition().fail_waiting(gone)
            await told_all(*requests)
            assert [{0: ErrorCode.NOT_ENOUGH_REPLICAS}] * 3 == [told.outcomes for told in requests]
            assert 0 == rig.partition().end_offset

    async def test_no_more_than_so_many_bytes_wait(self, tmp_path: Path) -> None:
        async with begun_rig(tmp_path) as rig:
            await rig.slow_down()
            large = bytes(PARKED_BYTES_MAX // 4)
            for index in range(2):
                requests = [rig.append(rig.batch(sequence, large), index=index) for sequence in range(3)]
                refused = rig.append(rig.batch(3, large), index=index)
                assert [{0: ErrorCode.NOT_ENOUGH_REPLICAS}, 0] == [refused.outcomes, refused.waits]
                assert [{}, {}, {}] == [told.outcomes for told in requests]
                await told_all(*requests)
                assert {0: ErrorCode.MESSAGE_TOO_LARGE} == requests[0].outcomes


class TestTransactionThatIsBeingEnded:
    """Its markers wait for the disk of another topic."""

    async def ending(self, rig: TransactionalProducer, client_version: int) -> None:
        await make_topic(rig.broker, "slow", flush_messages="1")
        await rig.add(TopicPartition("slow", 0))
        rig.end(client_version)

    async def test_a_client_that_knows_no_better_tries_again_and_nobody_overtakes_it(self, tmp_path: Path) -> None:
        async with begun_rig(tmp_path) as rig:
            await self.ending(rig, 0)
            first = rig.append(rig.batch(0), version=VERIFIES)
            assert {0: ErrorCode.NOT_ENOUGH_REPLICAS} == first.outcomes
            await self.ended(rig)
            await rig.add(PLACE)
            second = rig.append(rig.batch(1), version=VERIFIES)
            assert {0: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER} == second.outcomes
            again = [rig.append(rig.batch(sequence), version=VERIFIES) for sequence in (0, 1)]
            await told_all(*again)
            assert [{0: 0}, {0: 1}] == [told.outcomes for told in again]

    async def test_a_newer_client_does_not_notice(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # As often as it takes: a busy disk needs longer for the markers than the 100 ms that the broker retries.
        monkeypatch.setattr(verification_state, "RETRIES", 10_000)
        async with begun_rig(tmp_path) as rig:
            await self.ending(rig, 2)
            rig.epoch = ProducerEpoch(rig.epoch + 1)
            requests = [rig.append(rig.batch(sequence)) for sequence in range(3)]
            assert [{}] * 3 == [told.outcomes for told in requests]
            await told_all(*requests)
            assert [{0: 0}, {0: 1}, {0: 2}] == [told.outcomes for told in requests]

    async def ended(self, rig: TransactionalProducer) -> None:
        await Transaction(rig.broker, ID, rig.producer_id, rig.epoch).wait_state("CompleteCommit")


async def test_offsets_are_checked_the_same_way(tmp_path: Path) -> None:
    async with begun_rig(tmp_path) as rig:
        check = verification(rig.broker).check
        mine = (rig.partition(), ID, rig.producer_id, rig.epoch)
        assert ErrorCode.TRANSACTION_ABORTABLE is await check(*mine, joins=False)
        assert ErrorCode.NONE is await check(*mine, joins=True)
        assert ErrorCode.NONE is await check(*mine, joins=False)
        stranger = (rig.partition(), ID, rig.producer_id, ProducerEpoch(rig.epoch + 1))
        assert ErrorCode.PRODUCER_FENCED is await check(*stranger, joins=True)
        await rig.slow_down()
        late = asyncio.ensure_future(check(rig.partition(1), *mine[1:], joins=True))
        await asyncio.sleep(0)
        assert not late.done()
        rig.abort_in(rig.partition(1))
        assert ErrorCode.NONE is await late


async def test_offsets_that_are_sent_again_while_the_first_request_is_verified(tmp_path: Path) -> None:
    """A client whose request timed out repeats it; the first one opens the transaction while the second is verified."""
    async with begun_rig(tmp_path) as rig:
        check = verification(rig.broker).check
        await rig.slow_down()
        rig.occupy()
        again = asyncio.ensure_future(check(rig.partition(1), ID, rig.producer_id, rig.epoch, joins=False))
        await asyncio.sleep(0)
        first = Told()
        rig.partition(1).append_soon(rig.batch(0), -1, first, 0)
        rig.partition(1).append_queued()
        assert is_open(rig.partition(1), rig.producer_id, rig.epoch)
        assert not again.done()
        assert ErrorCode.NONE is await again


async def test_a_marker_comes_while_offsets_of_an_old_client_are_verified(tmp_path: Path) -> None:
    async with begun_rig(tmp_path) as rig:
        check = verification(rig.broker).check
        await rig.slow_down()
        # A record that is being written lets the answer wait.
        rig.occupy()
        late = asyncio.ensure_future(check(rig.partition(1), ID, rig.producer_id, rig.epoch, joins=False))
        await asyncio.sleep(0)
        assert not late.done()
        rig.abort_in(rig.partition(1))
        assert ErrorCode.INVALID_TXN_STATE is await late


async def test_a_coordinator_that_cannot_be_reached_may_be_asked_again(tmp_path: Path) -> None:
    async with begun_rig(tmp_path) as rig:
        request = AddPartitions(
            transactional_id=ID,
            producer_id=rig.producer_id,
            producer_epoch=rig.epoch,
            partitions=(PLACE,),
            verify_only=True,
            client_version=0,
        )
        peers = Peers(rig.broker.id, lambda: rig.broker.image, RealNetwork())
        answer = await add_partitions_at(peers.ask, BrokerId(99), request)
        assert ((PLACE, ErrorCode.COORDINATOR_NOT_AVAILABLE),) == answer.errors


async def test_a_question_that_is_given_up_is_told_to_who_waits_and_who_waits_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with begun_rig(tmp_path) as rig:
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with monkeypatch.context() as patch:
            patch.setattr(verification(rig.broker), "_add_partitions", lambda request: asked)
            requests = [rig.append(rig.batch(sequence)) for sequence in range(2)]
        assert [{}, {}] == [told.outcomes for told in requests]
        asked.cancel()
        await told_all(*requests)
        assert all(isinstance(told.outcomes[0], ErrorCode) for told in requests)
        after = rig.append(rig.batch(0))
        await told_all(after)
        assert {0: 0} == after.outcomes


async def test_what_a_client_asks_of_the_wrong_broker_is_not_passed_on(tmp_path: Path) -> None:
    """It may be late: its client may have gone to the right one since, and have ended what this would begin."""
    async with ReplicatedBrokers(tmp_path, {"transaction.state.log.num.partitions": "1"}) as cluster:
        await cluster.make_topic("t")
        right = await find_coordinator(cluster.brokers[0], ID, of_transactions=True)
        wrong = cluster.brokers[(right + 1) % 3]
        await cluster.wait(lambda: TRANSACTIONS_TOPIC in wrong.image.topics)
        assert right == await find_coordinator(wrong, ID, of_transactions=True)
        transaction = Transaction(wrong, ID, 1, 0)
        offsets = await ask(wrong, ApiKey.ADD_OFFSETS_TO_TXN, {**transaction.identity, "group_id": "g"})
        codes = [*await transaction.add_partitions(PLACE), offsets.error_code]
        assert [ErrorCode.NOT_COORDINATOR] * 2 == codes
