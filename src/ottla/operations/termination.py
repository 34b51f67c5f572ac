"""Ends the open transaction of a transactional id, as `Admin.forceTerminateTransaction` of Java's client does."""

from collections.abc import Callable

from ottla.client.admin.transaction_requests import TransactionDescription, describe_transaction
from ottla.client.network.cluster import Cluster
from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.errors import InvalidRequestError


class NothingToTerminateError(InvalidRequestError):
    """The transactional id has no open transaction."""


async def terminate_transaction(
    cluster: Cluster, transactional_id: str, new_producer: Callable[[str], AsyncProducer]
) -> TransactionDescription:
    """Fences the producer of the id: the coordinator aborts its transaction in all partitions. Returns what was open.

    `new_producer` gets the transactional id. Raises `NothingToTerminateError`, and `AnswerError` with
    TRANSACTIONAL_ID_NOT_FOUND.
    """
    found = await describe_transaction(cluster, transactional_id)
    if not found.is_under_way:
        raise NothingToTerminateError(f"transactional id {transactional_id} has no open transaction ({found.state})")
    async with new_producer(transactional_id) as producer:
        await producer.init_transactions()
    return found
