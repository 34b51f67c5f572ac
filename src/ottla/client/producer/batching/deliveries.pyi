"""Types and docstrings of the compiled deliveries."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Self, final

from typing_extensions import Buffer

from ottla.client.values import RecordMetadata
from ottla.model.ids import TopicPartition

@final
class BatchPromise:
    """The result of one batch. `home` is the id of the thread that completes it, 0 if unknown."""

    topic_partition: TopicPartition
    is_done: bool
    count: int
    """The number of records in the batch."""
    base_offset: int
    append_time: int
    error: Exception | None

    def __init__(
        self, topic_partition: TopicPartition, is_async: bool = False, home: int = 0, count: int = 0
    ) -> None: ...
    def record(self, timestamp: int, key: Buffer | None, value: Buffer | None) -> Delivery:
        """Adds a record and returns its delivery; an `AsyncDelivery` if the promise is async."""
    def add_waiter(self, index: int, callback: Callable[[], object]) -> None:
        """Calls the callback when the record is done, at once if it is; what it raises is logged."""
    def succeed(self, base_offset: int, append_time: int = -1) -> None:
        """All records were written. Does nothing if the promise is done."""
    def fail(self, error: Exception) -> None:
        """The batch failed. Does nothing if the promise is done."""
    def split(self, pieces: Sequence[BatchPromise]) -> None:
        """Moves the records to the promises of pieces, in order, with all that wait for them."""
    def parts(self) -> list[BatchPromise]:
        """The promises that have the records now, in order; itself, unless it was split."""

class Delivery:
    """Tells when and where a record was written, for programs without an event loop. Returned by `send`."""

    @property
    def is_done(self) -> bool:
        """Whether the record is written or failed."""
    def succeeded(self) -> bool:
        """Whether the record was written."""
    def failed(self) -> bool:
        """Whether the record failed."""
    def done(self) -> bool:
        """The same as `is_done`, as futures call it."""
    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits as `get` does, and returns the error of the record, None if it was written."""
    @property
    def value(self) -> RecordMetadata | None:
        """Where the record was written; None until then."""
    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Waits until the record is written, and returns where. Raises the error of the record if it failed.

        Raises `DeliveryTimeoutError`, a `TimeoutError`, after `timeout` seconds; the producer keeps trying. Raises
        `MisuseError` in a callback of the producer, where waiting would never end.
        """
    def result(self, timeout: float | None = None) -> RecordMetadata:
        """The same as `get`, as futures call it."""
    def add_done_callback(self, function: Callable[[Self], object]) -> None:
        """Calls the function with this delivery when it is done, in the producer's thread, which must not block."""
    def add_callback(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Self:
        """Calls the function with these arguments and the `RecordMetadata` when the record is written.

        It is called in the thread of the producer, which must not block; what it raises is logged.
        """
    def add_errback(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Self:
        """Calls the function with these arguments and the exception if the record failed, as `add_callback` does."""
    def add_both(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Self:
        """Both `add_callback` and `add_errback`."""

@final
class AsyncDelivery(Delivery):
    """Tells when and where a record was written; await it in the event loop that sent the record.

    `get`, `result` and `exception` do not wait: they raise `MisuseError` unless the delivery is done.
    """

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Waits until the record is written and returns where. Raises the error of the record if it failed."""
