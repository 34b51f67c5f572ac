"""The only writer of the topic `_schemas`: a transactional producer that fences every writer before it.

All instances of a registry use the same transactional id. `open` registers it, which aborts the open transaction of the
previous leader and refuses everything that it sends later, whatever it believes. `write` returns when its records are
committed. After any error the outcome is unknown and the writer must be closed: the next one settles it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ottla.client.errors import AnswerError
from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.registry.service.schemas_topic import RECORD_BYTES_MAX

KeyAndValue = tuple[bytes, bytes | None]

_TIMEOUT_MS: Final = 30_000
"""How long a write may take, and after how long the coordinator aborts the transaction of a dead leader."""

_NO_TRANSACTIONS: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    }
)


class TransactionsNotSupportedError(OttlaError):
    """The cluster refuses transactions, so a registry on it cannot make sure that it has one leader."""


class SchemasWriter:
    """One at a time: only one task may call `write`. Without `transactional_id` nothing is fenced."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        transactional_id: str | None,
        client_id: str,
        client_options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._topic = topic
        self._producer = AsyncProducer(
            bootstrap_servers=bootstrap,
            client_id=client_id,
            **client_options,
            transactional_id=transactional_id,
            transaction_timeout_ms=_TIMEOUT_MS,
            delivery_timeout_ms=_TIMEOUT_MS,
            request_timeout_ms=_TIMEOUT_MS // 2,
            max_block_ms=_TIMEOUT_MS,
            max_request_size=RECORD_BYTES_MAX,
            compression_type="gzip",
            linger_ms=0,
        )
        self._is_transactional = transactional_id is not None

    async def open(self) -> None:
        """Fences all earlier writers. When it returns, their transactions are committed or aborted.

        Raises `TransactionsNotSupportedError`.
        """
        await self._producer.start()
        if self._is_transactional:
            try:
                await self._producer.init_transactions()
            except OttlaError as error:
                cause = error.__cause__ if isinstance(error.__cause__, AnswerError) else error
                refused = isinstance(cause, AnswerError) and cause.error_code in _NO_TRANSACTIONS
                if refused or error.code is ErrorCode.UNSUPPORTED_VERSION:
                    raise TransactionsNotSupportedError(
                        f"the cluster refuses the transactions of the registry: {error}; allow WRITE on its"
                        " transactional id, or start the only instance with --no-transactions"
                    ) from error
                raise

    async def write(self, records: Sequence[KeyAndValue]) -> int:
        """Writes all records or none; returns the offset after the last one."""
        if self._is_transactional:
            self._producer.begin_transaction()
        deliveries = [await self._producer.send(self._topic, value, key, partition=0) for key, value in records]
        written = await asyncio.gather(*deliveries)
        if self._is_transactional:
            await self._producer.commit_transaction()
        return max(each.offset for each in written) + 1

    async def close(self) -> None:
        """Closes the connections. A transaction that is still open is aborted by the next writer."""
        await self._producer.close(timeout=0)
