"""Types and promises of the consumer's record reader."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from ottla.records.batch import Batch

R = TypeVar("R", bound=tuple[Any, ...])

class RecordReader(Generic[R]):
    """Reads the records of a partition's batches from `start` on, a few at a time.

    `kind` is a class of named tuples with the fields topic, partition, leader_epoch, offset, timestamp, timestamp_type,
    key, value, headers, serialized_key_size, serialized_value_size. With `aborted`, the (producer id, first offset)
    pairs of a fetch answer, the records of those transactions are left out; markers always are.
    """

    next_offset: int
    """After the last record that was given or left out; `start` at first, after the last batch when done."""
    leader_epoch: int
    """Of the batch that was read last; -1 if none was, or it does not know."""

    def __init__(
        self,
        kind: type[R],
        topic: str,
        partition: int,
        batches: Sequence[Batch],
        start: int,
        aborted: Sequence[tuple[int, int]] | None = None,
        *,
        check_crcs: bool = True,
    ) -> None: ...
    @property
    def is_done(self) -> bool:
        """Whether nothing is left to read."""

    def read(
        self,
        count_max: int,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
    ) -> list[R]:
        """The next records, as many as there are up to `count_max`.

        Deserializers are called with bytes, never with None. If one has a method `deserialize_record`, that is called,
        with the topic, the headers, the bytes, and whether it is the key. What they raise, and what a damaged batch
        raises (`CorruptBatchError`, for example), comes after the good records before it: `next_offset` is then the
        offset of the record that cannot be read, and every further call raises again.
        """
