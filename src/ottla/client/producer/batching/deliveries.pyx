# cython: boundscheck=False, wraparound=False
"""Deliveries of sent records: one promise for each batch, and a small delivery for each record that refers to it.

Compiled, since there is a delivery for each record; the result of a batch is stored once, in its promise. The event
loop's thread completes promises and any thread reads them: every step here is atomic under the interpreter lock.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

import asyncio
import logging
import threading
from functools import partial

from ottla.client.producer.errors import DeliveryTimeoutError
from ottla.client.values import RecordMetadata
from ottla.model.errors import MisuseError

_LOG = logging.getLogger("ottla.client.producer.async_producer")


@cython.final
cdef class BatchPromise:
    """The result of one batch. `home` is the id of the thread that completes it, 0 if unknown."""

    cdef readonly object topic_partition
    cdef readonly bint is_done
    cdef readonly int32_t count
    cdef readonly int64_t base_offset
    cdef readonly int64_t append_time
    cdef readonly object error
    cdef unsigned long _home
    cdef bint _is_async
    cdef list _waiters
    cdef list _pieces

    def __cinit__(self, topic_partition, bint is_async=False, unsigned long home=0, int32_t count=0):
        self.topic_partition = topic_partition
        self.base_offset = self.append_time = -1
        self._is_async = is_async
        self._home = home
        self.count = count
        self._waiters = []

    def record(self, int64_t timestamp, key, value):
        cdef Delivery delivery = AsyncDelivery.__new__(AsyncDelivery) if self._is_async else Delivery.__new__(Delivery)
        delivery._promise = self
        delivery._index = self.count
        delivery._timestamp = timestamp
        delivery._key_size = -1 if key is None else <int32_t>len(key)
        delivery._value_size = -1 if value is None else <int32_t>len(value)
        self.count += 1
        return delivery

    def add_waiter(self, int32_t index, callback):
        cdef BatchPromise final
        cdef int32_t place
        cdef tuple entry
        while True:
            place = index
            final = self._final(&place)
            # Allocating may run the garbage collector and other threads; nothing after this line does.
            entry = (place, callback)
            if final._pieces is None:
                break
        if final.is_done:
            _call(callback)
        else:
            final._waiters.append(entry)

    def succeed(self, int64_t base_offset, int64_t append_time=-1):
        if self.is_done or self._pieces is not None:
            return
        self.base_offset = base_offset
        self.append_time = append_time
        self._finish()

    def fail(self, error):
        if self.is_done or self._pieces is not None:
            return
        self.error = error
        self._finish()

    def split(self, pieces):
        cdef list waiters = self._waiters
        cdef list found = []
        cdef int32_t start = 0
        cdef BatchPromise piece
        for piece in pieces:
            found.append((start, piece))
            start += piece.count
        if start != self.count or not found:
            raise MisuseError(f"a batch of {self.count} records cannot be split into pieces of {start} records")
        self._pieces = found
        self._waiters = []
        for index, callback in waiters:
            self.add_waiter(index, callback)

    def parts(self):
        cdef list found = []
        cdef BatchPromise piece
        if self._pieces is None:
            return [self]
        for _, piece in self._pieces:
            found += piece.parts()
        return found

    cdef BatchPromise _final(self, int32_t* index):
        """The promise that has a record now, after splits, and the record's place in it."""
        cdef BatchPromise found = self
        cdef int32_t start
        while found._pieces is not None:
            for start, piece in reversed(found._pieces):
                if start <= index[0]:
                    index[0] -= start
                    found = piece
                    break
        return found

    cdef _finish(self):
        cdef list waiters = self._waiters
        self.is_done = True
        self._waiters = None
        for _, callback in waiters:
            _call(callback)


cdef _call(callback):
    try:
        callback()
    except Exception:
        _LOG.exception("a delivery callback of the program failed")


# No reference cycle outlives its batch: a finished promise drops its waiters.
@cython.no_gc
@cython.freelist(512)
cdef class Delivery:
    """The delivery of one record, for programs without an event loop."""

    cdef BatchPromise _promise
    cdef int64_t _timestamp
    cdef int32_t _index, _key_size, _value_size

    @property
    def is_done(self):
        cdef int32_t index = self._index
        return self._promise._final(&index).is_done

    def succeeded(self):
        cdef int32_t index = self._index
        cdef BatchPromise final = self._promise._final(&index)
        return final.is_done and final.error is None

    def failed(self):
        cdef int32_t index = self._index
        return self._promise._final(&index).error is not None

    def done(self):
        return self.is_done

    def exception(self, timeout=None):
        self._wait_done(timeout)
        return self._error()

    @property
    def value(self):
        cdef int32_t index = self._index
        cdef BatchPromise final = self._promise._final(&index)
        if not final.is_done or final.error is not None:
            return None
        partition = final.topic_partition
        return RecordMetadata(
            partition.topic,
            partition.partition,
            partition,
            -1 if final.base_offset < 0 else final.base_offset + index,
            self._timestamp if final.append_time < 0 else final.append_time,
            self._key_size,
            self._value_size,
        )

    def get(self, timeout=None):
        self._wait_done(timeout)
        return self._result()

    def result(self, timeout=None):
        self._wait_done(timeout)
        return self._result()

    cdef _wait_done(self, timeout):
        if self.is_done:
            return None
        if threading.get_ident() == self._promise._home:
            raise MisuseError("a delivery cannot be waited for in a callback of its producer; use add_callback")
        event = threading.Event()
        self._promise.add_waiter(self._index, event.set)
        if not event.wait(timeout):
            raise DeliveryTimeoutError(
                f"a record for {self._promise.topic_partition} is not delivered after {timeout} s; the producer keeps"
                " trying for up to delivery_timeout_ms"
            )

    def add_done_callback(self, function):
        self._promise.add_waiter(self._index, partial(function, self))

    def add_callback(self, function, /, *args, **kwargs):
        call = partial(function, *args, **kwargs) if args or kwargs else function
        self._promise.add_waiter(self._index, partial(_on_success, self, call))
        return self

    def add_errback(self, function, /, *args, **kwargs):
        call = partial(function, *args, **kwargs) if args or kwargs else function
        self._promise.add_waiter(self._index, partial(_on_failure, self, call))
        return self

    def add_both(self, function, /, *args, **kwargs):
        return self.add_callback(function, *args, **kwargs).add_errback(function, *args, **kwargs)

    cdef _error(self):
        cdef int32_t index = self._index
        return self._promise._final(&index).error

    cdef _result(self):
        error = self._error()
        if error is not None:
            raise error.with_traceback(None)
        return self.value


@cython.no_gc
@cython.final
cdef class AsyncDelivery(Delivery):
    """The delivery of one record, to be awaited in the event loop that sent it."""

    cdef _wait_done(self, timeout):
        if not self.is_done:
            raise MisuseError(
                "the record is not delivered yet: await the delivery; waiting here would block the event loop that"
                " delivers it"
            )

    def __await__(self):
        if self.is_done:
            return _Done(self)
        return self._wait().__await__()

    async def _wait(self):
        known = asyncio.get_running_loop().create_future()
        self._promise.add_waiter(self._index, partial(_set, known))
        await known
        return self._result()


@cython.final
cdef class _Done:
    """The iterator of a delivery that is done when it is awaited."""

    cdef AsyncDelivery _delivery

    def __cinit__(self, AsyncDelivery delivery):
        self._delivery = delivery

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration(self._delivery._result())


def _set(known):
    if not known.done():
        known.set_result(None)


def _on_success(Delivery delivery, call):
    if delivery._error() is None:
        call(delivery.value)


def _on_failure(Delivery delivery, call):
    error = delivery._error()
    if error is not None:
        call(error)
