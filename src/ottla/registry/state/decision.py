"""What a write request leads to: records for the topic, and the answer once they are applied."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from ottla.registry.state.record_formats import Record

Answer = TypeVar("Answer", covariant=True)


@dataclass(frozen=True, slots=True)
class Decision(Generic[Answer]):
    """Records to write in this order and all together, and the answer to give when the image has applied them.

    Without records there is nothing to write: the answer may be given at once.
    """

    records: tuple[Record, ...]
    answer: Answer
