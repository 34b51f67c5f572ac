"""Finds the outcome of a transaction in the log.

A coordinator only knows the last transaction of a transactional id, and forgets it when the id is initialized again.
The log has the first record of the transaction, and a read_committed fetch returns the aborted transactions.
"""

from typing import Final

from ottla.client.admin.transaction_outcome import TransactionOutcome
from ottla.client.errors import answer_error
from ottla.client.network.cluster import Cluster
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.fetch_frames import READ_COMMITTED, VERSION, Wanted, fetch_body, read_fetch_answer
from ottla.records.layout import BASE_OFFSET_AT, COUNT_AT, PRODUCER_ID_AT

_BYTES: Final = 1
"""A leader returns at least one whole batch."""


async def inspect_transaction(
    cluster: Cluster, partition: TopicPartition, first_offset: int, producer_id: int
) -> TransactionOutcome:
    """The outcome of the producer's transaction whose first record in that partition has this offset.

    Sends one request, without retries. Raises `AnswerError` and connection errors.
    """
    connection = await cluster.broker_connection(await cluster.leader_of(partition))
    wanted = [Wanted(partition, first_offset, _BYTES)]
    body = fetch_body(wanted, isolation_level=READ_COMMITTED, wait_ms=0, bytes_min=0, bytes_max=_BYTES)
    frame = await connection.request_bytes(ApiKey.FETCH, VERSION, body, timeout_ms=cluster.request_timeout_ms)
    (found,) = read_fetch_answer(frame)
    if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return TransactionOutcome.UNKNOWN
    if found.error_code:
        raise answer_error(found.error_code, f"looking at offset {first_offset} of {partition}")
    if found.last_stable_offset <= first_offset:
        return TransactionOutcome.OPEN
    if (producer_id, first_offset) in found.aborted:
        return TransactionOutcome.ABORTED
    is_there = _begins_with(found.records, first_offset, producer_id)
    return TransactionOutcome.COMMITTED if is_there else TransactionOutcome.UNKNOWN


def _begins_with(records: memoryview, offset: int, producer_id: int) -> bool:
    """Whether the first batch is the one that was written there; compaction or retention may have removed it."""
    if len(records) < COUNT_AT:
        return False
    base_offset = int.from_bytes(records[BASE_OFFSET_AT : BASE_OFFSET_AT + 8], "big", signed=True)
    writer = int.from_bytes(records[PRODUCER_ID_AT : PRODUCER_ID_AT + 8], "big", signed=True)
    return base_offset == offset and writer == producer_id
