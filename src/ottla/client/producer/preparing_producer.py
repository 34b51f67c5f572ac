"""A producer whose transactions somebody else ends: it fills one, sees it written, and hands over its identity.

For work that many processes do and one decides about. Whoever has a `PreparedTransaction` commits or aborts it with
`transaction_requests.end_transaction`, from anywhere, as often as it takes; `transaction_inspection.py` tells later
what became of it. Each transaction takes the id anew, since the last one was ended behind the producer's back.
"""

from dataclasses import dataclass
from typing import Unpack

from ottla.client.admin.transaction_requests import TransactionDescription, describe_transaction
from ottla.client.producer.batch import Identity
from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.errors import TransactionFailedError
from ottla.client.producer.options import ProducerOptions
from ottla.client.producer.transaction_state import ProducerTransactionState, TransactionPhase
from ottla.model.errors import MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTransaction:
    """An open transaction in which every record is written, and nobody adds to any more."""

    transactional_id: str
    producer_id: int
    epoch: int

    @property
    def identity(self) -> Identity:
        """As requests name it."""
        return Identity(self.producer_id, self.epoch)


class PreparingProducer(Producer):
    """See the module's docstring. Needs a `transactional_id`; one thread at a time. `close` leaves what is prepared."""

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        if options.get("transactional_id") is None:
            raise MisuseError("a PreparingProducer is for transactions; give it a transactional_id")
        super().__init__(**options)

    @property
    def transactional_id(self) -> str:
        """The name of its transactions."""
        return self._core.transactional().state.transactional_id

    def begin(self) -> None:
        """Takes the transactional id, whoever had it, and begins. What was open under that id is aborted by that."""
        self.init_transactions()
        self.begin_transaction()

    def prepare(self) -> PreparedTransaction:
        """Waits until every record is written, and lets go of the transaction, which stays open.

        Raises `TransactionFailedError` if a record failed, or what broke the producer: then abort, or close.
        """
        transactions = self._core.transactional()
        self.flush()
        with self._core.lock:
            state, identity = transactions.state, self._core.accumulator.identity
            if state.phase is TransactionPhase.BROKEN and state.error is not None:
                raise state.error.with_traceback(None)
            if state.phase is TransactionPhase.FAILED:
                raise TransactionFailedError(
                    f"the transaction of {state.transactional_id!r} is not whole, since a record of it failed:"
                    f" {state.error}; abort it"
                ) from state.error
            if state.phase is not TransactionPhase.OPEN or identity is None or state.is_empty:
                raise MisuseError(f"the producer of {state.transactional_id!r} has nothing to prepare; begin, and send")
            transactions.state = ProducerTransactionState(state.transactional_id)
        return PreparedTransaction(
            transactional_id=state.transactional_id, producer_id=identity.producer_id, epoch=identity.epoch
        )

    def describe(self) -> TransactionDescription:
        """What the coordinator knows of the transactional id. Raises `AnswerError` if it knows nothing."""
        return self._thread.call(describe_transaction(self._core.cluster, self.transactional_id))
