"""Types and promises of the compiled deliveries."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Self, final

from typing_extensions import Buffer

from ottla.client.values import RecordMetadata
from ottla.model.ids import TopicPartition

@final
class BatchPromise:
    """Whether the records of one batch were written, and where. `home` is the thread that will tell, 0 if unknown."""

    topic_partition: TopicPartition
    is_done: bool
    count: int
    """How many records were promised something."""
    base_offset: int
    append_time: int
    error: Exception | None

    def __init__(
        self, topic_partition: TopicPartition, is_async: bool = False, home: int = 0, count: int = 0
    ) -> None: ...
    def record(self, timestamp: int, key: Buffer | None, value: Buffer | None) -> Delivery:
        """The delivery of the next record; an `AsyncDelivery` if the promise is one."""
    def add_waiter(self, index: int, callback: Callable[[], object]) -> None:
        """Has it called when that record's fate is known, at once if it is; what it raises is logged."""
    def succeed(self, base_offset: int, append_time: int = -1) -> None:
        """All were written. Nothing happens if the fate is known already."""
    def fail(self, error: Exception) -> None:
        """None was, as far as anybody knows. Nothing happens if the fate is known already."""
    def split(self, pieces: Sequence[BatchPromise]) -> None:
        """The records go on in these, in their order; whoever waits here is told by them."""
    def parts(self) -> list[BatchPromise]:
        """The promises that know of the records now, in their order; itself, unless it was split."""

class Delivery:
    """One record's fate, for programs without an event loop. Made by `send`."""

    @property
    def is_done(self) -> bool:
        """Whether it is known."""
    def succeeded(self) -> bool:
        """Whether the record was written."""
    def failed(self) -> bool:
        """Whether it was given up."""
    def done(self) -> bool:
        """Whether it is known, as futures call it."""
    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits as `get` does; why the record was given up, or None if it was written."""
    @property
    def value(self) -> RecordMetadata | None:
        """Where it was written; None while that is not so."""
    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Waits until the record is written and returns where; raises why it was given up.

        Raises `DeliveryTimeoutError`, a `TimeoutError`, after `timeout` seconds; the record is still under way then.
        """
    def result(self, timeout: float | None = None) -> RecordMetadata:
        """The same as `get`, as futures call it."""
    def add_done_callback(self, function: Callable[[Self], object]) -> None:
        """Calls the function with this delivery once its fate is known, in the producer's own thread, as below."""
    def add_callback(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Self:
        """Has it called with these arguments and the `RecordMetadata` once the record is written.

        That happens in the producer's own thread, which must not wait; what the function raises is logged.
        """
    def add_errback(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Self:
        """Likewise with the exception, if the record is given up."""
    def add_both(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Self:
        """Both of these."""

@final
class AsyncDelivery(Delivery):
    """One record's fate, to be awaited in the event loop that sent it.

    `get`, `result` and `exception` do not wait: they raise `MisuseError` unless the fate is known.
    """

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Where the record was written; raises why it was not."""
