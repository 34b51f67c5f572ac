"""One Produce request: sent on a connection, and its response as the result of each partition."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from ottla.client.errors import answer_error
from ottla.model.buffer import Buffer
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.produce_frames import VERSION_MAX, VERSION_MIN, Produced, produce_body, read_produce_answer
from ottla.transport.client_connection import Connection

ACKS_NONE: Final = 0

ProduceResponse = asyncio.Future[memoryview] | asyncio.Task[None]
"""The frame of the response; None if no acknowledgement was requested."""


def send_produce(
    connection: Connection,
    batches: Sequence[tuple[TopicPartition, Buffer]],
    *,
    acks: int,
    timeout_ms: int,
    answer_timeout_ms: int,
    transactional_id: str | None = None,
    version_max: int = VERSION_MAX,
) -> ProduceResponse:
    """Sends one batch for each partition; batches of one topic must be neighbours.

    The broker gets `timeout_ms` for replication; the response must arrive within `answer_timeout_ms`. With `acks=0` the
    future is done when the request was written to the socket. Raises `AnswerError` if the broker is too old.
    """
    version = connection.version_for(ApiKey.PRODUCE, version_max)
    if version < VERSION_MIN:
        raise answer_error(
            ErrorCode.UNSUPPORTED_VERSION, f"broker {connection.address} supports Produce up to v{version} only"
        )
    body = produce_body(batches, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id)
    if acks == ACKS_NONE:
        connection.send_unanswered(ApiKey.PRODUCE, version, body)
        return asyncio.ensure_future(connection.wait_sent())
    return connection.request_bytes(ApiKey.PRODUCE, version, body, timeout_ms=answer_timeout_ms)


def read_produced(frame: memoryview | None, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Produced]:
    """The result of each partition; without a response (`acks=0`) a success with unknown offset.

    A partition that the response leaves out failed with NETWORK_EXCEPTION. Raises `BrokenAnswerError`.
    """
    if frame is None:
        return {each: Produced(each, 0, -1, -1, None) for each in partitions}
    missing = {
        each: Produced(each, ErrorCode.NETWORK_EXCEPTION, -1, -1, "missing in the response") for each in partitions
    }
    return missing | {each.partition: each for each in read_produce_answer(frame)}
