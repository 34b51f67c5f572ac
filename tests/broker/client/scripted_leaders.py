"""Two scripted brokers that lead one topic of one partition between them, and do with each batch what a test says."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Literal
from uuid import UUID

from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import wire_error, write_response
from ottla.records.batch import Batch
from ottla.records.decode import decode_records
from ottla.transport.addresses import Address
from tests.broker.client.scripted_broker import NEVER, request_message, response, scripted, versions_answer

TOPIC = "t"

Fate = ErrorCode | Literal["written", "silence", "hang", "hang up", "written, hang up", "nonsense", "hint"]
"""What happens to a batch; "hint" refuses it and names the other broker as leader, "hang" is the broker's last."""


class ScriptedLeaders:
    """`fates` are used up one by one; without any, batches are written. `leader` is what the metadata says."""

    def __init__(self) -> None:
        self.addresses: list[Address] = []
        self.leader = 0
        self.leader_epoch = 1
        self.fates: deque[Fate] = deque()
        self.silent: set[ApiKey] = set()
        self.hung: set[int] = set()
        """Brokers that answer nothing, whatever they are asked."""
        self.gone: set[int] = set()
        """Brokers that the metadata leaves out."""
        self.topic_error = ErrorCode.NONE
        self.topic_id: UUID | None = None
        self.log: list[bytes] = []
        self.attempts: list[tuple[int, int, int]] = []
        """(broker, producer epoch, base sequence) of each batch that came."""
        self.metadata_asked = 0
        self._asked = asyncio.Event()
        self._epoch, self._next_sequence = -1, 0
        self._offsets: dict[tuple[int, int], int] = {}

    async def wait_metadata_asked(self, times: int) -> None:
        """Returns when the metadata was asked for so many times more."""
        wanted = self.metadata_asked + times
        while self.metadata_asked < wanted:
            self._asked.clear()
            await self._asked.wait()

    def answer(self, broker: int, api_key: int, version: int, correlation_id: int, body: bytes) -> bytes | None:
        """What a broker says to one request."""
        key = ApiKey(api_key)
        if broker in self.hung:
            return None
        if key is ApiKey.API_VERSIONS:
            return versions_answer(version, correlation_id)
        if key in self.silent:
            return None
        match key:
            case ApiKey.METADATA:
                self.metadata_asked += 1
                self._asked.set()
                found = self._metadata()
            case ApiKey.INIT_PRODUCER_ID:
                found = self._identity()
            case ApiKey.PRODUCE:
                return self._produce(broker, version, correlation_id, request_message(key, version, body))
            case _:
                return b""
        return write_response(key, version, correlation_id, found)

    def _produce(self, broker: int, version: int, correlation_id: int, message: Any) -> bytes | None:
        batch = Batch(message.topic_data[0].partition_data[0].records)
        batch.check()
        self.attempts.append((broker, int(batch.producer_epoch), int(batch.base_sequence)))
        fate = self.fates.popleft() if self.fates else "written"
        if broker != self.leader and fate == "written":
            fate = ErrorCode.NOT_LEADER_OR_FOLLOWER
        number = int(batch.producer_epoch), int(batch.base_sequence)
        if number[1] < 0:
            # Without idempotence nobody knows a batch again.
            number = (-1, -len(self.log) - 1)
            self._epoch, self._next_sequence = number
        base = self._offsets.get(number, len(self.log))
        if fate in ("written", "written, hang up") and number not in self._offsets:
            if number != (self._epoch, self._next_sequence) and number[1] != 0:
                return self._produced(version, correlation_id, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
            self._offsets[number] = base
            self._epoch, self._next_sequence = number[0], number[1] + batch.count
            self.log += [bytes(record.value or b"") for record in decode_records(batch)]
        match fate:
            case "hang":
                # From now on: whoever is silent to one question answers no later one on the same connection either.
                self.hung.add(broker)
                return None
            case "silence":
                return NEVER
            case "hang up" | "written, hang up":
                return b""
            case "nonsense":
                return b"\0\0\0\x06" + correlation_id.to_bytes(4, "big") + b"\0\xff"
            case "hint":
                self.leader, self.leader_epoch = 1 - broker, self.leader_epoch + 1
                return self._produced(version, correlation_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, hint=True)
            case ErrorCode():
                return self._produced(version, correlation_id, fate, -1)
        return self._produced(version, correlation_id, ErrorCode.NONE, base)

    def _produced(self, version: int, correlation_id: int, code: ErrorCode, base: int, *, hint: bool = False) -> bytes:
        part: dict[str, Any] = {"index": 0, "error_code": wire_error(code), "base_offset": base}
        if hint:
            part["current_leader"] = {"leader_id": self.leader, "leader_epoch": self.leader_epoch}
        answer = response(ApiKey.PRODUCE, 12, responses=[{"name": TOPIC, "partition_responses": [part]}])
        return write_response(ApiKey.PRODUCE, version, correlation_id, answer)

    def _metadata(self) -> Any:
        brokers = [
            {"node_id": number, "host": address.host, "port": address.port}
            for number, address in enumerate(self.addresses)
            if number not in self.gone
        ]
        part = {"partition_index": 0, "leader_id": self.leader, "leader_epoch": self.leader_epoch}
        topic = {
            "error_code": wire_error(self.topic_error),
            "name": TOPIC,
            "topic_id": self.topic_id,
            "partitions": [] if self.topic_error else [part],
        }
        return response(ApiKey.METADATA, 13, brokers=brokers, topics=[topic])

    @staticmethod
    def _identity() -> Any:
        return response(ApiKey.INIT_PRODUCER_ID, 5, producer_id=9, producer_epoch=0)


@asynccontextmanager
async def scripted_leaders() -> AsyncIterator[ScriptedLeaders]:
    """Both listen for as long as the block runs."""
    leaders = ScriptedLeaders()
    async with AsyncExitStack() as stack:
        for number in (0, 1):
            _, address = await stack.enter_async_context(scripted(partial(leaders.answer, number)))
            leaders.addresses.append(address)
        yield leaders
