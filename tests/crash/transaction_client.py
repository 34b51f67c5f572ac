"""A transactional producer, request by request over a raw connection, as clients of two generations speak.

Those before version 2 of transactions name their partitions before they write, and keep their epoch; those of version 2
just write, and get a new epoch at each end. Answers are given as they come: what a client would do about them is the
test's to say.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import scan
from ottla.records.builder import BatchBuilder
from ottla.records.decode import decode_records
from tests.wire.exchange import RawConnection
from tests.wire.world import TIMEOUT

VERSIONS: Final = {1: {"produce": 11, "offsets": 4, "end": 4}, 2: {"produce": 12, "offsets": 5, "end": 5}}
"""The newest requests of each generation."""
FETCH_VERSION: Final = 12
FETCH_BYTES: Final = 1 << 20
TRANSACTION_KEY: Final = 1
GROUP_KEY: Final = 0
BUSY: Final = (ErrorCode.concurrent_transactions, ErrorCode.coordinator_load_in_progress)


@dataclass(slots=True, kw_only=True)
class TransactionClient:
    """One producer; `version` is the generation it is of, which has an older TxnOffsetCommit if it says so."""

    address: str
    transactional_id: str
    version: int
    timeout: timedelta = timedelta(seconds=60)
    offsets_version: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def _who(self) -> dict[str, Any]:
        who = {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}
        return {"transactional_id": self.transactional_id, **who}

    def init(self) -> None:
        """Takes the id over; waits until what was open under it is ended."""
        with RawConnection(self.address) as connection:
            find_coordinator(connection, TRANSACTION_KEY, self.transactional_id)
            new = {"producer_id": -1, "producer_epoch": -1, "transaction_timeout": self.timeout}
            while True:
                values = {"transactional_id": self.transactional_id, **new}
                answer = connection.ask(ApiKey.INIT_PRODUCER_ID, 5, values)
                if answer.error_code not in BUSY:
                    break
        assert ErrorCode.none is answer.error_code
        self.producer_id, self.producer_epoch = int(answer.producer_id), int(answer.producer_epoch)
        self.sequences.clear()

    def send(self, topic: str, partition: int, *values: bytes) -> ErrorCode:
        """One batch; a client of the first generation adds the partition before."""
        if self.version == 1 and (error := self.add(topic, partition)) is not ErrorCode.none:
            return error
        sequence = self.sequences.get((topic, partition), 0)
        builder = BatchBuilder(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        now_ms = int(time.time() * 1000)
        for value in values:
            builder.append(now_ms, None, value)
        parts = [{"index": partition, "records": bytes(builder.build())}]
        request = {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout": TIMEOUT,
            "topic_data": [{"name": topic, "partition_data": parts}],
        }
        while True:
            answer = self._ask(ApiKey.PRODUCE, VERSIONS[self.version]["produce"], request)
            error = answer.responses[0].partition_responses[0].error_code
            if error not in BUSY:
                break
        if error is ErrorCode.none:
            self.sequences[topic, partition] = sequence + len(values)
        return _code(error)

    def add(self, topic: str, *partitions: int) -> ErrorCode:
        """Partitions join the transaction; the first error there is."""
        request = {
            **{f"v3_and_below_{name}": value for name, value in self._who.items()},
            "v3_and_below_topics": [{"name": topic, "partitions": list(partitions)}],
        }
        while True:
            answer = self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
            (found,) = answer.results_by_topic_v3_and_below
            error = _first(part.partition_error_code for part in found.results_by_partition)
            if error not in BUSY:
                return error

    def send_offsets(self, group: str, topic: str, offsets: dict[int, int]) -> ErrorCode:
        """The group's offsets, which are true if the transaction is committed."""
        if self.version == 1:
            added = self._ask(ApiKey.ADD_OFFSETS_TO_TXN, 4, {**self._who, "group_id": group}).error_code
            if added is not ErrorCode.none:
                return _code(added)
        parts = [
            {"partition_index": index, "committed_offset": offset, "committed_leader_epoch": -1}
            for index, offset in offsets.items()
        ]
        member = {"group_id": group, "generation_id": -1, "member_id": "", "group_instance_id": None}
        request = {**self._who, **member, "topics": [{"name": topic, "partitions": parts}]}
        version = VERSIONS[self.version]["offsets"] if self.offsets_version is None else self.offsets_version
        answer = self._ask(ApiKey.TXN_OFFSET_COMMIT, version, request)
        return _first(part.error_code for each in answer.topics for part in each.partitions)

    def end(self, *, commit: bool) -> ErrorCode:
        """Commits or aborts, and takes over the epoch that it is given."""
        request = {**self._who, "committed": commit}
        while True:
            answer = self._ask(ApiKey.END_TXN, VERSIONS[self.version]["end"], request)
            if answer.error_code not in BUSY:
                break
        if answer.error_code is ErrorCode.none and self.version >= 2:
            self.producer_id, self.producer_epoch = int(answer.producer_id), int(answer.producer_epoch)
            self.sequences.clear()
        return _code(answer.error_code)

    def _ask(self, api_key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        with RawConnection(self.address) as connection:
            return connection.ask(api_key, version, values)


def find_coordinator(connection: RawConnection, key_type: int, key: str) -> None:
    """Asks who coordinates; the first who ever asks has the topic made."""
    request = {"key_type": key_type, "coordinator_keys": [key]}
    while True:
        (found,) = connection.ask(ApiKey.FIND_COORDINATOR, 4, request).coordinators
        if found.error_code is not ErrorCode.coordinator_not_available:
            assert ErrorCode.none is found.error_code, found.error_message
            return


def values_of(address: str, topic: str, partition: int, *, is_committed: bool = True) -> list[bytes]:
    """The values of a partition's records, for a reader who wants only committed ones or for one who takes all."""
    values: list[bytes] = []
    offset = 0
    with RawConnection(address) as connection:
        while True:
            found = _fetch(connection, topic, partition, offset, is_committed=is_committed)
            aborted = AbortedTransactions(
                (each.producer_id, each.first_offset) for each in found.aborted_transactions or ()
            )
            batches, _, _ = scan(found.records or b"")
            for batch in batches:
                if not aborted.covers(batch) and not batch.is_control:
                    values += [bytes(record.value or b"") for record in decode_records(batch)]
            if not batches:
                return values
            offset = batches[-1].next_offset


def _fetch(connection: RawConnection, topic: str, partition: int, offset: int, *, is_committed: bool) -> Any:
    part = {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": FETCH_BYTES,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
    }
    request = {
        "replica_id": -1,
        "max_wait": timedelta(0),
        "max_bytes": FETCH_BYTES,
        "isolation_level": int(is_committed),
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [part]}],
    }
    (found,) = connection.ask(ApiKey.FETCH, FETCH_VERSION, request).responses[0].partitions
    assert ErrorCode.none is found.error_code
    return found


def _first(codes: Any) -> ErrorCode:
    return next((_code(code) for code in codes if code is not ErrorCode.none), ErrorCode.none)


def _code(code: Any) -> ErrorCode:
    return ErrorCode(code)


def committed_values(address: str, topic: str, partitions: Sequence[int]) -> list[list[bytes]]:
    """`values_of` several partitions, for a reader who wants only committed ones."""
    return [values_of(address, topic, partition) for partition in partitions]
