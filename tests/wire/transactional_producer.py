"""A producer with a transactional id, step by step, in whatever versions a test wants."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from ottla.records.builder import BatchBuilder
from tests.waiting import tries
from tests.wire.exchange import RawConnection
from tests.wire.world import FIRST_TIMESTAMP, TIMEOUT, unused_name

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
_SOON: Final = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
"""A coordinator is being made, or ends a transaction: Kafka answers before that is through."""
_ENDING: Final = ErrorCode.concurrent_transactions
BATCHED_SINCE: Final = 4
"""From this version of AddPartitionsToTxn on, a request has several transactions."""


def find_coordinator(connection: RawConnection, key: str, key_type: int) -> None:
    """Returns when there is a coordinator that can be asked; the first ever has its topic made."""
    for _ in tries():
        request = {"key_type": key_type, "coordinator_keys": [key]}
        (found,) = connection.ask_newest(ApiKey.FIND_COORDINATOR, request).coordinators
        if ErrorCode.none is found.error_code:
            return
        assert ErrorCode.coordinator_not_available is found.error_code, found


def transactional_batch(
    producer_id: int, epoch: int, sequence: int = 0, *values: bytes, transactional: bool = True
) -> bytes:
    """A batch with these records, one unless told."""
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )
    for value in values or (b"value",):
        builder.append(FIRST_TIMESTAMP, b"key", value)
    return builder.build()


class TransactionalProducer:
    """Knows its producer id and epoch; each method asks one thing and answers the error, or more."""

    def __init__(self, connection: RawConnection, transactional_id: str | None = None) -> None:
        self.connection = connection
        self.transactional_id = transactional_id or unused_name()
        find_coordinator(connection, self.transactional_id, TRANSACTION_KEY)
        for _ in tries():
            answer = self.init()
            if ErrorCode.none is answer.error_code:
                break
            assert answer.error_code in _SOON, answer
        self.producer_id: int = answer.producer_id
        self.epoch: int = answer.producer_epoch

    @property
    def identity(self) -> dict[str, Any]:
        """Who it is, for a request."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def init(self, version: int = 4, **values: Any) -> Any:
        """InitProducerId's response."""
        request = {"transactional_id": self.transactional_id, "transaction_timeout": TIMEOUT, **values}
        return self.connection.ask(ApiKey.INIT_PRODUCER_ID, version, request)

    def add(self, topic: str, indexes: Sequence[int], version: int = 3, **values: Any) -> list[ErrorCode]:
        """AddPartitionsToTxn for partitions of one topic; asked again while the last transaction is being ended."""
        for _ in tries():
            errors = self._add(topic, indexes, version, **values)
            if errors != [_ENDING] * len(indexes):
                break
        return errors

    def _add(self, topic: str, indexes: Sequence[int], version: int, **values: Any) -> list[ErrorCode]:
        transaction = {**self.identity, "topics": [{"name": topic, "partitions": list(indexes)}], **values}
        request = {f"v3_and_below_{name}": value for name, value in transaction.items()}
        request["transactions"] = [transaction]
        answer = self.connection.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, request)
        if version >= BATCHED_SINCE:
            assert ErrorCode.none is answer.error_code
            (result,) = answer.results_by_transaction
            assert transaction["transactional_id"] == result.transactional_id
            (found,) = result.topic_results
        else:
            (found,) = answer.results_by_topic_v3_and_below
        assert topic == found.name
        errors = {each.partition_index: each.partition_error_code for each in found.results_by_partition}
        return [errors[index] for index in indexes]

    def add_offsets(self, group_id: str, version: int = 3, **values: Any) -> ErrorCode:
        """AddOffsetsToTxn."""
        request = {**self.identity, "group_id": group_id, **values}
        error: ErrorCode = self.connection.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, request).error_code
        return error

    def send(
        self,
        topic: str,
        topic_id: UUID,
        content: bytes | None = None,
        *,
        index: int = 0,
        version: int = 9,
        **values: Any,
    ) -> tuple[ErrorCode, int]:
        """(error, base offset) of a batch, its first unless one is given."""
        content = transactional_batch(self.producer_id, self.epoch) if content is None else content
        data = [{"name": topic, "topic_id": topic_id, "partition_data": [{"index": index, "records": content}]}]
        request = {"transactional_id": self.transactional_id, "acks": -1, "timeout": TIMEOUT, "topic_data": data}
        answer = self.connection.ask(ApiKey.PRODUCE, version, {**request, **values})
        (part,) = answer.responses[0].partition_responses
        return part.error_code, part.base_offset

    def commit_offsets(
        self,
        group_id: str,
        topic: str,
        offsets: Sequence[tuple[int, int]],
        version: int = 3,
        topic_id: UUID | None = None,
        **values: Any,
    ) -> list[ErrorCode]:
        """TxnOffsetCommit of (partition, offset); from version 6 on by the topic's id."""
        parts = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": "wire"}
            for index, offset in offsets
        ]
        topics = [{"name": topic, "topic_id": topic_id, "partitions": parts}]
        request = {**self.identity, "group_id": group_id, "topics": topics, **values}
        (found,) = self.connection.ask(ApiKey.TXN_OFFSET_COMMIT, version, request).topics
        assert (topic_id if version >= 6 else topic) == (found.topic_id if version >= 6 else found.name)
        errors = {part.partition_index: part.error_code for part in found.partitions}
        return [errors[index] for index, _ in offsets]

    def end(self, *, commit: bool, version: int = 3, **values: Any) -> ErrorCode:
        """EndTxn; from version 5 on it goes on as it is told."""
        answer = self.connection.ask(ApiKey.END_TXN, version, {**self.identity, "committed": commit, **values})
        if version >= 5 and ErrorCode.none is answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        error: ErrorCode = answer.error_code
        return error


def stable_part(connection: RawConnection, topic_id: UUID, index: int = 0) -> Any:
    """What a reader of committed records finds in a partition, from its start."""
    part = {"partition": index, "fetch_offset": 0, "partition_max_bytes": 2**20, "log_start_offset": -1}
    request = {
        "max_bytes": 2**20,
        "isolation_level": 1,
        "session_epoch": -1,
        "topics": [{"topic_id": topic_id, "partitions": [part]}],
    }
    (found,) = connection.ask_newest(ApiKey.FETCH, request).responses[0].partitions
    assert ErrorCode.none is found.error_code
    return found


def stable_offset(connection: RawConnection, topic_id: UUID, index: int = 0) -> int:
    """Below it every transaction is decided."""
    return int(stable_part(connection, topic_id, index).last_stable_offset)


def wait_stable(connection: RawConnection, topic_id: UUID, offset: int, index: int = 0) -> None:
    """Returns once every transaction below an offset is decided: markers come a little after EndTxn's answer."""
    for _ in tries():
        found = stable_offset(connection, topic_id, index)
        if found == offset:
            return
        assert found < offset
