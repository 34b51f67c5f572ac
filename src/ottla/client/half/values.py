"""Half messages as callbacks see them, the decisions about them, and what `send` returns."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from ottla.client.values import Header, RecordMetadata


class HalfDecision(Enum):
    """What becomes of a half message. The values are those of the header `ottla.half.state`."""

    COMMIT = "commit"
    """It is delivered to the topic."""
    ROLLBACK = "rollback"
    """It is never delivered."""
    UNKNOWN = "unknown"
    """Not decided yet: the broker asks later."""


class HalfMessage(NamedTuple):
    """A half message, as `execute` and `check` get it."""

    id: str
    topic: str
    """The topic that it is delivered to when it is committed."""
    key: Any
    """For `execute` as it was given to `send`, for `check` deserialized; the same for the value."""
    value: Any
    headers: Sequence[Header] = ()
    """Without those of half messages."""
    checks: int = 0
    """How often the broker has asked about it."""


class HalfResult(NamedTuple):
    """What became of a half message that was sent."""

    id: str
    decision: HalfDecision
    is_acknowledged: bool
    """Whether the broker has the decision. If not, it will ask."""
    prepared: RecordMetadata
    """Where the half message was written."""
