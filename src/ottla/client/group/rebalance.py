"""What a group asks of a consumer between two polls: to give up partitions, to take some, or to accept a loss.

Both kinds of membership hand these out; whoever polls does them, calls the listener, and says when it is done.
"""

from dataclasses import dataclass

from ottla.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """One change of what a consumer has. First `lost` and `revoked` go, then `added` come."""

    assigned: frozenset[TopicPartition]
    """Everything that the consumer has after it."""
    revoked: frozenset[TopicPartition] = frozenset()
    """Given up while still owned: offsets can be committed before."""
    lost: frozenset[TopicPartition] = frozenset()
    """Somebody else may have these already; commits would be refused."""
    added: frozenset[TopicPartition] = frozenset()
    is_new_assignment: bool = False
    """Whether a group has just assigned, even if that changes nothing: the listener hears of that too."""
