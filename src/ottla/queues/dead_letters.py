"""Where the dead letters of a partition go. Their headers are in `ottla.model.dead_letters`."""

from typing import NamedTuple

from ottla.model.dead_letters import DeadLetterHeaders
from ottla.model.ids import TopicPartition


class DeadLetterPlace(NamedTuple):
    """A partition of the dead-letter topic, and the names of the headers there."""

    sink: TopicPartition
    headers: DeadLetterHeaders = DeadLetterHeaders.KIP1191
