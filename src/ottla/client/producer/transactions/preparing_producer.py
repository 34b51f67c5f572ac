"""A producer for two-phase commit: it fills a transaction, and another process commits or aborts it.

For work that is done by many processes and decided by one, such as a Spark job. A `PreparedTransaction` is ended with
`transaction_requests.end_transaction`, by any process, retried as often as necessary;
`ottla.client.admin.transaction_inspection` finds its outcome later. Each transaction registers the transactional id
again, because another process ended the last one.
"""

from dataclasses import dataclass
from typing import Unpack

from ottla.client.admin.transaction_requests import TransactionDescription, describe_transaction
from ottla.client.producer.batching.producer_batch import Identity
from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.errors import TransactionFailedError
from ottla.client.producer.options import ProducerOptions
from ottla.client.producer.transactions.transaction_state import ProducerTransactionState, TransactionPhase
from ottla.model.errors import MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTransaction:
    """An open transaction whose records are all written, ready to be committed or aborted."""

    transactional_id: str
    producer_id: int
    epoch: int

    @property
    def identity(self) -> Identity:
        """The producer id and epoch for requests."""
        return Identity(self.producer_id, self.epoch)


class PreparingProducer(Producer):
    """Needs a `transactional_id`. One thread at a time may use it. `close` does not end a prepared transaction."""

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        if options.get("transactional_id") is None:
            raise MisuseError("PreparingProducer needs a transactional_id")
        super().__init__(**options)

    @property
    def transactional_id(self) -> str:
        """The transactional id."""
        return self._core.transactions().state.transactional_id

    def begin(self) -> None:
        """Registers the transactional id and begins a transaction. An open transaction of that id is aborted."""
        self.init_transactions()
        self.begin_transaction()

    def prepare(self) -> PreparedTransaction:
        """Waits until every record is written. The transaction stays open and no longer belongs to the producer.

        Raises `TransactionFailedError` if a record failed: abort then. Raises `MisuseError` without records.
        """
        transactions = self._core.transactions()
        self.flush()
        with self._core.lock:
            state, identity = transactions.state, self._core.accumulator.identity
            if state.phase is TransactionPhase.BROKEN and state.error is not None:
                raise state.error.with_traceback(None)
            if state.phase is TransactionPhase.FAILED:
                raise TransactionFailedError(
                    f"transaction of {state.transactional_id!r} cannot be prepared because a record failed:"
                    f" {state.error}; abort it"
                ) from state.error
            if state.phase is not TransactionPhase.OPEN or identity is None or state.is_empty:
                raise MisuseError(
                    f"prepare: the producer of {state.transactional_id!r} has no transaction with records"
                )
            transactions.state = ProducerTransactionState(state.transactional_id)
        return PreparedTransaction(
            transactional_id=state.transactional_id, producer_id=identity.producer_id, epoch=identity.epoch
        )

    def describe(self) -> TransactionDescription:
        """The coordinator's description of the transactional id. Raises `AnswerError` if the id is unknown."""
        return self._thread.call(describe_transaction(self._core.cluster, self.transactional_id))
