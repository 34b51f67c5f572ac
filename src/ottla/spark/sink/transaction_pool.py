"""Producers that stay in a worker process from task to task, and when a transactional id is reused.

Spark keeps its Python workers. Reusing a producer saves each task the connections and the metadata; reusing a
transactional id saves coordinators one id per task of each batch. An id is reused by a later batch only when its last
transaction has ended: a repeated batch must find the transactions of its first run unchanged.
"""

import os
import secrets
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.values import ConfigResource
from ottla.client.errors import AnswerError
from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.errors import ProducerBrokenError
from ottla.client.producer.transactions.preparing_producer import PreparingProducer
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.spark.sink.names import TOKEN_BYTES, task_id
from ottla.spark.sink.options import TRANSACTION_TIMEOUT_MS, SinkOptions

_PRODUCERS_MAX: Final = 4
"""Each has a thread and connections; a worker runs one task at a time and has few sinks."""
_IDS_MAX: Final = 2_000
"""The number of transactional ids kept for reuse."""

_Key = tuple[Any, ...]


@dataclass(slots=True)
class _Kept:
    key: _Key
    batch_id: int
    """The last batch that used it."""
    transactional_id: str | None
    producer: Producer | None


class TransactionPool:
    """The producers and ids of one process. Not thread-safe: Spark's workers have one thread."""

    def __init__(self) -> None:
        self._kept: list[_Kept] = []
        """In the order in which they were given back."""
        self._process = os.getpid()

    def begin(self, options: SinkOptions, sink_id: str, batch_id: int) -> PreparingProducer:
        """A producer in a new transaction, out of the pool until it is given back."""
        self._check_process()
        kept = self._take(_key(options, sink_id), batch_id)
        if kept is not None and kept.transactional_id is not None:
            producer = kept.producer
            if not isinstance(producer, PreparingProducer):
                producer = _made(options, kept.transactional_id, options.transaction_timeout_ms)
            if _is_at_rest(producer):
                return _begun(producer, options)
            producer.close(0)
        name = task_id(sink_id, secrets.token_hex(TOKEN_BYTES))
        return _begun(_made(options, name, options.transaction_timeout_ms), options)

    def plain(self, options: SinkOptions) -> Producer:
        """A producer without transactions, out of the pool until it is given back."""
        self._check_process()
        kept = self._take(_key(options, None), 1)
        return Producer(**options.producer_arguments) if kept is None or kept.producer is None else kept.producer

    def give_back(self, options: SinkOptions, sink_id: str | None, batch_id: int, producer: Producer) -> None:
        """Keeps a producer for the next task. Its transaction, if it has one, is prepared."""
        name = producer.transactional_id if isinstance(producer, PreparingProducer) else None
        self._kept.append(_Kept(_key(options, sink_id), batch_id, name, producer))
        open_ones = [each for each in self._kept if each.producer is not None]
        for each in open_ones[:-_PRODUCERS_MAX]:
            if each.producer is not None:
                each.producer.close(0)
                each.producer = None
        del self._kept[:-_IDS_MAX]

    def _take(self, key: _Key, batch_id: int) -> _Kept | None:
        """An entry last used by an earlier batch; with an open producer if possible."""
        usable = [each for each in self._kept if each.key == key and each.batch_id < batch_id]
        if not usable:
            return None
        taken = next((each for each in usable if each.producer is not None), usable[0])
        self._kept.remove(taken)
        return taken

    def _check_process(self) -> None:
        """Empties the pool in a forked process, which does not have the threads of its parent."""
        if self._process != os.getpid():
            self._kept.clear()
            self._process = os.getpid()


def _made(options: SinkOptions, name: str, timeout_ms: int | None) -> PreparingProducer:
    wanted = TRANSACTION_TIMEOUT_MS if timeout_ms is None else timeout_ms
    return PreparingProducer(**options.producer_arguments, transactional_id=name, transaction_timeout_ms=wanted)


def _begun(producer: PreparingProducer, options: SinkOptions) -> PreparingProducer:
    """The producer in a transaction; a new one with a shorter timeout if the brokers require it."""
    try:
        producer.begin()
    except BaseException as error:
        name = producer.transactional_id
        producer.close(0)
        if not (isinstance(error, ProducerBrokenError) and options.transaction_timeout_ms is None):
            raise
        if error.error_code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        other = _made(options, name, _timeout_allowed_ms(options))
        other.begin()
        return other
    return producer


def _timeout_allowed_ms(options: SinkOptions) -> int:
    """The transaction.max.timeout.ms of the brokers."""
    with Admin(**options.client) as admin:
        broker = str(next(iter(admin.describe_cluster().brokers)).id)
        wish = ConfigResource(ResourceType.BROKER, broker)
        configs = next(iter(admin.describe_configs([wish]).values()))
        return int(configs["transaction.max.timeout.ms"].value or TRANSACTION_TIMEOUT_MS)


def _is_at_rest(producer: PreparingProducer) -> bool:
    """Whether the last transaction of the id has surely ended."""
    try:
        return not producer.describe().is_under_way
    except AnswerError as error:
        return error.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    except OttlaError:
        return False


def _key(options: SinkOptions, sink_id: str | None) -> _Key:
    return sink_id, options.transaction_timeout_ms, *sorted(map(repr, options.producer_arguments.items()))


POOL: Final = TransactionPool()
"""The pool of this process."""
