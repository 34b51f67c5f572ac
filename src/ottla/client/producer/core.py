"""The parts of a producer put together, and the operations that concern all of them: flush, close, metrics.

The coroutines run in the sender's event loop. Both producers have a core: `async_producer.py` in the program's event
loop, `blocking_producer.py` in a thread.
"""

import asyncio
from contextlib import suppress
from threading import Lock
from typing import Any

from ottla.client.errors import DeadlineError
from ottla.client.loop_thread import LoopThread
from ottla.client.network.cluster import Cluster
from ottla.client.producer.batching.accumulator_state import AccumulatorState, Finished
from ottla.client.producer.errors import ProducerClosedError, producer_closed
from ottla.client.producer.interceptors import InterceptorChain
from ottla.client.producer.options import ProducerConfig
from ottla.client.producer.send_path import SendPath
from ottla.client.producer.sender import Sender
from ottla.client.producer.transactions.producer_transactions import ProducerTransactions
from ottla.model.errors import MisuseError, OttlaError
from ottla.transport.addresses import parse_bootstrap


class ProducerCore:
    """One for each producer. `thread` runs the sender's event loop for a blocking producer.

    `home` is the id of that thread, in which deliveries must not be waited for.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        is_async: bool,
        thread: LoopThread | None = None,
        home: int = 0,
        cluster: Cluster | None = None,
    ) -> None:
        bootstrap = config.bootstrap_servers
        self.config = config
        self.cluster = cluster or Cluster(
            parse_bootstrap(bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)),
            client_id=config.client_id,
            connect_timeout_ms=config.socket_connection_setup_timeout_ms,
            request_timeout_ms=config.request_timeout_ms,
            backoff=config.backoff,
            security=config.security,
        )
        self.lock = Lock()
        self.accumulator = AccumulatorState(config.limits(is_async=is_async), self.cluster.random, home=home)
        self.sender = Sender(
            self.cluster,
            self.accumulator,
            self.lock,
            config,
            on_finished=self._on_finished,
            on_turn=self._on_turn,
        )
        self.interceptors = InterceptorChain(config.interceptors)
        self._transactions: ProducerTransactions | None = None
        if config.transactional_id is not None:
            self._transactions = ProducerTransactions(
                config.transactional_id, self.accumulator, self.lock, self.sender, config, self.flush
            )
            self.sender.describe_new_owner = self._transactions.describe_new_owner
            self.sender.transaction_failure = self._transactions.state.failure
        self.path = SendPath(
            self.sender, self.accumulator, self.lock, config, self._transactions, self.interceptors, thread
        )

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self.path.is_closed

    def check_open(self) -> None:
        """Raises `ProducerClosedError` after `close`."""
        if self.path.is_closed:
            raise producer_closed()

    def transactions(self) -> ProducerTransactions:
        """The transactions. Raises `ProducerClosedError`, and `MisuseError` without a transactional id."""
        self.check_open()
        if self._transactions is None:
            raise MisuseError("the producer has no transactional_id; create it with one to use transactions")
        return self._transactions

    def _on_turn(self) -> None:
        self.path.on_turn()
        if self._transactions is not None:
            self._transactions.on_turn()

    def _on_finished(self, finished: list[Finished]) -> None:
        if self._transactions is not None:
            self._transactions.on_finished(finished)

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Waits until every record appended so far is delivered or failed. Raises `DeadlineError` after `timeout`."""
        with self.lock:
            pending = self.accumulator.pending()
            self.accumulator.flushes += 1
        self.sender.wake()
        left = len(pending)
        done = asyncio.get_running_loop().create_future()

        def on_batch_done() -> None:
            nonlocal left
            left -= 1
            if left == 0 and not done.done():
                done.set_result(None)

        try:
            if pending:
                for batch in pending:
                    # A batch may yet be split: it is done when its last record is.
                    batch.promise.add_waiter(batch.promise.count - 1, on_batch_done)
                async with asyncio.timeout(timeout):
                    await done
        except TimeoutError:
            raise DeadlineError(
                f"flush: {left} batches are not delivered after {timeout} s; the producer keeps trying for up to"
                " delivery_timeout_ms"
            ) from None
        finally:
            with self.lock:
                self.accumulator.flushes -= 1

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Delivers what was sent, aborts an open transaction, and closes all connections.

        Records that are not delivered after `timeout` seconds fail with `ProducerClosedError`.
        """
        if self.path.is_closed:
            return
        self.path.close()
        try:
            with suppress(OttlaError):
                async with asyncio.timeout(timeout):
                    if self._transactions is not None and self._transactions.state.is_under_way:
                        await self._transactions.end(committed=False)
                    else:
                        await self.flush()
        except TimeoutError:
            pass
        finally:
            with self.lock:
                dropped = self.accumulator.drop_all(
                    ProducerClosedError("the producer was closed before the record was delivered")
                )
            self.sender.report(dropped)
            await self.sender.stop()
            await self.cluster.close()
            self.interceptors.close()

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Counts and averages so far, under Kafka's names; see `ProducerCounts.as_metrics`."""
        with self.lock:
            return self.sender.counts.as_metrics(
                buffer_total_bytes=self.config.buffer_memory,
                buffer_available_bytes=self.config.buffer_memory - self.accumulator.used_bytes,
                record_retry_total=self.accumulator.retried,
                batch_split_total=self.accumulator.splits,
                requests_in_flight=self.sender.requests_in_flight,
            )
