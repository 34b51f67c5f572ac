"""What groups and transactions cost one core: a whole broker in this process, asked without sockets.

Measured is from the bytes of a request to the bytes of its answer: reading, deciding, writing to the log, answering.
Heartbeats, the cheapest thing that a coordinator does, are the baseline. To see where the time goes:

    py-spy record -o profile.svg -- .venv/bin/python -m benchmarks coordination

How the broker stands against Kafka, with sockets, is `vs_kafka.py --only coordination`.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, Final, cast

from benchmarks.measure import Result, interleaved, report
from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.protocol.apis import ApiKey
from ottla.protocol.scan import scan_requests
from ottla.records.builder import BatchBuilder
from ottla.security.connection_context import ConnectionContext
from ottla.security.security_protocol import SecurityProtocol
from ottla.transport.connection import Connection, Slot
from tests.wire.exchange import read_response, request_frame

OPERATIONS: Final = 1_000
TRANSACTIONS: Final = 300
REBALANCES: Final = 10
MEMBERS: Final = 50
PARTITIONS: Final = 50
RECORDS: Final = 10
RECORD_BYTES: Final = 100
FRAME_BYTES_MAX: Final = 1 << 20
COORDINATOR_STARTING: Final = (14, 15, 16)
CORRELATION_END: Final = 8
ERROR_AT: Final = CORRELATION_END + 1 + 4
"""Behind the tags of the header and the throttle time."""

GENERATION: Final = bytes.fromhex("7a b1 c2 d3")
PRODUCER: Final = bytes.fromhex("7e f4 a1 b2 c3 d4 e5 06")
EPOCH: Final = bytes.fromhex("7b d1")
"""What stands in a template where the number comes that they are named for."""
NO_NUMBER: Final = b""
TOPIC: Final = "bench"
VERSIONS: Final = {
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.HEARTBEAT: 4,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.CREATE_TOPICS: 7,
}
SUBSCRIPTION: Final = b"\0\1\0\0\0\1\0\5bench\xff\xff\xff\xff\0\0\0\0"

Values = dict[str, Any]


class Caller:
    """In the place of a connection: takes the one answer that it waits for."""

    context = ConnectionContext(
        listener="PLAINTEXT", security_protocol=SecurityProtocol.PLAINTEXT, address="127.0.0.1:0"
    )

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._frame = bytearray()
        self._slot = Slot(cast(Connection, self))
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def send(self, frame: bytearray) -> Awaitable[bytes]:
        """Hands the frame over; the answer's frame, length first."""
        self._frame = frame
        self._answer = asyncio.get_running_loop().create_future()
        self.resume()
        return self._answer

    def resume(self) -> None:
        """Offers the request, again if the broker had no room for it; it will then call this once more."""
        self._slot = Slot(cast(Connection, self))
        (request,) = scan_requests(self._frame, 0, len(self._frame), FRAME_BYTES_MAX)[0]
        self._broker.parts.pipeline.serve(request, self._frame, self._slot)

    def on_completed(self) -> None:
        """The slot has its answer."""
        if self._slot.failure is not None:
            self._answer.set_exception(RuntimeError(self._slot.failure))
        else:
            self._answer.set_result(b"".join(cast("tuple[bytes, ...]", self._slot.pieces)))

    async def ask(self, api_key: ApiKey, values: Values, version: int | None = None) -> Any:
        """A request made for this once, and its answer read."""
        version = VERSIONS[api_key] if version is None else version
        answer = await self.send(bytearray(request_frame(api_key, version, values)))
        return read_response(api_key, version, answer[4:])[1]

    async def ask_until(self, api_key: ApiKey, values: Values, error_of: Callable[[Any], int]) -> Any:
        """Asks again while the coordinator is only starting."""
        while True:
            answer = await self.ask(api_key, values)
            if error_of(answer) not in COORDINATOR_STARTING:
                return answer
            await asyncio.sleep(0.01)


class Template:
    """A request made once by kio and sent many times: the numbers that change are found by what stands in their place.

    So the asking side costs next to nothing, and what is measured is the broker.
    """

    def __init__(self, api_key: ApiKey, version: int, values: Values, *places: bytes) -> None:
        self.frame = bytearray(request_frame(api_key, version, values))
        self._positions = [self.frame.index(place) for place in places]
        self._sizes = [len(place) for place in places]

    def with_numbers(self, *numbers: bytes) -> bytearray:
        """The frame, changed in place."""
        for at, size, number in zip(self._positions, self._sizes, numbers, strict=True):
            self.frame[at : at + size] = number
        return self.frame


class Group:
    """A classic group whose members join and sync again and again."""

    def __init__(self, broker: Broker, name: str, count: int) -> None:
        self._name = name
        self._callers = [Caller(broker) for _ in range(count)]
        self._members: list[str] = []
        self._joins: list[bytearray] = []
        self._syncs: list[Template] = []
        self.generation = NO_NUMBER

    @property
    def first_member(self) -> str:
        """Some member."""
        return self._members[0]

    async def form(self) -> None:
        """All members come, and one becomes the leader, for good."""
        request = {
            "group_id": self._name,
            "session_timeout": timedelta(minutes=30),
            "rebalance_timeout": timedelta(seconds=60),
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        }
        for caller in self._callers:
            named = await caller.ask_until(ApiKey.JOIN_GROUP, {**request, "member_id": ""}, _error_of)
            self._members.append(named.member_id)
        asked = [
            caller.ask(ApiKey.JOIN_GROUP, {**request, "member_id": member})
            for caller, member in zip(self._callers, self._members, strict=True)
        ]
        joined = await asyncio.gather(*asked)
        if len(self._members) != sum(len(each.members) for each in joined):
            raise RuntimeError("not all members came in time")
        assignments = [{"member_id": member, "assignment": b"assigned"} for member in self._members]
        version = VERSIONS[ApiKey.JOIN_GROUP]
        for member, each in zip(self._members, joined, strict=True):
            self._joins.append(bytearray(request_frame(ApiKey.JOIN_GROUP, version, {**request, "member_id": member})))
            values = {
                "group_id": self._name,
                "generation_id": int.from_bytes(GENERATION, "big"),
                "member_id": member,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": assignments if each.leader == member else [],
            }
            self._syncs.append(Template(ApiKey.SYNC_GROUP, VERSIONS[ApiKey.SYNC_GROUP], values, GENERATION))
        await self._sync(joined[0].generation_id.to_bytes(4, "big"))

    async def rebalance(self) -> None:
        """One more generation."""
        answers = await asyncio.gather(
            *(caller.send(frame) for caller, frame in zip(self._callers, self._joins, strict=True))
        )
        for answer in answers:
            _check_answer(answer)
        await self._sync(answers[0][ERROR_AT + 2 : ERROR_AT + 6])

    async def _sync(self, generation: bytes) -> None:
        self.generation = generation
        answers = await asyncio.gather(
            *(
                caller.send(sync.with_numbers(generation))
                for caller, sync in zip(self._callers, self._syncs, strict=True)
            )
        )
        for answer in answers:
            _check_answer(answer)


class Producer:
    """Transactions of one batch in one partition, one after another, of protocol version 1 or 2."""

    def __init__(self, broker: Broker, version: int) -> None:
        self._caller = Caller(broker)
        self._version = version
        self._name = f"transactions-{version}"
        who = {
            "transactional_id": self._name,
            "producer_id": int.from_bytes(PRODUCER, "big"),
            "producer_epoch": int.from_bytes(EPOCH, "big"),
        }
        added = {**who, "topics": [{"name": TOPIC, "partitions": (0,)}]}
        added |= {f"v3_and_below_{key}": value for key, value in added.items()}
        end_version = 4 if version == 1 else 5
        self._add = Template(
            ApiKey.ADD_PARTITIONS_TO_TXN, VERSIONS[ApiKey.ADD_PARTITIONS_TO_TXN], added, PRODUCER + EPOCH
        )
        self._end = Template(ApiKey.END_TXN, end_version, {**who, "committed": True}, PRODUCER + EPOCH)
        batch = self._batch(-1, -1, 0)
        values = {
            "transactional_id": self._name,
            "acks": -1,
            "timeout": timedelta(seconds=30),
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}],
        }
        self._produce = Template(ApiKey.PRODUCE, 11 if version == 1 else 12, values, batch)
        self._id, self._epoch, self._sequence = -1, -1, 0

    @staticmethod
    def _batch(producer_id: int, epoch: int, sequence: int) -> bytes:
        builder = BatchBuilder(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
        for _ in range(RECORDS):
            builder.append(1_700_000_000_000, None, bytes(RECORD_BYTES))
        return bytes(builder.build())

    async def begin(self) -> None:
        """Takes the transactional id."""
        wanted = {"transactional_id": self._name, "transaction_timeout": timedelta(minutes=1)}
        answer = await self._caller.ask_until(
            ApiKey.INIT_PRODUCER_ID, {**wanted, "producer_id": -1, "producer_epoch": -1}, _error_of
        )
        _check(int(answer.error_code))
        self._id, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0

    async def transact(self) -> None:
        """One transaction."""
        who = self._id.to_bytes(8, "big", signed=True) + self._epoch.to_bytes(2, "big", signed=True)
        if self._version == 1:
            answer = await self._caller.send(self._add.with_numbers(who))
            _check(int.from_bytes(answer[-5:-3], "big"))
        batch = self._batch(self._id, self._epoch, self._sequence)
        answer = await self._caller.send(self._produce.with_numbers(batch))
        name_end = CORRELATION_END + 1 + 1 + 1 + len(TOPIC)
        _check(int.from_bytes(answer[name_end + 1 + 4 : name_end + 1 + 6], "big"))
        answer = await self._caller.send(self._end.with_numbers(who))
        _check_answer(answer)
        if self._version == 1:
            self._sequence += RECORDS
        else:
            self._id = int.from_bytes(answer[ERROR_AT + 2 : ERROR_AT + 10], "big")
            self._epoch = int.from_bytes(answer[ERROR_AT + 10 : ERROR_AT + 12], "big")


class Bench:
    """The broker, and what is asked of it."""

    def __init__(self, broker: Broker) -> None:
        self._caller = Caller(broker)
        self._single = Group(broker, "single", 1)
        self._group = Group(broker, "group", MEMBERS)
        self._producers = {version: Producer(broker, version) for version in (1, 2)}

    async def prepare(self) -> None:
        """Makes the topic, and has both coordinators at work."""
        topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}
        await self._caller.ask(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": timedelta(seconds=30)})
        for key_type in (0, 1):
            wanted = {"key_type": key_type, "coordinator_keys": ("bench",)}
            await self._caller.ask_until(
                ApiKey.FIND_COORDINATOR, wanted, lambda answer: int(answer.coordinators[0].error_code)
            )
        await self._single.form()
        await self._group.form()
        for producer in self._producers.values():
            await producer.begin()

    async def heartbeat(self) -> float:
        """Heartbeats of the one member of a group."""
        values = {
            "group_id": "single",
            "generation_id": int.from_bytes(self._single.generation, "big"),
            "member_id": self._single.first_member,
        }
        frame = bytearray(request_frame(ApiKey.HEARTBEAT, VERSIONS[ApiKey.HEARTBEAT], values))
        _check_answer(await self._caller.send(frame))
        return await self._repeat(frame)

    async def commit(self, partitions: int) -> float:
        """Commits for the first `partitions` partitions."""
        offsets = [
            {"partition_index": number, "committed_offset": 123_456, "committed_metadata": ""}
            for number in range(partitions)
        ]
        values = {
            "group_id": f"commits-{partitions}",
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": TOPIC, "partitions": offsets}],
        }
        version = VERSIONS[ApiKey.OFFSET_COMMIT]
        frame = bytearray(request_frame(ApiKey.OFFSET_COMMIT, version, values))
        answer = await self._caller.send(frame)
        _check(read_response(ApiKey.OFFSET_COMMIT, version, answer[4:])[1].topics[0].partitions[0].error_code)
        return await self._repeat(frame)

    async def _repeat(self, frame: bytearray) -> float:
        for _ in range(OPERATIONS):
            await self._caller.send(frame)
        return OPERATIONS

    async def rebalance(self) -> float:
        """All members of a group join and sync again; each of them counts."""
        for _ in range(REBALANCES):
            await self._group.rebalance()
        return REBALANCES * MEMBERS

    async def transact(self, version: int) -> float:
        """Transactions of a producer."""
        for _ in range(TRANSACTIONS):
            await self._producers[version].transact()
        return TRANSACTIONS


def _error_of(answer: Any) -> int:
    return int(answer.error_code)


def _check_answer(answer: bytes) -> None:
    """Of an API whose error stands behind the throttle time."""
    _check(int.from_bytes(answer[ERROR_AT : ERROR_AT + 2], "big"))


def _check(error: Any) -> None:
    if int(error) != 0:
        raise RuntimeError(f"the broker answered with error {int(error)}")


def run(quick: bool = False) -> list[Result]:
    """One comparison."""
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        # The delay has the members of a new group find each other; it ends before the clock starts.
        delay = {"group.initial.rebalance.delay.ms": "1000"}
        settings = {"log.dirs": folder, "listeners": "PLAINTEXT://127.0.0.1:0", **delay}
        broker = Broker(BrokerConfig.parse(settings))
        bench = loop.run_until_complete(_started(broker))
        try:
            rivals: dict[str, Callable[[], Coroutine[Any, Any, float]]] = {
                "heartbeat": bench.heartbeat,
                "commit, 1 partition": lambda: bench.commit(1),
                f"commit, {PARTITIONS} partitions": lambda: bench.commit(PARTITIONS),
                f"rebalance, each of {MEMBERS} members": bench.rebalance,
                "transaction, version 1": lambda: bench.transact(1),
                "transaction, version 2": lambda: bench.transact(2),
            }
            return [
                interleaved(
                    {name: _in(loop, made) for name, made in rivals.items()},
                    title="a coordinator's work, without sockets, for each second of CPU time",
                    unit="operations",
                    baseline="heartbeat",
                    quick=quick,
                    clock=time.process_time,
                )
            ]
        finally:
            loop.run_until_complete(broker.stop())
            loop.close()


async def _started(broker: Broker) -> Bench:
    await broker.start()
    bench = Bench(broker)
    await bench.prepare()
    return bench


def _in(loop: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, float]]) -> Callable[[], float]:
    return lambda: loop.run_until_complete(make())


if __name__ == "__main__":
    report(run())
