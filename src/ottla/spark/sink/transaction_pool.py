"""Producers that stay in a worker process from task to task, and the rule by which a transactional id is used again.

Spark keeps its Python workers. A producer that is kept saves each task a connection and the topics' metadata; an id
that is kept saves the coordinators from one id for each task of each batch. An id serves a later batch only when its
last transaction is ended: a batch that is run again must find the transactions of its first run as they were.
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
from ottla.client.producer.preparing_producer import PreparingProducer
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.spark.sink.names import TOKEN_BYTES, task_id
from ottla.spark.sink.options import TRANSACTION_TIMEOUT_MS, SinkOptions

_PRODUCERS_MAX: Final = 4
"""Each has a thread and its connections; a worker has one task at a time, and few sinks."""
_IDS_MAX: Final = 2_000
"""As many tasks of one batch find an id again in the next one."""

_Key = tuple[Any, ...]


@dataclass(slots=True)
class _Kept:
    key: _Key
    batch_id: int
    """The last batch that it wrote for."""
    transactional_id: str | None
    producer: Producer | None


class TransactionPool:
    """The producers and ids of one process. One thread at a time, as Spark's workers are."""

    def __init__(self) -> None:
        self._kept: list[_Kept] = []
        """Those that were given back last are at the end."""
        self._process = os.getpid()

    def begin(self, options: SinkOptions, sink_id: str, batch_id: int) -> PreparingProducer:
        """A producer in a fresh transaction, out of the pool until it is given back."""
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
        """Keeps it for the next task. Its transaction, if it had one, is prepared."""
        name = producer.transactional_id if isinstance(producer, PreparingProducer) else None
        self._kept.append(_Kept(_key(options, sink_id), batch_id, name, producer))
        open_ones = [each for each in self._kept if each.producer is not None]
        for each in open_ones[:-_PRODUCERS_MAX]:
            if each.producer is not None:
                each.producer.close(0)
                each.producer = None
        del self._kept[:-_IDS_MAX]

    def _take(self, key: _Key, batch_id: int) -> _Kept | None:
        """One that wrote for an earlier batch last, an open producer if there is one."""
        usable = [each for each in self._kept if each.key == key and each.batch_id < batch_id]
        if not usable:
            return None
        taken = next((each for each in usable if each.producer is not None), usable[0])
        self._kept.remove(taken)
        return taken

    def _check_process(self) -> None:
        """A fork has its parent's objects and none of its threads."""
        if self._process != os.getpid():
            self._kept.clear()
            self._process = os.getpid()


def _made(options: SinkOptions, name: str, timeout_ms: int | None) -> PreparingProducer:
    wanted = TRANSACTION_TIMEOUT_MS if timeout_ms is None else timeout_ms
    return PreparingProducer(**options.producer_arguments, transactional_id=name, transaction_timeout_ms=wanted)


def _begun(producer: PreparingProducer, options: SinkOptions) -> PreparingProducer:
    """The producer in its transaction; another one if brokers allow less time than it asks for."""
    try:
        producer.begin()
    except BaseException as error:
        name = producer.transactional_id
        producer.close(0)
        is_too_long = ErrorCode.INVALID_TRANSACTION_TIMEOUT.name in str(error)
        if isinstance(error, ProducerBrokenError) and is_too_long and options.transaction_timeout_ms is None:
            other = _made(options, name, _timeout_allowed_ms(options))
            other.begin()
            return other
        raise
    return producer


def _timeout_allowed_ms(options: SinkOptions) -> int:
    """How long brokers let a transaction take that were told to allow less than usual."""
    with Admin(**options.client) as admin:
        broker = str(next(iter(admin.describe_cluster().brokers)).id)
        wish = ConfigResource(ResourceType.BROKER, broker)
        configs = next(iter(admin.describe_configs([wish]).values()))
        return int(configs["transaction.max.timeout.ms"].value or TRANSACTION_TIMEOUT_MS)


def _is_at_rest(producer: PreparingProducer) -> bool:
    """Whether the last transaction of its id is ended for certain."""
    try:
        return not producer.describe().is_under_way
    except AnswerError as error:
        return error.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    except OttlaError:
        return False


def _key(options: SinkOptions, sink_id: str | None) -> _Key:
    return sink_id, options.transaction_timeout_ms, *sorted(map(repr, options.producer_arguments.items()))


POOL: Final = TransactionPool()
"""This process's."""
